"""Cuts of real recipes are recipes, and a run that takes longer or more energy than a kept one is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.run.recipe_file import load_recipe
from tests.benchmarks.results import keep_results, slower_lines
from tests.benchmarks.setting import machine
from tests.benchmarks.whole.recipes import CUTS, Spent, figures_of, only_on, sets_of


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", CUTS)
def test_a_cut_recipe_is_a_recipe_with_fewer_steps(name: str, quick: bool, tmp_path: Path) -> None:
    sets = sets_of(name, tmp_path, quick)
    cut, real = load_recipe(name, [f"{knob}={value}" for knob, value in sets.items()]), load_recipe(name)
    assert str(cut.teacher.model).startswith(str(tmp_path)) and str(cut.corpus.source).startswith(str(tmp_path))
    assert cut.corpus.max_tokens < real.corpus.max_tokens
    assert [student.name for student in cut.new_students] == [student.name for student in real.new_students]
    assert cut.task_distillation.prediction.steps is not None


def test_a_whole_run_that_became_slower_is_named_by_its_clock(tmp_path: Path) -> None:
    def result(spent: Spent) -> dict[str, object]:
        figures = [figure.as_json() for figure in figures_of("tinybert-4", "1 core", [spent])]
        told = {"benchmark": "end-to-end", "threads": 1, "quick": False, "date": "2026-01-31", "machine": machine()}
        return {**told, "figures": figures}

    keep_results([result(Spent(600.0, 500.0, 9000.0))], tmp_path, replace=False)
    assert slower_lines([result(Spent(650.0, 400.0, 9500.0))], tmp_path) == []
    lines = slower_lines([result(Spent(720.0, 500.0, 12000.0))], tmp_path)
    assert [line.partition(" end to end")[2] for line in lines] == [
        ", 1 core (limbeck run against nothing, wall): 12 min, and 10 min on 2026-01-31",
        ", 1 core (limbeck run against nothing, energy): 12 kJ, and 9 kJ on 2026-01-31",
    ]
    assert len(figures_of("tinybert-4", "1 core", [Spent(1.0, 1.0, None)])) == 2, "unknown energy has no figure"


def test_only_what_is_started_inside_has_one_core() -> None:
    before = os.sched_getaffinity(0)
    with only_on(sorted(before)[:1]):
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, str(len(os.sched_getaffinity(0))).encode())
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 9) == b"1" and os.sched_getaffinity(0) == before
