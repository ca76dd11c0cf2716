"""Keys: the same for what cannot matter, different for what can."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import StoreError
from tasks.ports.code import fingerprint
from tasks.ports.code.fingerprint import HashMemo, code_digest, differences, key_of
from tasks.ports.code.program import Program

SOURCE = (
    "def double(x):\n    return x + x\n\ndef halve(x):\n    return x / 2\n\nKINDS = {'double': double, "
    "'halve': halve}\n\n"
)
SOURCE += "def door(knobs, x):\n    return KINDS[knobs.kind](x)\n"


def test_syntax_is_read_once_while_no_source_has_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    read: list[Any] = []
    monkeypatch.setattr(
        fingerprint, "read_digest", lambda *asked, real=fingerprint.read_digest: (read.append(asked), real(*asked))[1]
    )

    def digest(source: str, kind: str = "double") -> str:
        for known in (fingerprint.sources_sha256, fingerprint.narrowing):
            known.cache_clear()  # as a new process would
        monkeypatch.setattr(fingerprint, "program", lambda: Program({"tasks.main": source}))
        return code_digest([("tasks.main", "door", None)], {"kind": kind, "steps": 3})

    first = digest(SOURCE)
    assert digest(SOURCE) == first and len(read) == 1
    digest(SOURCE, "halve")
    assert digest(SOURCE.replace("x + x", "2 * x + 1")) != first and len(read) == 3
    for known in (fingerprint.sources_sha256, fingerprint.narrowing):
        known.cache_clear()


def test_keys_ignore_order_and_the_type_of_whole_numbers() -> None:
    assert key_of({"a": 1, "b": 2.5}) == key_of({"b": 2.5, "a": 1.0})


@pytest.mark.parametrize("bad", [float("nan"), {1, 2}, object()])
def test_a_key_that_cannot_be_computed_is_an_error(bad: object) -> None:
    with pytest.raises(StoreError, match="cannot be computed"):
        key_of({"a": bad})


def test_differences_name_the_field() -> None:
    assert list(differences({"knobs": {"steps": 2, "same": 1}}, {"knobs": {"steps": 1, "same": 1}})) == [
        "knobs.steps: 1 → 2"
    ]


def test_a_result_of_the_schema_before_is_a_miss_for_one_reason_in_one_sentence() -> None:
    now, then = {"schema": 2, "code": "a" * 64, "knobs": {"steps": 2}}, {"code": "b" * 64, "knobs": {"steps": 2}}
    assert key_of(now) != key_of(then)
    assert list(differences(now, then)) == [
        "the computation of keys changed in schema 2, so earlier results are computed again"
    ]
    assert list(differences({"knobs": {"steps": 2, "same": 1}}, {"knobs": {"steps": 1, "same": 1}})) == [
        "knobs.steps: 1 → 2"
    ]


# --- hashes of files --------------------------------------------------------------------------------------------------


def old(path: Path, body: bytes = b"body") -> Path:
    """Write a file; give it the times of a minute ago as far as a user can."""
    path.write_bytes(body)
    os.utime(path, (time.time() - 60, time.time() - 60))
    return path


class Clock:
    """Stands for the time module, so many seconds ahead."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead

    def time(self) -> float:
        return time.time() + self.ahead


def test_a_file_that_was_just_written_is_hashed_again_for_an_edit_may_leave_no_trace(tmp_path: Path) -> None:
    memo, path = HashMemo(tmp_path / "hashes.json"), old(tmp_path / "file")
    first = memo.get(path)
    assert memo.known == {} and first == hashlib.sha256(b"body").hexdigest(), (
        "its times are set back, but not that of the last change"
    )
    path.write_bytes(b"BODY")  # within the clock's granularity: size, times and inode could be the same
    assert memo.get(path) == hashlib.sha256(b"BODY").hexdigest()


def test_a_file_that_was_left_alone_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = old(tmp_path / "file"), []
    monkeypatch.setattr(fingerprint, "time", Clock(60))
    monkeypatch.setattr(
        fingerprint, "hash_now", lambda path, real=fingerprint.hash_now: (read.append(path), real(path))[1]
    )
    memo = HashMemo(tmp_path / "hashes.json")
    assert memo.get(path) == memo.get(path) and len(read) == 1
    memo.save()
    again = HashMemo(tmp_path / "hashes.json")
    assert again.get(path) == memo.get(path) and len(read) == 1
    monkeypatch.setattr(fingerprint, "time", Clock(-3600))  # a clock that jumped back
    assert HashMemo(tmp_path / "nothing").get(path) and not HashMemo(tmp_path / "nothing").known


def test_two_runs_of_one_home_keep_each_other_s_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "time", Clock(60))
    place, names = tmp_path / "hashes.json", ["one", "two"]
    memos = [HashMemo(place) for _ in names]
    for memo, name in zip(memos, names, strict=True):
        memo.get(old(tmp_path / name))
    for memo in memos:
        memo.save()
    assert set(HashMemo(place).known) == {str(tmp_path / name) for name in names}


def test_a_memo_beyond_its_limit_forgets_missing_files_and_then_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "time", Clock(60))
    monkeypatch.setattr(fingerprint, "MOST_HASHES", 4)
    place, files = tmp_path / "hashes.json", [old(tmp_path / f"file-{number}") for number in range(6)]
    for path in files[:4]:
        memo = HashMemo(place)
        memo.get(path)
        memo.save()
    files[0].unlink()
    for path in files[4:]:
        memo = HashMemo(place)
        memo.get(path)
        memo.save()
    assert set(HashMemo(place).known) == {str(path) for path in files[4:]}


def test_large_files_are_hashed_side_by_side_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [old(tmp_path / f"file-{number}", bytes([number]) * 1000) for number in range(5)]
    expected = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    threads: set[int] = set()
    real = fingerprint.hash_now
    monkeypatch.setattr(fingerprint, "hash_now", lambda path: (threads.add(threading.get_ident()), real(path))[1])
    assert fingerprint.hash_files(paths, remember=False) == expected and threads == {threading.get_ident()}
    monkeypatch.setattr(fingerprint, "LARGE", 1)
    assert fingerprint.hash_files(paths, remember=False) == expected and len(threads) > 1


def spoilt(whole: bytes) -> list[bytes]:
    """Return what a damaged memo may hold."""
    kept = json.loads(whole)
    wrong: list[object] = [[], {"x": 1}, {"x": [[1], 2]}, {"x": []}, {"x": [1, "a" * 64]}, None, 3, "text"]
    fit = [
        {"sha256": hashlib.sha256(json.dumps(body).encode()).hexdigest(), "known": json.dumps(body)} for body in wrong
    ]
    documents = [
        [],
        {},
        {"known": 1, "sha256": 2},
        None,
        7,
        kept | {"sha256": 0},
        kept | {"known": kept["known"].replace("[", "[ ")},
        *fit,
    ]
    cuts = [whole[:cut] for cut in range(0, len(whole), 9)]
    return [
        *cuts,
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps({"/a": [[1, 2, 3, 4, 5], "0" * 64]}).encode(),
        *(json.dumps(one).encode() for one in documents),
    ]


def test_a_damaged_memo_of_hashes_costs_time_and_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "time", Clock(60))
    path, place = old(tmp_path / "file"), tmp_path / "hashes.json"
    memo = HashMemo(place)
    digest = memo.get(path)
    memo.save()
    for body in spoilt(place.read_bytes()):
        place.write_bytes(body)
        again = HashMemo(place)
        assert again.get(path) == digest, body[:80]
    place.unlink()
    place.mkdir()
    assert HashMemo(place).get(path) == digest
