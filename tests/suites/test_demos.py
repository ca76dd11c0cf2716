"""One story on every machine: the demo from an empty home, on one core and on two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.suites.demos import Told, differences, tell

GOOD = Told(
    0,
    2,
    1.0,
    "distilled",
    {"distilled": "champion"},
    {"without-teacher": 9.0, "without-longer": 1.0},
    {"distilled": "a", "teacher": "b"},
    (),
)


def test_other_bytes_and_another_story_are_named() -> None:
    assert (
        differences([GOOD, replace(GOOD, cores=1), replace(GOOD, seed=1, digests={"distilled": "c", "teacher": "d"})])
        == []
    )
    assert differences([GOOD, replace(GOOD, cores=1, digests={"distilled": "x", "teacher": "b"})]) == [
        "seed 0: distilled have other bytes on 2 and 1 cores"
    ]
    assert differences([replace(GOOD, problems=("None is champion, not distilled",))]) == [
        "seed 0, 2 cores: None is champion, not distilled"
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demo_tells_one_story_on_one_core_and_on_two(tmp_path: Path) -> None:
    assert not differences([tell(0, cores, tmp_path) for cores in (2, 1)])
