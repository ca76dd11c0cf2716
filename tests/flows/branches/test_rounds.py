"""Iterative pruning on a tiny real model: rounds are stages, so a stopped run goes on with the next one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.results.run import RunResult
from tasks.training.shrinking import rounds
from tests.families import write_tiny
from tests.flows.branches.test_makers import chain
from tests.flows.test_compress import FAST, executed

NEURONS = {
    "name": "neurons",
    "from": "teacher",
    "by": "neuron-pruning",
    "keep": 0.25,
    "rows": 40,
    "rounds": 3,
    "between": FAST,
}


@contextmanager
def stopped_in_round(number: int) -> Iterator[None]:
    """Let a round of every candidate fail."""
    whole = rounds.numbers_of_round

    def fail(job: Any, knobs: Any, model: Any) -> tuple[int, int]:
        if knobs.round == number:
            raise RuntimeError("the machine stops here")
        return whole(job, knobs, model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "numbers_of_round", fail)
        yield


def rows_of(result: dict[str, Any]) -> dict[str, Any]:
    return {row.name: row for row in RunResult.model_validate(result).models}


def test_rounds_resume_at_the_next_one_with_equal_digests(
    prefect_server: None, engines_here: None, tiny_rows: Path, tmp_path: Path
) -> None:
    bert = write_tiny("bert", tmp_path / "whole")
    shutil.copytree(bert, tmp_path / "stopped")  # a registered model belongs to one store, and is named by this folder
    whole, stopped = (Home(tmp_path / f"home-{name}").create() for name in ("whole", "stopped"))
    recipe, other = (chain(tmp_path / name, tiny_rows, NEURONS) for name in ("whole", "stopped"))
    first = run_recipe(recipe, home=whole)
    rows = rows_of(first)
    assert rows["neurons"].note == "8 of 13 neurons in each layer, in round 3 of 3, by taylor"  # 32, 20, 13, 8
    assert rows["neurons"].role == "pruned" and rows["neurons"].making == "made from teacher by neuron-pruning"
    by_label = [(one["name"], one["label"]) for one in first["stages"] if one["label"].startswith("neurons")]
    trained = {label for name, label in by_label if name == "distill-predictions"}
    pruned = {label for name, label in by_label if name == "prune-in-rounds"}
    assert trained == {"neurons-round-1", "neurons-round-2"} and pruned == {*trained, "neurons"}
    assert executed(run_recipe(recipe, home=whole)) == set()

    with stopped_in_round(3), pytest.raises(Exception, match="machine stops here"):
        run_recipe(other, home=stopped)
    second = run_recipe(other, home=stopped)
    done = {(one["name"], one["label"]) for one in second["stages"] if one["cache"] == "hit"}
    assert {("prune-in-rounds", "neurons-round-2"), ("distill-predictions", "neurons-round-2")} <= done
    assert ("prune-in-rounds", "neurons") not in done
    digests = [{row.name: row.checkpoint for row in rows_of(result).values()} for result in (first, second)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rounds": 1}, "candidate neurons is trained between rounds, and has one round; set rounds: 3"),
        ({"rounds": 21}, "rounds"),
        ({"between": {**FAST, "choose_by": "mse"}}, "candidates.neurons.between.choose_by is mse"),
    ],
)
def test_rounds_that_cannot_work_are_refused(
    changes: dict[str, Any], said: str, tiny_bert: Path, tiny_rows: Path
) -> None:
    with pytest.raises(ValidationError, match=said):
        chain(tiny_bert, tiny_rows, {**NEURONS, **changes})
