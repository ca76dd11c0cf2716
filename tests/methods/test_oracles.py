"""No case of the shared oracles is passed over: each is read by a test, or named as not built."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.methods.not_built import not_built
from tests.methods.oracles import READ, ROOT, Oracle, cases_in, reads, shared_file

TESTS = ROOT / "tests"


def readers() -> set[tuple[str, str]]:
    """Return the cases that tests say they read: all files that use oracles are loaded."""
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__) and "@reads(" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return set(READ)


def test_every_case_is_read_or_named_as_not_built() -> None:
    folder = shared_file("oracles")
    there = {
        (path.stem, name)
        for path in folder.glob("*.json")
        for name in cases_in(json.loads(path.read_text(encoding="utf-8")))
    }
    read, named = readers(), set(not_built())
    assert there - read - named == set(), "read by no test; compare the product with them, or name them in not_built.py"
    assert (read | named) - there == set(), "no such case"


def test_a_case_that_is_read_is_not_called_not_built() -> None:
    assert readers() & set(not_built()) == set(), "take them out of not_built.py"
    assert [case for case, times in Counter(not_built()).items() if times > 1] == []


def test_who_says_that_a_case_is_read_must_open_it() -> None:
    before = set(READ)

    @reads("pkd", "layer_map")
    def idle(oracle: Oracle) -> None:
        pass

    READ.clear()
    READ.update(before)
    with pytest.raises(AssertionError, match="said to be read, and was not opened"):
        idle(oracle=Oracle("pkd", "layer_map"))
