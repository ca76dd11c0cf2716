"""Checkpoints are chosen by the metric that decides the task, and by no other than a knob names."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS
from tasks.recipe.training import TaskTraining
from tasks.task_types.types import CLASSIFICATION, TASK_TYPES
from tasks.training.data.rows import Task
from tasks.training.selection import selection_score

RANDOM = np.random.default_rng(0)
CLASSES = [RANDOM.integers(0, classes, (2, 60)) for classes in (2, 2, 3, 5)] + [
    np.array([[0] * 6, [0, 1] * 3]),
    np.array([[2] * 6, [0, 1] * 3]),
]
VALUES = [
    RANDOM.normal(size=(2, 60)),
    RANDOM.integers(0, 5, (2, 60)) / 2,  # full of ties
    np.array([[1.0] * 6, [0.0, 1.0] * 3]),
]


def logits_of(predicted: np.ndarray) -> np.ndarray:
    return np.eye(2)[predicted]


@pytest.mark.parametrize("name", sorted(METRICS))
def test_checkpoints_are_ranked_by_the_numbers_of_the_scales(name: str) -> None:
    classes = name in CLASSIFICATION.metrics
    for predicted, labels in CLASSES if classes else VALUES:
        task = Task("mine", "classification" if classes else "regression", None, name, pairs=False)
        found = selection_score(task, np.eye(5)[predicted] if classes else predicted[:, None], labels)
        assert found == (-1 if name == "mse" else 1) * METRICS[name](predicted, labels)


def test_every_metric_can_choose_and_the_knob_knows_them_all() -> None:
    legal = TaskTraining.model_json_schema()["properties"]["choose_by"]["enum"]
    assert set(METRICS) == set().union(*(one.metrics for one in TASK_TYPES.values())) == set(legal) - {"headline"}


def test_the_headline_chooses_and_a_knob_says_otherwise() -> None:
    """Who calls everything the common class 0 is right more often, and finds nothing."""
    labels = np.array([1] * 3 + [0] * 7)
    idle, finder = logits_of(np.zeros(10, dtype=int)), logits_of(np.array([1] * 3 + [1] * 4 + [0] * 3))
    task = Task("mine", "classification", ["no", "yes"], "f1", pairs=False)
    assert selection_score(task, finder, labels) > selection_score(task, idle, labels)
    assert selection_score(task, finder, labels, "accuracy") < selection_score(task, idle, labels, "accuracy")


def test_stsb_is_chosen_by_both_correlations() -> None:
    task = Task("stsb", "regression", None, "pearson_spearman", pairs=True)
    labels = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    straight, steep = np.array([0.0, 1.0, 3.0, 2.0, 4.0]), np.array([0.0, 0.1, 0.2, 0.3, 40.0])
    both = [selection_score(task, values[:, None], labels) for values in (straight, steep)]
    alone = [selection_score(task, values[:, None], labels, "pearson") for values in (straight, steep)]
    assert alone[0] > alone[1] and alone[1] < both[1] < 1.0 and both[0] == pytest.approx(0.9)


def test_an_unknown_headline_is_one_sentence() -> None:
    with pytest.raises(RecipeError, match="unknown metric 'bleu'; choose one of accuracy, f1"):
        selection_score(Task("mine", "classification", ["a", "b"], "bleu", pairs=False), np.eye(2), np.array([0, 1]))
