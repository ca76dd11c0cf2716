"""One round of iterative pruning: every round removes the same share, and the last leaves what one cut would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.architectures.known_architectures import shape_of
from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.recipe.makers.slices import PruneRoundSlice
from tasks.training.shrinking.rounds import prune_round
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier

KNOBS: dict[str, Any] = {"task_type": "classification", "importance": "taylor", "rows": 40, "max_length": 32}


def round_of(output: Path, knobs: dict[str, Any], **inputs: Path) -> dict[str, Any]:
    """Run one round and return its facts."""
    output.mkdir()
    given = PruneRoundSlice(**{**KNOBS, **knobs}).model_dump(mode="json")
    order = {"job": "prune-round", "knobs": given, "output": str(output)}
    return prune_round(Job({**order, "inputs": {name: str(folder) for name, folder in inputs.items()}}, silent=True))


def shape_in(folder: Path) -> dict[str, int | None]:
    """Return the shape of a written model."""
    return shape_of(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize(
    ("part", "knob", "keep", "numbers"),
    [("neurons", "feed_forward", 0.25, [20, 13, 8]), ("heads", "heads", 0.25, [3, 2, 1])],
)
def test_rounds_remove_equal_shares_and_end_at_the_share_asked_for(
    part: str, knob: str, keep: float, numbers: list[int], rows: Path, tmp_path: Path
) -> None:
    place = first = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    for number, left in enumerate(numbers, 1):
        knobs = {"part": part, "keep": keep, "round": number, "rounds": 3}
        facts = round_of(tmp_path / str(number), knobs, base=place, first=first, rows=rows)
        place = tmp_path / str(number)
        assert shape_in(place)[knob] == facts[part] == left and f"round {number} of 3" in facts["note"]
        hidden, heads = shape_in(place)["hidden"], shape_in(place)["heads"]
        assert hidden is not None and heads is not None and hidden == 4 * heads


def test_a_round_that_would_remove_nothing_is_refused_in_a_sentence(rows: Path, tmp_path: Path) -> None:
    whole = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "whole")
    knobs = {"part": "neurons", "keep": 0.9, "round": 1, "rounds": 20}
    with pytest.raises(RecipeError, match=r"keep: 0.99\d* of 32 neurons is 32"):
        round_of(tmp_path / "a", knobs, base=whole, first=whole, rows=rows)
    round_of(tmp_path / "b", {**knobs, "rounds": 2, "round": 2}, base=whole, first=whole, rows=rows)
    with pytest.raises(RecipeError, match="round 2 of 2 to keep: 0.9 would remove none of 29 neurons in each layer"):
        round_of(tmp_path / "c", {**knobs, "rounds": 2, "round": 2}, base=tmp_path / "b", first=whole, rows=rows)
