"""Predictions and their figures: the same promises for every task type, and each type by hand and by scikit-learn."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, confusion_matrix, log_loss, mean_absolute_error, root_mean_squared_error

from tasks.errors import DataError
from tasks.metrics.metrics import METRICS
from tasks.task_types.answers import ANSWERS
from tasks.task_types.common_answers import reliability
from tasks.task_types.next_words.document import NATS, summed_nats
from tasks.task_types.spans.passage import answer_of_passage
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.units import SUMMARY, concluded_rows, ragged_array

ONE_ANSWER = [name for name, one in TASK_TYPES.items() if not one.has_units]
"""Types whose rows have one answer; the tests of ``tokens/`` ask the others the same."""
OF_WORDS = [name for name, one in TASK_TYPES.items() if one.keeps_words and not one.writes]
"""Types whose predictions are likelihoods of documents, and whose labels count what a document consists of."""
DRAW = np.random.default_rng(0)
CLASSES, VALUES = ANSWERS["classification"], ANSWERS["regression"]
WIDTHS = {"batch": 80, "tokens": 7, "options": 7, "candidates": 7, "classes": 3, "one": 1, "width": 6}
"""The length of each axis of an output here."""


def read(logits_NC: np.ndarray) -> dict[str, np.ndarray]:
    return CLASSES.read({"logits": logits_NC})


def drawn(name: str, seed: int) -> dict[str, np.ndarray]:
    """Draw outputs of a task type, of the shapes that its data states."""
    draw = np.random.default_rng(seed)
    found = {
        one.name: draw.normal(size=[WIDTHS[axis] for axis in one.axes]).astype(np.float32)
        for one in TASK_TYPES[name].outputs
    }
    if not TASK_TYPES[name].has_units:
        return found
    if TASK_TYPES[name].reads_units_apart:  # each unit has one number
        found = {one: values[..., None] for one, values in found.items()}
    lengths_N = [1 + row % WIDTHS["tokens"] for row in range(WIDTHS["batch"])]
    logits = {
        name: ragged_array([one[:many] for one, many in zip(values, lengths_N, strict=True)])
        for name, values in found.items()
    }
    if name == "seq2seq":
        texts = [" ".join(draw.choice(["good", "bad", "film", "song"], many)) for many in lengths_N]
        return {"written": np.asarray(texts, dtype=str)}
    if name in OF_WORDS:
        return {**logits, **concluded_rows([summed_nats({NATS: np.abs(row)}, row, "", {}) for row in logits[NATS]])}
    if name != "spans":
        return logits
    words = [" ".join("abcdefg"[place] * 3 for place in draw.permutation(7)) for _ in range(WIDTHS["batch"])]
    places = [
        np.asarray([(SUMMARY, SUMMARY, 0), *((4 * at, 4 * at + 3, 0) for at in range(many - 1))]) for many in lengths_N
    ]
    rows = zip(logits["start_logits"], logits["end_logits"], places, words, strict=True)
    passages = [
        answer_of_passage({"start_logits": start, "end_logits": end}, places_U3, text, {})
        for start, end, places_U3, text in rows
    ]
    return {**logits, **concluded_rows(passages)}


def truth(name: str) -> np.ndarray:
    """Return the labels of 80 rows that perfect predictions are equal to: every passage stands at the first place. Of
    documents they are counts."""
    if name in OF_WORDS:
        return np.asarray([f"{row + 1} {9 * row + 9} {5.0 * row}" for row in range(80)])
    return np.ones(80) if name == "retrieval" else ANSWERS[name].decide(drawn(name, 9))


# --- every task type --------------------------------------------------------------------------------------------------


def test_every_task_type_has_answers_and_its_metrics() -> None:
    assert {*ANSWERS} == {*TASK_TYPES}
    for name, answers in ANSWERS.items():
        assert answers.outputs == TASK_TYPES[name].outputs
        assert {*answers.metrics} == {*TASK_TYPES[name].metrics} and TASK_TYPES[name].headline in answers.metrics
        assert all(metric is METRICS[one] for one, metric in answers.metrics.items())


@pytest.mark.parametrize("name", TASK_TYPES)
def test_a_model_that_is_asked_twice_is_in_full_agreement_with_itself(name: str) -> None:
    answers, labels_N = ANSWERS[name], truth(name)
    once_N, again_N, other_N = (answers.decide(drawn(name, seed)) for seed in (1, 1, 2))
    assert once_N.shape == (80,) and once_N.dtype.kind == np.dtype(answers.dtype).kind
    assert answers.unchanged(once_N, again_N).all() and not answers.unchanged(once_N, other_N).all()
    assert answers.agreement(once_N, again_N) == pytest.approx(1) and answers.agreement(once_N, other_N) < 0.9
    for metric in answers.metrics.values():
        assert np.isfinite(metric(once_N, labels_N))


@pytest.mark.parametrize("name", ONE_ANSWER)
def test_only_better_than_guessing_reaches_the_floor(name: str) -> None:
    answers, labels_N = ANSWERS[name], truth(name)
    perfect, chance = (answers.guess(found_N, labels_N) for found_N in (labels_N, answers.decide(drawn(name, 1))))
    fact = answers.floor.fact
    assert perfect[fact] == pytest.approx(1) and perfect[fact] > answers.floor.least(perfect)
    assert chance[fact] < answers.floor.least(chance)
    low, high = answers.floor.interval(chance[fact], 80)
    assert low < chance[fact] < high and answers.floor.description


@pytest.mark.parametrize("name", TASK_TYPES)
def test_the_error_analysis_is_finite_and_names_rows(name: str) -> None:
    answers, labels_N, ids_N = ANSWERS[name], truth(name), np.arange(500, 580)
    ours, theirs = (answers.read(drawn(name, seed)) for seed in (1, 2))
    found: dict[str, Any] = answers.alone(ours, labels_N, 7) | {
        "apart": answers.apart(ours, theirs, labels_N, ids_N, 4)
    }
    json.dumps(found, allow_nan=False)
    assert found["apart"]["counts"]["rows"] == 80
    for examples in found["apart"]["examples"].values():
        assert len(examples) == 4 and {one["id"] for one in examples} <= {*ids_N.tolist()}
    assert answers.apart(ours, theirs, labels_N, ids_N, 0)["examples"] == dict.fromkeys(found["apart"]["examples"], [])


# --- predictions, by hand ---------------------------------------------------------------------------------------------


def test_classes_are_the_largest_logits_and_values_the_only_output() -> None:
    assert CLASSES.decide({"logits": np.asarray([[0.0, 2, 1], [3, 3, 0]])}).tolist() == [1, 0], (
        "of equal ones the first"
    )
    assert VALUES.decide({"logits": np.asarray([[0.25], [-1.5]])}).tolist() == [0.25, -1.5]


def test_values_of_another_machine_are_the_same_up_to_rounding() -> None:
    found = VALUES.unchanged(np.asarray([4.0, 4.0, 0.0]), np.asarray([4.004, 4.02, 0.0009]))
    assert found.tolist() == [True, False, True]
    assert CLASSES.unchanged(np.asarray([0, 1]), np.asarray([0, 2])).tolist() == [True, False]


def test_merged_classes_count_as_their_first() -> None:
    found = CLASSES.merge({"logits": np.asarray([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0]])}, [0, 1, 1])
    assert (found["logits"] == [[3.0, 2.0, -np.inf], [0.0, 2.0, -np.inf]]).all()
    assert CLASSES.decide(found).tolist() == [0, 1]
    again = CLASSES.merge(found, [0, 1, 1])
    assert (again["logits"] == found["logits"]).all(), "merged outputs that were stored may be merged again"
    with pytest.raises(DataError, match="values cannot merge classes; leave classes out"):
        VALUES.merge({"logits": np.zeros((2, 1))}, [0])


def test_facts_of_guessing_by_hand() -> None:
    labels_N = np.asarray([0, 2, 2, 2])
    assert CLASSES.guess(np.asarray([0, 2, 1, 1]), labels_N) == {"majority": 0.75, "selection_accuracy": 0.5}
    assert CLASSES.floor.least({"majority": 0.75}) == pytest.approx(0.8) and CLASSES.floor.least({"majority": 1.0}) < 1
    found = VALUES.guess(np.asarray([1.0, 2, 3]), np.asarray([2.0, 4, 6]))
    assert found == {"majority": 0.0, "selection_correlation": pytest.approx(1.0)}


# --- error analysis ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 7])
def test_classes_agree_with_scikit_learn(count: int) -> None:
    logits_NC, labels_N = DRAW.normal(size=(400, count)) * 2, DRAW.integers(0, count, 400)
    model = read(logits_NC)
    found, shares_NC = CLASSES.alone(model, labels_N, 10), np.exp(model["logp"])
    assert found["confusion"] == confusion_matrix(labels_N, logits_NC.argmax(-1), labels=range(count)).tolist()
    assert found["nll"] == pytest.approx(log_loss(labels_N, shares_NC, labels=list(range(count))))
    assert found["brier"] == pytest.approx(
        brier_score_loss(labels_N, shares_NC, labels=list(range(count)), scale_by_half=False)
    )


def test_the_reliability_diagram_is_scikit_learns() -> None:
    certainty_N = DRAW.uniform(0.3, 0.999, 1000)
    right_N = DRAW.uniform(size=1000) < certainty_N
    found = reliability(certainty_N, right_N, 10)
    right_K, sure_K = calibration_curve(right_N, certainty_N, n_bins=10)
    assert [one["accuracy"] for one in found["bins"]] == pytest.approx(right_K)
    assert [one["certainty"] for one in found["bins"]] == pytest.approx(sure_K)
    assert sum(one["rows"] for one in found["bins"]) == 1000 and found["ece"] < 0.05


def test_the_calibration_error_by_hand() -> None:
    """Three rows: two at 0.9 of which one is right, one at 0.6 that is right: 2/3 of 0.4 and 1/3 of 0.4."""
    found = reliability(np.asarray([0.9, 0.9, 0.6]), np.asarray([True, False, True]), 10)
    assert found["ece"] == pytest.approx(0.4) and [one["rows"] for one in found["bins"]] == [1, 2]
    assert reliability(np.asarray([1.0]), np.asarray([True]), 10)["bins"][0]["high"] == 1.0, (
        "full certainty belongs to the last bin"
    )
    assert reliability(np.asarray([]), np.asarray([], dtype=bool), 10) == {"ece": None, "bins": []}


def test_extreme_logits_have_finite_figures() -> None:
    found = CLASSES.alone(read(np.asarray([[1e4, -1e4], [1e4, -1e4]])), np.asarray([0, 1]), 10)
    assert found["nll"] == pytest.approx(1e4) and np.isfinite(found["brier"])
    json.dumps(found, allow_nan=False)


def test_who_is_right_where_by_hand() -> None:
    """Rows: both right; only the student; only the teacher (twice, once surer); both wrong with one answer."""
    ours = read(np.asarray([[2.0, 0], [2, 0], [0, 1], [0, 3], [0, 2]]))
    theirs = read(np.asarray([[2.0, 0], [0, 2], [2, 0], [2, 0], [0, 2]]))
    found = CLASSES.apart(ours, theirs, np.zeros(5, dtype=int), np.arange(100, 105), 6)
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
        CLASSES.apart(read(ours[at]), read(theirs[at]), labels_N[at], 100 + at, 5) for at in (np.arange(60), order)
    )
    assert straight == mixed


def test_values_agree_with_scikit_learn() -> None:
    true_N = DRAW.uniform(0, 5, 500)
    value_N = true_N + DRAW.normal(0.1, 0.5, 500)
    found = VALUES.alone({"value": value_N}, true_N, 10)
    assert found["mae"] == pytest.approx(mean_absolute_error(true_N, value_N)) and found["rmse"] == pytest.approx(
        root_mean_squared_error(true_N, value_N)
    )
    assert (
        found["bias"] == pytest.approx((value_N - true_N).mean())
        and sum(bar["rows"] for bar in found["residuals"]) == 500
    )
    assert len(found["points"]) == 300 and found["points"][0] == [round(true_N[0], 4), round(value_N[0], 4)]


def test_values_part_where_they_lie_apart() -> None:
    ours, theirs = {"value": np.asarray([1.0, 2, 3])}, {"value": np.asarray([1.0, 4, 2.5])}
    found = VALUES.apart(ours, theirs, np.asarray([1.0, 2, 2]), np.arange(100, 103), 6)
    assert found["counts"] == {"rows": 3, "student_nearer": 1, "teacher_nearer": 1} and found["gap"] == pytest.approx(
        2.5 / 3
    )
    assert [one["id"] for one in found["examples"]["surest"]] == [101, 102] and [
        one["id"] for one in found["examples"]["corrected"]
    ] == [101]
