"""Two of every four weights of a row: properties, by hand."""

from __future__ import annotations

import pytest
import torch

from tasks.methods.pruning.semi_structured import two_of_four


def test_groups_lie_along_the_inputs_and_the_largest_stay() -> None:
    weight_OI = torch.tensor([[0.1, -3.0, 2.0, 0.5, 9.0, -8.0, 7.0, 6.0], [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.1]])
    assert two_of_four(weight_OI.abs()).int().tolist() == [[0, 1, 1, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0, 0, 1]]


def test_of_every_group_two_stay_whatever_the_scores_are() -> None:
    scores_OI = torch.randint(0, 3, (64, 32), generator=torch.Generator().manual_seed(0)).float()
    assert (two_of_four(scores_OI).view(-1, 4).sum(-1) == 2).all()


def test_no_choice_of_two_keeps_more_magnitude() -> None:
    scores_OI = torch.rand(16, 32, generator=torch.Generator().manual_seed(0))
    kept = (scores_OI * two_of_four(scores_OI)).view(-1, 4).sum(-1)
    pairs = torch.combinations(torch.arange(4), 2)
    assert torch.equal(kept, scores_OI.view(-1, 4)[:, pairs].sum(-1).amax(-1))


def test_a_transposed_tensor_has_the_mask_of_its_rows() -> None:
    scores = torch.randn(8, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(two_of_four(scores.T), two_of_four(scores.T.contiguous()))


def test_a_group_never_reaches_into_the_next_row() -> None:
    with pytest.raises(RuntimeError, match="multiply up to the size of dim"):
        two_of_four(torch.ones(4, 6))
