"""Metrics of answers: the figures of SQuAD's own program, and digests that give no word away."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.metrics.of_answers import (
    BETWEEN_ANSWERS,
    NO_ANSWER,
    SQUAD_EXACT,
    SQUAD_F1,
    coded_answer,
    exact_and_f1,
    figures_of_rows,
    normal_words,
    span_of_answer,
)
from tasks.task_types.spans.passage import BEST, BEST_CANDIDATES
from tasks.task_types.spans.thresholds import threshold_of_none
from tasks.task_types.units import ragged_array
from tests.methods.oracles import Oracle, reads


def coded(text: str) -> str:
    """Return an answer of a text, or none of an empty one."""
    return coded_answer(0, len(text), text) if text else NO_ANSWER


@reads("task_metrics", "squad_v2")
def test_figures_are_those_of_squads_own_program(oracle: Oracle) -> None:
    rows, wanted = oracle.content["rows"], oracle.content["expected"]
    labels_N = np.asarray([BETWEEN_ANSWERS.join(map(coded, row["golds"])) or NO_ANSWER for row in rows])
    answers_N = np.asarray([coded(row["prediction"]) for row in rows])
    found_N2 = figures_of_rows(answers_N, labels_N)
    for row, (exact, f1) in zip(rows, found_N2, strict=True):
        assert exact == pytest.approx(wanted["exact_by_id"][row["id"]], abs=1e-9)
        assert f1 == pytest.approx(wanted["f1_by_id"][row["id"]], abs=1e-9)
    assert 100 * SQUAD_EXACT(answers_N, labels_N) == pytest.approx(wanted["total"]["exact"], abs=1e-9)
    assert 100 * SQUAD_F1(answers_N, labels_N) == pytest.approx(wanted["total"]["f1"], abs=1e-9)


@reads("task_metrics", "squad_v2")
def test_thresholds_are_as_good_as_those_of_squads_own_program(oracle: Oracle) -> None:
    """The program finds the threshold on a score of none; ours is on its distance from the best answer's."""
    rows, wanted = oracle.content["rows"], oracle.content["expected"]
    labels_N = np.asarray([BETWEEN_ANSWERS.join(map(coded, row["golds"])) or NO_ANSWER for row in rows])
    best_N, margin_N = np.asarray([coded(row["prediction"]) for row in rows]), [row["no_answer"] for row in rows]

    def kept(threshold: float) -> np.ndarray:
        """Return the answers at a threshold."""
        return np.where(np.asarray(margin_N) > threshold, NO_ANSWER, best_N)

    at_half = wanted["thresholded_at_0_5"]
    assert 100 * SQUAD_F1(kept(0.5), labels_N) == pytest.approx(at_half["f1"], abs=1e-9)
    assert 100 * SQUAD_EXACT(kept(0.5), labels_N) == pytest.approx(at_half["exact"], abs=1e-9)
    candidates = ragged_array([np.asarray([[-1, -1, margin], [0, 1, 0.0]]) for margin in margin_N])
    outputs = {BEST: best_N, BEST_CANDIDATES: candidates}
    for metric, name, key in ((SQUAD_F1, "squad_f1", "best_f1"), (SQUAD_EXACT, "squad_exact", "best_exact")):
        found = threshold_of_none(outputs, labels_N, name)
        assert 100 * metric(kept(found), labels_N) == pytest.approx(wanted["best"][key], abs=1e-9)


@pytest.mark.parametrize(
    ("ours", "theirs", "figures"),
    [
        ("The Norman", "norman!", (1.0, 1.0)),
        ("a big dog", "dog", (0.0, 2 / 3)),
        ("", "", (1.0, 1.0)),
        ("", "dog", (0.0, 0.0)),
        ("the", "", (1.0, 1.0)),
        ("dog dog", "dog cat", (0.0, 0.5)),
    ],
)
def test_figures_by_hand(ours: str, theirs: str, figures: tuple[float, float]) -> None:
    assert exact_and_f1(coded(ours), coded(theirs)) == pytest.approx(figures)


def test_the_best_of_several_true_answers_counts() -> None:
    label = BETWEEN_ANSWERS.join([coded("in Rome"), coded("Rome")])
    assert exact_and_f1(coded("rome"), label) == (1.0, 1.0)


def test_a_stored_answer_has_places_and_no_word() -> None:
    stored = coded_answer(12, 25, "Norman Castle")
    assert span_of_answer(stored) == (12, 25) and span_of_answer(NO_ANSWER) is None
    assert "norman" not in stored.lower() and len(stored.split()) == 4
    assert normal_words("The U.S. Army's") == ["us", "armys"]
