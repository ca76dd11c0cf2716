"""Mixtures of teachers, by hand and by what they must not do."""

from __future__ import annotations

import pytest
import torch

from tasks.errors import ModelError, RecipeError
from tasks.methods.ensembles import mixed


def test_mixes_probabilities_by_hand() -> None:
    first, second = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.2, 0.8]])
    logits = mixed(torch.stack([first.log() + 3, second.log()]), [1.0, 3.0], combine="weights")  # a shift of logits changes no probability
    torch.testing.assert_close(logits.softmax(-1), 0.25 * first + 0.75 * second)


def test_who_is_sure_is_heard() -> None:
    sure, unsure = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 0.1]])
    equal = mixed(torch.stack([sure, unsure]), [1.0, 1.0], combine="weights").softmax(-1)
    heard = mixed(torch.stack([sure, unsure]), [1.0, 1.0], combine="certainty").softmax(-1)
    assert heard[0, 0] > 0.99 > 0.8 > equal[0, 0]


def test_teachers_who_know_nothing_still_answer() -> None:
    logits = mixed(torch.zeros(2, 3, 4), [1.0, 1.0], combine="certainty")
    torch.testing.assert_close(logits.softmax(-1), torch.full((3, 4), 0.25))


def test_one_teacher_twice_is_that_teacher() -> None:
    logits = torch.randn(5, 3)
    for combine in ("weights", "certainty"):
        torch.testing.assert_close(mixed(torch.stack([logits, logits]), [1.0, 2.0], combine=combine).softmax(-1), logits.softmax(-1))


def test_numbers_are_averaged() -> None:
    assert mixed(torch.tensor([[[1.0]], [[4.0]]]), [2.0, 1.0], combine="weights").tolist() == [[2.0]]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(RecipeError, match="use combine: weights"):
        mixed(torch.zeros(2, 3, 1), [1.0, 1.0], combine="certainty")
    with pytest.raises(RecipeError, match="choose one of certainty, weights"):
        mixed(torch.zeros(2, 3, 2), [1.0, 1.0], combine="vote")
    with pytest.raises(ModelError, match="as many weights"):
        mixed(torch.zeros(2, 3, 2), [1.0], combine="weights")
