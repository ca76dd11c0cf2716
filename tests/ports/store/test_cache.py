"""The cache of a bucket stays below its limit, and looks at all of its files only when it may be full."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tasks.ports.store import cache
from tasks.ports.store.artifacts import bytes_of, digest_of
from tasks.ports.store.cache import ROOM_NOTE, ArtifactCache

SIZE, LIMIT = 100, 1000


def added(to: ArtifactCache, number: int, *, size: int = SIZE, kept: bool = False) -> str:
    """Add an artifact of so many bytes as a process that then ends, unless it is ``kept`` in use."""
    content = f"{number}".zfill(size).encode()
    digest = digest_of({"a.txt": {"size": size, "sha256": hashlib.sha256(content).hexdigest()}})
    folder = to.root / "temporary" / f"new-{number}"
    folder.mkdir()
    (folder / "a.txt").write_bytes(content)
    to.put(digest, folder)
    os.utime(to.path(digest), (number, number))
    if not kept:
        os.close(to.held.pop(digest))
    return digest


def total(of: ArtifactCache) -> int:
    return bytes_of(of.root / "objects")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose files were looked at."""
    found = list[Path]()
    monkeypatch.setattr(cache, "bytes_of", lambda folder: found.append(folder) or bytes_of(folder))
    return found


def test_a_cache_with_room_looks_at_what_is_new_alone(tmp_path: Path, measured: list[Path]) -> None:
    added(ArtifactCache(tmp_path, LIMIT), 0)
    measured.clear()
    for number in range(1, 10):  # each of them another process
        added(ArtifactCache(tmp_path, LIMIT), number)
    assert len(measured) == 9 and total(ArtifactCache(tmp_path, LIMIT)) == LIMIT
    added(ArtifactCache(tmp_path, LIMIT), 10)
    assert len(measured) == 10 + 11


def test_processes_that_take_turns_stay_below_the_limit_and_remove_the_oldest(tmp_path: Path) -> None:
    both = [ArtifactCache(tmp_path, LIMIT) for _ in range(2)]
    names = list[str]()
    for number in range(60):
        names.append(added(both[number % 2], number, size=50 + 37 * number % 200))
        assert total(both[0]) <= LIMIT
    there = [name for name in names if both[0].path(name).exists()]
    assert there == names[-len(there) :] and 0 <= both[0].room() <= LIMIT - total(both[0])


def test_artifacts_in_use_are_kept_above_the_limit(tmp_path: Path) -> None:
    given = ArtifactCache(tmp_path, LIMIT)
    names = [added(given, number, kept=True) for number in range(15)]
    assert all(given.path(name).exists() for name in names) and given.room() == LIMIT - 15 * SIZE
    for name in names:
        os.close(given.held.pop(name))
    added(given, 15)
    assert total(given) == LIMIT


@pytest.mark.parametrize("note", [None, "", "1000", "nonsense here", "2000 900"], ids=repr)
def test_without_a_note_of_this_limit_all_is_looked_at(note: str | None, tmp_path: Path) -> None:
    given = ArtifactCache(tmp_path, 2000)
    for number in range(15):
        added(given, number)
    smaller = ArtifactCache(tmp_path, LIMIT)
    (tmp_path / ROOM_NOTE).unlink() if note is None else (tmp_path / ROOM_NOTE).write_text(note)
    added(smaller, 15)
    assert total(smaller) == LIMIT


def test_a_killed_process_and_removals_by_hand_leave_no_room_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ArtifactCache(tmp_path, LIMIT)
    first = added(given, 0)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(ArtifactCache, "remove_damaged", killed)  # behind the new artifact's place in the cache
        with pytest.raises(KeyboardInterrupt):
            added(given, 1)
    assert given.room() == LIMIT - total(given) == 800
    given.remove(given.path(first))
    assert given.room() == 800 < LIMIT - total(given)
    for number in range(2, 20):
        added(given, number)
        assert total(given) <= LIMIT
