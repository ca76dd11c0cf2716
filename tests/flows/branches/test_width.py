"""A chain with a narrower model, on a tiny real model: what the run says of it, and what is refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.errors import RecipeError
from tasks.methods.pruning.widths import heads_to_keep
from tasks.preflight import check_students
from tasks.recipe.makers.shrinking import NarrowedCandidate
from tasks.results.run import RunResult
from tests.families import write_tiny
from tests.flows.branches.test_makers import chain
from tests.flows.test_compress import FAST, executed

NARROW = {"name": "narrow", "from": "teacher", "by": "width-pruning", "keep": 0.5, "rows": 40}
INNER = {**FAST, "matching": {"layer_map": "uniform", "projection": "shared", "attention": 0}}
FURTHER = {"name": "further", "from": "narrow", "by": "distillation", "intermediate": INNER, "prediction": FAST}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


def test_a_narrower_model_is_distilled_and_a_second_run_computes_nothing(
    prefect_server: None, engines_here: None, home: Home, tiny_rows: Path, tmp_path: Path
) -> None:
    recipe = chain(write_tiny("bert", tmp_path / "bert"), tiny_rows, NARROW, FURTHER)
    result: dict[str, Any] = run_recipe(recipe, home=home)
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    narrow, further, teacher = rows["narrow"], rows["further"], rows["teacher"]
    assert narrow.role == "narrowed" and narrow.making == "made from teacher by width-pruning"
    assert narrow.note == "width 8 of 16 and 2 of 4 heads in each layer, by taylor"
    assert further.parameters == narrow.parameters and (narrow.parameters or 0) < 0.6 * (teacher.parameters or 0)
    assert (narrow.flops or 0) < (teacher.flops or 0)
    assert {entry["candidate"] for entry in result["registered"]} == {"narrow", "further"}
    assert executed(run_recipe(recipe, home=home)) == set()


@pytest.mark.parametrize(
    ("matching", "said"),
    [
        ({"projection": "none", "attention": 0}, "projection none needs equal widths, here 8 and 16"),
        ({"projection": "shared"}, "heads"),
    ],
)
def test_inner_signals_that_widths_do_not_allow_are_refused_before_anything_runs(
    matching: dict[str, Any], said: str, tiny_rows: Path, tmp_path: Path
) -> None:
    bert = write_tiny("bert", tmp_path / "bert")
    recipe = chain(bert, tiny_rows, NARROW, {**FURTHER, "intermediate": {**FAST, "matching": matching}})
    with pytest.raises(Exception, match=said) as refused:
        check_students(recipe, bert, {})
    assert refused.type.__module__ == RecipeError.__module__


@pytest.mark.parametrize("keep", [0.1, 1 / 3, 0.5, 0.667])
def test_the_plan_knows_the_width_that_the_engine_makes(keep: float) -> None:
    planned = NarrowedCandidate.model_validate({**NARROW, "keep": keep})
    assert planned.width_and_heads(768, 12) == (64 * heads_to_keep(12, keep), heads_to_keep(12, keep))
