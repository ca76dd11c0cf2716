"""What was found out once is not found out again, and nothing wrong is ever remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.ports import memo
from tasks.ports.memo import remembered


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path))
    return tmp_path


class Work:
    """Counts how often it is done."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.done = answer, 0

    def __call__(self) -> Any:
        self.done += 1
        return self.answer


def test_it_is_done_once_for_the_same_parts_and_again_for_others(home: Path) -> None:
    work = Work({"points": [[1, 0.5], [2, None]]})
    assert [remembered("kind", ["a", 1], work) for _ in range(3)] == [work.answer] * 3 and work.done == 1
    remembered("kind", ["a", 2], work)
    remembered("other", ["a", 1], work)
    assert work.done == 3


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped"])
def test_what_is_damaged_is_found_out_anew(home: Path, damage: str) -> None:
    work = Work("abc")
    remembered("kind", [1], work)
    (place,) = (home / "cache" / "kind").iterdir()
    kept = place.read_bytes()
    place.write_bytes({"cut": kept[:-2], "empty": b"", "flipped": kept.replace(b"abc", b"abd")}[damage])
    assert remembered("kind", [1], work) == "abc" and work.done == 2
    assert remembered("kind", [1], work) == "abc" and work.done == 2


def test_a_home_that_takes_nothing_costs_only_time(home: Path) -> None:
    (home / "cache").write_text("a file where the folder would be")
    work = Work(1)
    assert remembered("kind", [1], work) == remembered("kind", [1], work) == 1 and work.done == 2


def test_there_is_a_bound_and_the_oldest_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MOST", 10)
    for number in range(25):
        remembered("kind", [number], Work(number))
    assert len(list((home / "cache" / "kind").iterdir())) <= 10
    newest = Work(24)
    assert remembered("kind", [24], newest) == 24 and newest.done == 0


def test_what_fails_is_not_remembered(home: Path) -> None:
    def fail() -> None:
        raise ValueError("no answer")

    with pytest.raises(ValueError):
        remembered("kind", [1], fail)
    assert remembered("kind", [1], Work(1)) == 1
