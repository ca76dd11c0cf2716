"""Mixtures of teachers, by hand and by what they must not do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tasks.errors import ModelError, RecipeError
from tasks.methods.losses.ensembles import mixed_distributions, mixed_values, mixture_weights


def mixed(logits_MNC: Tensor, weights_M: list[float], *, combine: str, temperature: float) -> Tensor:
    return mixed_distributions(logits_MNC, mixture_weights(logits_MNC, weights_M, combine=combine), temperature)


def test_mixes_probabilities_by_hand() -> None:
    first, second = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.2, 0.8]])
    both = torch.stack([first.log() + 3, second.log()])  # a shift of logits changes no probability
    logits = mixed(both, [1.0, 3.0], combine="weights", temperature=1.0)
    torch.testing.assert_close(logits.softmax(-1), 0.25 * first + 0.75 * second)


def test_each_teacher_is_softened_before_they_are_mixed() -> None:
    both = torch.tensor([[[8.0, 0.0]], [[0.0, 1.0]]])
    students = mixed(both, [1.0, 1.0], combine="weights", temperature=4.0) / 4
    torch.testing.assert_close(students.softmax(-1), (both / 4).softmax(-1).mean(0))
    afterwards = mixed(both, [1.0, 1.0], combine="weights", temperature=1.0) / 4
    assert not torch.allclose(afterwards.softmax(-1), students.softmax(-1), atol=0.1), (
        "softening the mixture is another thing"
    )


def test_who_is_sure_is_heard() -> None:
    sure, unsure = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 0.1]])
    equal = mixed(torch.stack([sure, unsure]), [1.0, 1.0], combine="weights", temperature=1.0).softmax(-1)
    heard = mixed(torch.stack([sure, unsure]), [1.0, 1.0], combine="certainty", temperature=1.0).softmax(-1)
    assert heard[0, 0] > 0.99 > 0.8 > equal[0, 0]


def test_teachers_who_know_nothing_still_answer() -> None:
    logits = mixed(torch.zeros(2, 3, 4), [1.0, 1.0], combine="certainty", temperature=1.0)
    torch.testing.assert_close(logits.softmax(-1), torch.full((3, 4), 0.25))


def test_one_teacher_twice_is_that_teacher() -> None:
    logits = torch.randn(5, 3)
    for combine in ("weights", "certainty"):
        torch.testing.assert_close(
            mixed(torch.stack([logits, logits]), [1.0, 2.0], combine=combine, temperature=3.0).softmax(-1),
            logits.softmax(-1),
        )


def test_numbers_are_averaged() -> None:
    numbers = torch.tensor([[[1.0]], [[4.0]]])
    assert mixed_values(numbers, mixture_weights(numbers, [2.0, 1.0], combine="weights")).tolist() == [[2.0]]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(RecipeError, match="use combine: weights"):
        mixed(torch.zeros(2, 3, 1), [1.0, 1.0], combine="certainty", temperature=1.0)
    with pytest.raises(RecipeError, match="choose one of certainty, weights"):
        mixed(torch.zeros(2, 3, 2), [1.0, 1.0], combine="vote", temperature=1.0)
    with pytest.raises(RecipeError, match="must be greater than 0"):
        mixed(torch.zeros(2, 3, 2), [1.0, 1.0], combine="weights", temperature=0.0)
    with pytest.raises(ModelError, match="as many weights"):
        mixed(torch.zeros(2, 3, 2), [1.0], combine="weights", temperature=1.0)
