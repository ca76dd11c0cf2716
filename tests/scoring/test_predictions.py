"""A scorecard's answers: read back by split and seed, in the order that is asked for, and refused for other rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.errors import DataError
from tasks.scoring.predictions import Predictions, predictions_of, read_predictions, write_predictions

LOGITS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def answers(split: str, seed: int, ids: list[int]) -> Predictions:
    logits_NC = LOGITS[: len(ids)] + seed
    return Predictions(split, seed, ids, logits_NC.argmax(-1), {"logits": logits_NC})


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    given = [answers("validation", seed, [4, 2, 9, 1]) for seed in range(2)] + [answers("holdout", 0, [5, 6])]
    write_predictions(tmp_path, given)
    for ours, theirs in zip(read_predictions(tmp_path), given, strict=True):
        assert (ours.split, ours.seed, ours.ids) == (theirs.split, theirs.seed, theirs.ids)
        assert np.array_equal(ours.predictions_N, theirs.predictions_N.astype(float))
        assert {*ours.outputs} == {"logits"} and ours.outputs["logits"].dtype == np.float32
        assert np.array_equal(ours.outputs["logits"], theirs.outputs["logits"])


def test_a_model_s_answers_come_in_the_order_of_the_rows(tmp_path: Path) -> None:
    write_predictions(tmp_path, [answers("validation", seed, [4, 2, 9, 1]) for seed in range(2)])
    found = predictions_of(tmp_path, "validation", [1, 2, 4, 9])
    assert (
        found.seed == 0 and found.ids == [1, 2, 4, 9] and np.array_equal(found.outputs["logits"], LOGITS[[3, 1, 0, 2]])
    )


def test_every_output_is_a_column_by_its_name(tmp_path: Path) -> None:
    outputs = {"start": LOGITS, "end": LOGITS[:, ::2] + 1}
    write_predictions(tmp_path, [Predictions("validation", 0, [4, 2, 9, 1], LOGITS.argmax(-1), outputs)])
    (found,) = read_predictions(tmp_path)
    assert {name: values.tolist() for name, values in found.outputs.items()} == {
        name: values.tolist() for name, values in outputs.items()
    }


@pytest.mark.parametrize(
    ("split", "ids"), [("validation", [4, 2]), ("validation", [4, 2, 9, 1, 7]), ("holdout", [4, 2, 9, 1])]
)
def test_answers_to_other_rows_are_refused(tmp_path: Path, split: str, ids: list[int]) -> None:
    write_predictions(tmp_path, [answers("validation", 0, [4, 2, 9, 1])])
    with pytest.raises(DataError, match=f"contains predictions for other rows of {split} than the recipe's"):
        predictions_of(tmp_path, split, ids)


def test_a_row_that_is_answered_twice_is_refused(tmp_path: Path) -> None:
    write_predictions(tmp_path, [answers("validation", 0, [4, 4, 2])])
    with pytest.raises(DataError, match="predictions for other rows"):
        predictions_of(tmp_path, "validation", [4, 2])
