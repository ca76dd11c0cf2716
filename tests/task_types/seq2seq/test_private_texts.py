"""No text of a row leaves the store where it must not: not with a registered version, and, with ``report.texts:
false``, not in a run's result."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from flows.branches.error_analysis import without_written_texts
from tasks.gate.unseen_rows import shared_rows, unseen_by_both
from tasks.scoring.evaluation import (
    PREDICTIONS,
    Evaluation,
    JudgedRows,
    agreement,
    bound_interval,
    paired_gain,
    read_evaluation,
    write_evaluation,
)
from tasks.scoring.predictions import Predictions, write_predictions
from tasks.task_types.seq2seq.answers import ANSWERS
from tasks.task_types.seq2seq.view import VIEW
from tasks.task_types.types import TASK_TYPES
from tests.task_types.seq2seq.tables import sentences

COUNT = 40
_, RIGHT = sentences(COUNT)
LABELS = np.asarray([f"{text}\x1e{text} indeed" if row % 4 == 0 else text for row, text in enumerate(RIGHT)])


def written(wrong: int) -> np.ndarray:
    """Return texts of which the first are wrong, each in its own way."""
    return np.asarray(
        [" ".join(text.split()[row % 3 :][::-1]) if row < wrong else text for row, text in enumerate(RIGHT)]
    )


def evaluation(folder: Path, wrong: int, *, kind: str | None = "seq2seq", first: int = 0) -> Evaluation:
    """Return the evaluation of a version as it is read back, of rows from one on; without a ``kind`` as judging sets
    have it, with texts."""
    (folder / "card").mkdir(parents=True)
    texts, ids = written(wrong)[first:], list(range(first, COUNT))
    write_predictions(folder / "card", [Predictions("validation", 0, ids, texts, {"written": texts})])
    digest = f"{first:064d}"
    rows = JudgedRows(
        "validation", ids, LABELS[first:], digest, sentences_N=[[row] for row in ids], learned=np.asarray([COUNT])
    )
    about = {"kind": kind} if kind else {}
    return read_evaluation(write_evaluation(folder / "evaluation", folder / "card", rows, about))


def test_a_version_travels_without_the_texts_and_is_compared_as_with_them(tmp_path: Path) -> None:
    ours, theirs = (evaluation(tmp_path / f"sealed-{wrong}", wrong) for wrong in (3, 20))
    raw, other = (evaluation(tmp_path / f"raw-{wrong}", wrong, kind=None) for wrong in (3, 20))
    table = pq.read_table(tmp_path / "sealed-3" / "evaluation" / PREDICTIONS)
    assert {"prediction", "label"} < {*table.column_names} and "written" not in table.column_names
    said = json.dumps(table.to_pylist())
    assert not any(word in said for text in RIGHT for word in text.split())
    assert raw.labels_N.tolist() == LABELS.tolist(), "what stays in the store keeps its texts"
    for metric in TASK_TYPES["seq2seq"].metrics:
        assert paired_gain(metric, ours, theirs) == paired_gain(metric, raw, other)
        for by in ("own", "retained", "difference"):
            found, same = (bound_interval(metric, *both, by, 0.95, 100) for both in ((ours, theirs), (raw, other)))
            assert found == same and found.low < found.value
    assert unseen_by_both(ours, theirs).whole
    later = evaluation(tmp_path / "later", 20, first=15)
    assert shared_rows(ours, later) == [(row, row - 15) for row in range(15, COUNT)]


def test_a_version_that_was_registered_with_its_texts_is_compared_with_one_without(tmp_path: Path) -> None:
    folder = tmp_path / "old" / "evaluation"
    evaluation(tmp_path / "old", 20, kind=None)
    stated = json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").write_text(json.dumps({**stated, "kind": "seq2seq"}))
    old, now = read_evaluation(folder), evaluation(tmp_path / "new", 20)
    assert old.labels_N.tolist() == now.labels_N.tolist()
    assert paired_gain("bleu", old, now).value == 0.0


@pytest.mark.parametrize("wrong", [0, 10])
def test_a_served_version_is_compared_with_its_evaluation(wrong: int, tmp_path: Path) -> None:
    then, now = evaluation(tmp_path / "then", 0), evaluation(tmp_path / "now", wrong, kind=None)
    assert agreement(then, now, "seq2seq") == pytest.approx((written(0) == written(wrong)).mean())


def test_a_result_without_texts_states_their_lengths_alone() -> None:
    ours, theirs = {"answer": written(20)}, {"answer": written(3)}
    found = {"apart": ANSWERS.apart(ours, theirs, LABELS, np.arange(COUNT), 4), "chrf": 0.5}
    hidden = without_written_texts(json.loads(json.dumps(found)))
    assert not any(word in json.dumps(hidden) for text in RIGHT for word in text.split())
    (before, after) = (one["apart"]["examples"]["surest"][0] for one in (found, hidden))  # type: ignore[index, call-overload]
    assert VIEW.answer(after["label"], ()) == VIEW.answer(before["label"], ()) != "nothing"
    assert VIEW.answer(after["student"]["answer"], ()) == VIEW.answer(before["student"]["answer"], ())
    assert after["id"] == before["id"] and hidden["chrf"] == 0.5
    assert without_written_texts({"chrf": 0.5}) == {"chrf": 0.5}
