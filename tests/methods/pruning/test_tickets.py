"""Lottery tickets compared with the shared oracles, and their properties."""

from __future__ import annotations

import pytest
import torch

from tasks.methods.pruning.tickets import at_random, drawn_anew, ticket
from tasks.recipe.makers.weights import share_after
from tests.methods.oracles import Oracle, reads


@reads("lottery_ticket", "iterative", "one_shot")
def test_tickets_of_shares_of_all_weights_are_the_references(oracle: Oracle) -> None:
    content, tensors, knobs = oracle.content, oracle.tensors, oracle.knobs
    trained_RW, expected_RW = tensors["in.trained_weights"], tensors[content["expected_tensors"]["masks"]]
    size, mask_W = trained_RW.shape[1], torch.ones(trained_RW.shape[1], dtype=torch.bool)
    keep = 0.6 if oracle.name == "iterative" else 0.5
    for number in range(knobs.rounds):
        share = share_after(number + 1, knobs.rounds, keep, "original")
        [mask_W] = ticket([trained_RW[number] * mask_W], share)
        assert abs(int(mask_W.sum()) - int(expected_RW[number].sum())) <= 1, "the reference rounds in every round"
        differ = int((mask_W != expected_RW[number].bool()).sum())
        assert differ <= 1, f"{differ} of {size:,} weights in round {number + 1}"
        mask_W = expected_RW[number].bool()


@reads("lottery_ticket_global", "sparse_global")
def test_tickets_of_shares_of_what_is_left_are_the_references(oracle: Oracle) -> None:
    """The reference takes one weight more than asked for in each round."""
    content, tensors = oracle.content, oracle.tensors
    left = content["expected_scalars"]["weights_left"]
    masks = [torch.ones_like(tensors[f"in.round0.{name}.weight"], dtype=torch.bool) for name in "ab"]
    for number, count in enumerate(left):
        trained = [tensors[f"in.round{number}.{name}.weight"] * mask for name, mask in zip("ab", masks, strict=True)]
        asked = round(0.8 * sum(int(mask.sum()) for mask in masks) - 0.4999)
        assert asked - count in (0, 1)
        masks = ticket(trained, count / 183)
        for name, mask in zip("ab", masks, strict=True):
            assert torch.equal(mask, tensors[f"out.round{number}.{name}.weight"].bool())


@pytest.mark.parametrize("of", ["left", "original"])
def test_the_last_round_leaves_the_share_that_was_asked_for(of: str) -> None:
    shares = [share_after(number, 4, 0.2, of) for number in range(5)]
    assert shares == sorted(shares, reverse=True) and shares[0] == 1.0 and shares[-1] == pytest.approx(0.2)
    steps = [
        1 - after / before if of == "left" else before - after
        for before, after in zip(shares, shares[1:], strict=False)
    ]
    assert steps == pytest.approx([steps[0]] * 4)


def test_a_weight_that_went_never_comes_back() -> None:
    trained = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    assert ticket([trained], 0.5)[0].tolist() == [[False, False, False, True]]


def test_the_controls_have_as_many_weights_in_each_matrix_and_others() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(20, 20, generator=generator), 3 * torch.randn(10, 20, generator=generator)]
    masks = ticket(weights, 0.3)
    other = at_random(masks, generator)
    assert [int(one.sum()) for one in other] == [int(one.sum()) for one in masks]
    assert not torch.equal(other[0], masks[0])
    drawn = drawn_anew(weights, generator)
    assert [float(one.std()) for one in drawn] == pytest.approx([float(one.std()) for one in weights], rel=0.2)
