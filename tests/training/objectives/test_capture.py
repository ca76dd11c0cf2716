"""Captured signals are the model's own, and a student that is its teacher has nothing to learn."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tasks.errors import ModelError
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import collate, encode
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import build_student, freeze, load_classifier
from tasks.training.objectives.capture import Capture, check_capture
from tasks.training.objectives.layers import LayerObjective

TASK = Task("tiny", "classification", ["negative", "positive"], "accuracy", False, HEADS["classification"])
CPU = torch.device("cpu")


@pytest.fixture
def teacher(tiny_bert: Path):
    return freeze(load_classifier(tiny_bert, TASK, CPU))


@pytest.fixture
def batch(tiny_bert: Path):
    encoded = encode(load_tokenizer(tiny_bert), ["the film was good", "a book", "the plot was not very fine"], None, 16)
    return collate(encoded, [0, 1, 2], 0, CPU)


def knobs(**changes: object) -> SimpleNamespace:
    return SimpleNamespace(
        **{"layer_map": "uniform", "hidden": 1.0, "attention": 1.0, "projection": "none", "formula": "masked"} | changes
    )


def test_scores_give_the_models_own_probabilities(teacher, batch) -> None:
    check_capture(Capture(teacher, attention=range(4)), batch.inputs(teacher), batch.mask_BT)


def test_a_teacher_that_still_drops_units_is_caught(teacher, batch) -> None:
    teacher.train()
    with pytest.raises(ModelError):
        check_capture(Capture(teacher, attention=[3]), batch.inputs(teacher), batch.mask_BT)


def test_a_student_equal_to_its_teacher_loses_nothing(teacher, batch) -> None:
    assert float(LayerObjective(copy.deepcopy(teacher), teacher, knobs()).loss(batch).mean()) == pytest.approx(
        0, abs=1e-8
    )


@pytest.mark.parametrize("formula", ["masked", "paper"])
def test_padding_changes_only_the_papers_formula(teacher, tiny_bert: Path, formula: str) -> None:
    student = build_student(
        "random", teacher, SimpleNamespace(layers=2, hidden=8, heads=4, feed_forward=16), seed=1
    ).eval()
    matcher = LayerObjective(student, teacher, knobs(projection="shared", formula=formula))
    encoded = encode(load_tokenizer(tiny_bert), ["the film was good", "a book " * 6], None, 16)
    alone = matcher.loss(collate(encoded, [0], 0, CPU)).mean()
    both = collate(encoded, [0, 1], 0, CPU)
    padded = matcher.loss(type(both)(both.ids_BT[:1], both.mask_BT[:1], both.segments_BT[:1])).mean()
    assert (float(alone.detach()) == pytest.approx(float(padded.detach()), rel=1e-4)) == (formula == "masked")


def test_a_student_of_copied_layers_answers_like_the_layers_it_kept(teacher, batch) -> None:
    shape = SimpleNamespace(layers=4, hidden=None, heads=None, feed_forward=None)
    student = build_student("teacher", teacher, shape, seed=0)
    assert torch.equal(student(**batch.inputs(student)).logits, teacher(**batch.inputs(teacher)).logits)
    assert student.config.num_hidden_layers == 4


def test_whole_layers_do_not_fit_another_width(teacher) -> None:
    with pytest.raises(ModelError, match="start: embeddings or random"):
        build_student("teacher", teacher, SimpleNamespace(layers=2, hidden=8, heads=4, feed_forward=None), seed=0)
