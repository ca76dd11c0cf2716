"""Layer similarity: linear CKA by hand, blind to turning, stretching and moving; sums over batches give what all rows
at once give."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_similarity import between_models_BL, linear_cka, linear_cka_of, moments_of

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_matches_the_definition_by_hand() -> None:
    # One unit each: CKA is the squared correlation. (-1, 0, 1) and (0, 3, 0) do not correlate; (-1, 0, 1) and (0, 1, 1)
    # do with r² = 3/4.
    first = torch.tensor([[1.0], [2.0], [3.0]])
    assert linear_cka(first, torch.tensor([[0.0], [3.0], [0.0]])) == pytest.approx(0.0)
    assert linear_cka(first, torch.tensor([[0.0], [1.0], [1.0]])) == pytest.approx(0.75)


def test_matches_the_form_with_kernels() -> None:
    first, second = random(20, 6), random(20, 4, seed=1)
    centre = torch.eye(20) - 1 / 20
    kernels = [centre @ states @ states.T @ centre for states in (first, second)]
    hsic = [[float((one * other).sum()) for other in kernels] for one in kernels]
    assert linear_cka(first, second) == pytest.approx(hsic[0][1] / (hsic[0][0] * hsic[1][1]) ** 0.5, abs=1e-6)


def test_what_is_the_same_is_one_however_it_is_turned_stretched_or_moved() -> None:
    first, second = random(50, 8), random(50, 5, seed=1)
    turn = torch.linalg.qr(random(8, 8, seed=2)).Q
    assert linear_cka(first, first) == pytest.approx(1.0)
    assert linear_cka(first, 7 * first @ turn + 3) == pytest.approx(1.0)
    assert linear_cka(first @ turn, second) == pytest.approx(linear_cka(first, second), abs=1e-6)
    assert linear_cka(first, 0.01 * second - 5) == pytest.approx(linear_cka(first, second), abs=1e-6)
    assert linear_cka(second, first) == pytest.approx(linear_cka(first, second))


def test_a_stretch_of_single_units_counts() -> None:
    first = random(50, 8)
    assert linear_cka(first, first * torch.tensor([9.0, *[1.0] * 7])) < 0.9


def test_unrelated_states_of_many_rows_share_next_to_nothing() -> None:
    assert linear_cka(random(5000, 4), random(5000, 4, seed=1)) < 0.01


def test_a_side_that_does_not_vary_says_nothing() -> None:
    assert linear_cka(torch.full((9, 3), 7.0), random(9, 3)) == 0.0


def test_sums_over_batches_give_what_all_rows_give() -> None:
    first, second = (
        random(30, 5) + 100,
        random(30, 3, seed=1),
    )  # far from the origin: sums that were not in float64 would lose the digits
    parts = moments_of(first[:7], second[:7]) + moments_of(first[7:], second[7:])
    assert linear_cka_of(parts) == pytest.approx(linear_cka(first - 100, second), abs=1e-6)


@pytest.mark.parametrize("token", ["cls", "mean"])
def test_the_cosine_between_models_is_blind_to_padding(token: str) -> None:
    before, after = [random(2, 3, 5, seed=seed) for seed in (0, 1)], [random(2, 3, 5, seed=seed) for seed in (2, 3)]
    expected = between_models_BL(before, after, MASK, token=token)
    assert expected.shape == (2, 2)
    wider = [[pad(states, (0, 0, 0, 4), value=9.0) for states in model] for model in (before, after)]
    torch.testing.assert_close(between_models_BL(*wider, pad(MASK, (0, 4)), token=token), expected)
    torch.testing.assert_close(between_models_BL(before, before, MASK, token=token), torch.ones(2, 2))


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ModelError, match="on the same rows"):
        linear_cka(random(4, 2), random(5, 2))
    with pytest.raises(ModelError, match="differ in depth or width"):
        between_models_BL([random(2, 3, 5)], [random(2, 3, 4)], MASK)
    with pytest.raises(ModelError, match="differ in depth or width"):
        between_models_BL([random(2, 3, 5)], [random(2, 3, 5)] * 2, MASK)
    with pytest.raises(RecipeError, match="cls, last, mean"):
        between_models_BL([random(2, 3, 5)], [random(2, 3, 5)], MASK, token="first")
