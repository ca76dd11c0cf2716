"""Metrics of entities: conlleval's reading of tags, and the figures of the programs that the literature uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.metrics.of_entities import ENTITY_F1, ENTITY_PRECISION, ENTITY_RECALL, entities, is_illegal
from tasks.task_types.answers import ANSWERS
from tasks.task_types.units import ragged_array
from tests.methods.oracles import Oracle, reads

KINDS = ["LOC", "ORG", "PER"]
NUMBERS = {"O": 0} | {
    f"{letter}-{kind}": 2 * at + 1 + (letter == "I") for at, kind in enumerate(KINDS) for letter in "BI"
}


def numbered(rows: list[list[str]]) -> np.ndarray:
    return np.asarray([" ".join(str(NUMBERS[tag]) for tag in row) for row in rows])


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("0 1 2 0", ((0, 1, 3),)),
        ("1 1 2", ((0, 0, 1), (0, 1, 3))),
        ("2 2 0 2", ((0, 0, 2), (0, 3, 4))),
        ("1 4 4", ((0, 0, 1), (1, 1, 3))),
        ("", ()),
    ],
)
def test_tags_are_read_as_conlleval_reads_them(tags: str, found: tuple[Any, ...]) -> None:
    assert entities(tags) == found


@reads("task_metrics", "seqeval")
def test_figures_are_those_of_seqeval(oracle: Oracle) -> None:
    case = oracle.content
    ours, truth, wanted = numbered(case["predictions"]), numbered(case["golds"]), case["expected"]["default"]
    assert ENTITY_F1(ours, truth) == pytest.approx(wanted["f1"], abs=1e-9)
    assert ENTITY_PRECISION(ours, truth) == pytest.approx(wanted["precision"], abs=1e-9)
    assert ENTITY_RECALL(ours, truth) == pytest.approx(wanted["recall"], abs=1e-9)


@reads("task_metrics", "seqeval")
def test_figures_by_type_are_those_of_seqeval(oracle: Oracle) -> None:
    case = oracle.content
    logits = ragged_array([np.eye(7)[[NUMBERS[tag] for tag in row]] for row in case["predictions"]])
    answers = ANSWERS["tokens"]
    found = answers.alone(answers.read({"logits": logits}), numbered(case["golds"]), 10)
    for at, kind in enumerate(KINDS):
        wanted = case["expected"]["by_type"][kind]
        for name, theirs in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            values = found[f"{name}_by_type"]
            assert isinstance(values, list) and values[at] == pytest.approx(wanted[theirs], abs=1e-9)


def test_resamples_weigh_sentences() -> None:
    truth, ours = np.asarray(["1 0", "1 0", "0 3"]), np.asarray(["1 0", "0 0", "0 3"])
    weights_RN = np.asarray([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0]])
    assert ENTITY_F1.weighted(ours, truth, weights_RN) == pytest.approx([0.8, 0.5])
    assert ENTITY_F1(ours, truth) == pytest.approx(0.8)


def test_a_model_that_finds_nothing_has_zero() -> None:
    assert ENTITY_F1(np.asarray(["0 0"]), np.asarray(["0 0"])) == 0.0


@pytest.mark.parametrize(
    ("tags", "illegal"), [("1 2 2 0", False), ("0 2", True), ("1 4", True), ("2", True), ("0 0", False)]
)
def test_an_i_tag_that_continues_nothing_is_illegal(tags: str, illegal: bool) -> None:
    assert is_illegal(tags) is illegal
