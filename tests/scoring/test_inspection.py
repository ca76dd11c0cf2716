"""The look behind the scores: against scikit-learn, by hand, and where it must not break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, mean_absolute_error, root_mean_squared_error

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.ports.rows.row_files import StoredRows
from tasks.scoring.error_analysis import (
    analyse_classes,
    analyse_values,
    calibration,
    compare_classes,
    compare_values,
    inspect_answers,
    read_classes,
)
from tasks.scoring.predictions import Predictions, write_predictions

DRAW = np.random.default_rng(0)


def rows_of(labels: Any) -> StoredRows:
    count = len(labels)
    return StoredRows(list(range(100, 100 + count)), ["a text"] * count, None, list(labels))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes_agree_with_scikit_learn(classes: int) -> None:
    logits_NC, labels_N = DRAW.normal(size=(400, classes)) * 2, DRAW.integers(0, classes, 400)
    said = read_classes(logits_NC)
    found, shares_NC = analyse_classes(said, labels_N, 10), np.exp(said["logp"])
    assert found["confusion"] == confusion_matrix(labels_N, logits_NC.argmax(-1), labels=range(classes)).tolist()
    assert found["nll"] == pytest.approx(log_loss(labels_N, shares_NC, labels=list(range(classes))))
    assert found["brier"] == pytest.approx(
        brier_score_loss(labels_N, shares_NC, labels=list(range(classes)), scale_by_half=False)
    )


def test_the_reliability_diagram_is_scikit_learns() -> None:
    certainty_N = DRAW.uniform(0.3, 0.999, 1000)
    right_N = DRAW.uniform(size=1000) < certainty_N
    found = calibration(certainty_N, right_N, 10)
    right_K, sure_K = calibration_curve(right_N, certainty_N, n_bins=10)
    assert [one["accuracy"] for one in found["bins"]] == pytest.approx(right_K)
    assert [one["certainty"] for one in found["bins"]] == pytest.approx(sure_K)
    assert sum(one["rows"] for one in found["bins"]) == 1000 and found["ece"] < 0.05


def test_the_calibration_error_by_hand() -> None:
    """Three rows: two at 0.9 of which one is right, one at 0.6 that is right: 2/3 of 0.4 and 1/3 of 0.4."""
    found = calibration(np.asarray([0.9, 0.9, 0.6]), np.asarray([True, False, True]), 10)
    assert found["ece"] == pytest.approx(0.4) and [one["rows"] for one in found["bins"]] == [1, 2]
    assert calibration(np.asarray([1.0]), np.asarray([True]), 10)["bins"][0]["high"] == 1.0, (
        "full certainty belongs to the last bin"
    )
    assert calibration(np.asarray([]), np.asarray([], dtype=bool), 10) == {"ece": None, "bins": []}


def test_extreme_logits_have_finite_figures() -> None:
    found = analyse_classes(read_classes(np.asarray([[1e4, -1e4], [1e4, -1e4]])), np.asarray([0, 1]), 10)
    assert found["nll"] == pytest.approx(1e4) and np.isfinite(found["brier"])
    json.dumps(found, allow_nan=False)


def test_who_is_right_where_by_hand() -> None:
    """Rows: both right; only the student; only the teacher (twice, once surer); both wrong with one answer."""
    ours = read_classes(np.asarray([[2.0, 0], [2, 0], [0, 1], [0, 3], [0, 2]]))
    theirs = read_classes(np.asarray([[2.0, 0], [0, 2], [2, 0], [2, 0], [0, 2]]))
    found = compare_classes(ours, theirs, rows_of([0, 0, 0, 0, 0]), 6)
    assert found["counts"] == {
        "rows": 5,
        "differ": 3,
        "both_right": 1,
        "only_student": 1,
        "only_teacher": 2,
        "both_wrong": 1,
    }
    assert [one["id"] for one in found["examples"]["surest"]] == [101, 103, 102], (
        "the less certain of the two decides, and of equal ones the first row"
    )
    (corrected,) = found["examples"]["corrected"]
    assert corrected["id"] == 101 and corrected["student"] == {
        "answer": 0,
        "probability": pytest.approx(0.8808, abs=1e-4),
    }
    assert corrected["teacher"]["answer"] == 1 and corrected["label"] == 0


def test_the_examples_do_not_depend_on_the_order_of_the_rows() -> None:
    ours, theirs, labels_N = (
        DRAW.normal(size=(60, 2)).round(1),
        DRAW.normal(size=(60, 2)).round(1),
        DRAW.integers(0, 2, 60),
    )
    order = DRAW.permutation(60)
    straight, mixed = (
        compare_classes(
            read_classes(ours[at]),
            read_classes(theirs[at]),
            StoredRows((100 + at).tolist(), ["a text"] * 60, None, labels_N[at].tolist()),
            5,
        )
        for at in (np.arange(60), order)
    )
    assert straight == mixed


def test_values_agree_with_scikit_learn() -> None:
    true_N = DRAW.uniform(0, 5, 500)
    said_N = true_N + DRAW.normal(0.1, 0.5, 500)
    found = analyse_values({"value": said_N}, true_N, 10)
    assert found["mae"] == pytest.approx(mean_absolute_error(true_N, said_N)) and found["rmse"] == pytest.approx(
        root_mean_squared_error(true_N, said_N)
    )
    assert (
        found["bias"] == pytest.approx((said_N - true_N).mean())
        and sum(bar["rows"] for bar in found["residuals"]) == 500
    )
    assert len(found["points"]) == 300 and found["points"][0] == [round(true_N[0], 4), round(said_N[0], 4)]


def test_values_part_where_they_lie_apart() -> None:
    found = compare_values(
        {"value": np.asarray([1.0, 2, 3])}, {"value": np.asarray([1.0, 4, 2.5])}, rows_of([1.0, 2, 2]), 6
    )
    assert found["counts"] == {"rows": 3, "student_nearer": 1, "teacher_nearer": 1} and found["gap"] == pytest.approx(
        2.5 / 3
    )
    assert [one["id"] for one in found["examples"]["surest"]] == [101, 102] and [
        one["id"] for one in found["examples"]["corrected"]
    ] == [101]


def card(folder: Path, logits: list[list[float]], ids: list[int]) -> Path:
    """Write a scorecard's answers: a second seed that says the contrary, in another order, must not be read."""
    folder.mkdir()
    logits_NC = np.asarray(logits, dtype=np.float32)
    given = [
        ("validation", 0, ids[::-1], logits_NC[::-1]),
        ("validation", 1, ids, -logits_NC),
        ("holdout", 0, [9], 0 * logits_NC[:1]),
    ]
    write_predictions(
        folder, [Predictions(split, seed, rows, said.argmax(-1), said) for split, seed, rows, said in given]
    )
    return folder


