"""One story on every machine: the demo from an empty home, on one core, on two and on four."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flows.run.demo import last_words
from tests.flows.run.test_demonstration import demo
from tests.suites.chain import COMPILER
from tests.suites.demos import Told, differences, read, seen_cores, tell

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
    assert differences([GOOD, replace(GOOD, cores=1, gates={"distilled": "refused"})]) == [
        "seed 0: the gate's verdicts differ on 2 and 1 cores"
    ]
    assert differences([replace(GOOD, problems=("None is champion, not distilled",))]) == [
        "seed 0, 2 cores: None is champion, not distilled"
    ]


def test_a_last_sentence_that_lacks_a_score_is_named(tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    texts.touch()
    known = demo(0.986, 0.898, 0.975)
    models = [{**model.model_dump(), "checkpoint": "a", "gate": "champion"} for model in known.models]
    result = {
        **known.model_dump(),
        "models": models,
        "promotion": {"champion": {"candidate": "distilled", "version": "1"}},
        "texts": str(texts),
    }
    for words, problems in (
        (last_words([known]), ()),
        ("It has 0.986 and 0.898.", ("its last sentence lacks 0.975",)),
    ):
        assert read({**result, "last_words": words}, words, 0, 2, 1.0).problems == problems


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_a_process_sees_as_many_cores_as_it_is_told(tmp_path: Path) -> None:
    program = "import os; from tasks.ports.machine import available_cores; print(available_cores(), os.cpu_count())"
    many = 2 * (os.cpu_count() or 1)
    environment = os.environ | seen_cores(many, tmp_path)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(many)] * 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demo_tells_one_story_on_one_core_on_two_and_on_four(tmp_path: Path) -> None:
    assert not differences([tell(0, cores, tmp_path) for cores in (4, 2, 1)])
