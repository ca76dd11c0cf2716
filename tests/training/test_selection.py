"""Checkpoints are chosen by the metric that decides the task, and by no other than a knob names."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import BertConfig, BertForSequenceClassification

from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS
from tasks.metrics.of_texts import BETWEEN_REFERENCES
from tasks.recipe.slices import TeacherSlice
from tasks.recipe.training import TaskTraining
from tasks.task_types.answers import ANSWERS
from tasks.task_types.heads import HEADS
from tasks.task_types.types import CLASS_LOGITS, ERROR_METRICS, TASK_TYPES
from tasks.training.data.encoded import Encoded
from tasks.training.data.rows import Rows, Task
from tasks.training.selection import all_outputs, selection_score, selector

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


TAGS = [(np.array(["1 2 0", "0 0", "3"]), np.array(["1 2 0", "1 0", "3"]))]
SETS = [RANDOM.integers(0, 8, (2, 60)), np.array([[0] * 6, [0, 3] * 3])]
RANKS = [(np.repeat(RANDOM.integers(1, 200, 30), 2).astype(float), np.ones(60))]
CASES = {"classification": CLASSES, "regression": VALUES, "tokens": TAGS, "multi-label": SETS}
OPTIONS = [(np.array(["1/3", "0/2", "3/4"]), np.array(["1/3", "1/2", "3/4"]))]
LISTS = [(np.array(["0.5 2 -1", "1 1"]), np.array(["0 2 1", "0 1"]))]
FOUND = [(np.array(["0 4 aa bb", "none", "7 9 cc"]), np.array(["0 2 aa|0 4 bb", "none", "2 3 dd"]))]
CASES |= {"embedding": VALUES, "retrieval": RANKS, "choices": OPTIONS, "ranking": LISTS, "spans": FOUND}
LIKELIHOODS = [(np.array(["12.5 6", "3 2"]), np.array(["5 30 20.5", "2 9 4.5"]))]
TEXTS = [(np.array(["a good film", "", "two dogs"]), np.array(["a good film", "no", f"dogs{BETWEEN_REFERENCES}two"]))]
CASES |= {"next-words": LIKELIHOODS, "chats": LIKELIHOODS, "masked-words": LIKELIHOODS, "seq2seq": TEXTS}
"""Predictions and labels, by task type."""


@pytest.mark.parametrize("name", sorted(METRICS))
def test_checkpoints_are_ranked_by_the_numbers_of_the_scales(name: str) -> None:
    kinds = [one.name for one in TASK_TYPES.values() if name in one.metrics]
    for kind, (predicted, labels) in ((each, case) for each in kinds for case in CASES[each]):
        found = selection_score(ANSWERS[kind], name, predicted, labels)
        assert found == (-1 if name in ERROR_METRICS else 1) * METRICS[name](predicted, labels)


def test_every_metric_can_choose_and_the_knob_knows_them_all() -> None:
    legal = TaskTraining.model_json_schema()["properties"]["choose_by"]["enum"]
    assert set(METRICS) == set().union(*(one.metrics for one in TASK_TYPES.values())) == set(legal) - {"headline"}


def selected_by(headline: str, choose_by: str) -> str:
    """Return the metric by which a selector scores a real model, which answers by chance."""
    bert = BertForSequenceClassification(
        BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    )
    tokens = Encoded(np.tile([1, 2, 3], 10), np.zeros(30, dtype=np.int64), np.arange(0, 31, 3))
    labels_N = np.array([1] * 3 + [0] * 7)
    rows = Rows(np.arange(10), ["a"] * 10, None, labels_N)
    knobs = TeacherSlice(task_type="classification", choose_by=choose_by, precision="fp32")
    task = Task("mine", "classification", ["no", "yes"], headline, False, HEADS["classification"])
    scored = selector(bert, task, rows, tokens, 0, knobs)
    assert scored is not None
    (answer,) = {*all_outputs(bert, CLASS_LOGITS, tokens, 0, precision="fp32")["logits"].argmax(-1)}
    found = {name: METRICS[name](np.full(10, answer), labels_N) for name in ("accuracy", "f1")}
    assert found["accuracy"] != found["f1"]
    (name,) = (name for name, value in found.items() if value == scored())
    return name


def test_the_headline_chooses_and_a_knob_says_otherwise() -> None:
    """Equal rows get one class: the share of right answers differs from F1."""
    assert selected_by("f1", "headline") == "f1" and selected_by("f1", "accuracy") == "accuracy"
    assert selected_by("accuracy", "headline") == "accuracy"


def test_f1_prefers_a_model_that_finds_the_rare_class() -> None:
    """A model that predicts the common class 0 everywhere is right more often, and finds nothing."""
    labels = np.array([1] * 3 + [0] * 7)
    idle, finder = np.zeros(10, dtype=int), np.array([1] * 3 + [1] * 4 + [0] * 3)
    answers = ANSWERS["classification"]
    assert selection_score(answers, "f1", finder, labels) > selection_score(answers, "f1", idle, labels)
    assert selection_score(answers, "accuracy", finder, labels) < selection_score(answers, "accuracy", idle, labels)


def test_stsb_is_chosen_by_both_correlations() -> None:
    labels = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    straight, steep = np.array([0.0, 1.0, 3.0, 2.0, 4.0]), np.array([0.0, 0.1, 0.2, 0.3, 40.0])
    answers = ANSWERS["regression"]
    both = [selection_score(answers, "pearson_spearman", values, labels) for values in (straight, steep)]
    alone = [selection_score(answers, "pearson", values, labels) for values in (straight, steep)]
    assert alone[0] > alone[1] and alone[1] < both[1] < 1.0 and both[0] == pytest.approx(0.9)


def test_a_metric_of_another_task_type_is_one_sentence() -> None:
    for name in ("bleu", "pearson"):
        with pytest.raises(RecipeError, match=f"unknown metric '{name}'; choose one of accuracy, balanced_accuracy"):
            selection_score(ANSWERS["classification"], name, np.zeros(2), np.array([0, 1]))