def job(place: Path, rows: Path, **cards: Path) -> Job:
    inputs = {name: str(folder) for name, folder in {"rows": rows, **cards}.items()}
    knobs = {"kind": "classification", "split": "validation", "bins": 10, "examples": 2}
    place.mkdir(exist_ok=True)
    return Job({"job": "inspect", "knobs": knobs, "inputs": inputs, "output": str(place)}, silent=True)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    columns = {
        "id": [4, 5, 6],
        "text": ["one", "<b>two</b>", "three"],
        "pair": pa.nulls(3, pa.string()),
        "label": [0, 1, 1],
    }
    pq.write_table(pa.table(columns), folder / "validation.parquet")
    return folder


def test_the_job_reads_the_first_seed_and_keeps_the_texts_that_are_shown(tmp_path: Path, rows: Path) -> None:
    teacher, student = (
        card(tmp_path / "t", [[1.0, 0], [0, 1], [0, 1]], [4, 5, 6]),
        card(tmp_path / "s", [[1.0, 0], [1, 0], [0, 1]], [4, 5, 6]),
    )
    facts = inspect_answers(job(tmp_path / "out", rows, card=student, teacher=teacher))
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (facts["rows"], facts["shown"], facts["ece"]) == (3, 1, found["ece"]) and found["confusion"] == [
        [1, 0],
        [1, 1],
    ]
    assert found["apart"]["examples"]["surest"][0]["id"] == 5
    assert json.loads((tmp_path / "out" / "texts.json").read_text()) == {"5": ["<b>two</b>", None]}
    assert "two" not in json.dumps(found) + json.dumps(facts), "texts are in one file alone"


def test_the_teacher_parts_from_nobody(tmp_path: Path, rows: Path) -> None:
    inspect_answers(job(tmp_path / "out", rows, card=card(tmp_path / "t", [[1.0, 0], [0, 1], [0, 1]], [4, 5, 6])))
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (
        found["confusion"] == [[1, 0], [0, 2]]
        and "apart" not in found
        and json.loads((tmp_path / "out" / "texts.json").read_text()) == {}
    )


def test_the_same_answers_leave_the_same_bytes(tmp_path: Path, rows: Path) -> None:
    cards = [card(tmp_path / name, [[1.0, 0], [0, 1], [0.2, 1]], [4, 5, 6]) for name in ("t", "s")]
    for name in ("first", "second"):
        inspect_answers(job(tmp_path / name, rows, card=cards[1], teacher=cards[0]))
    for file in ("inspection.json", "texts.json"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_other_rows_are_refused(tmp_path: Path, rows: Path) -> None:
    with pytest.raises(DataError, match="predictions for other rows"):
        inspect_answers(job(tmp_path / "out", rows, card=card(tmp_path / "t", [[1.0, 0]], [4])))
