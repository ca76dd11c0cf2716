"""Layer contribution: cosines by hand, blind to padding."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.contribution import cosines_BL, layer_cosines

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def states(count: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 5, generator=generator) for _ in range(count)]


def test_matches_the_definition_by_hand() -> None:
    before, after = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), torch.tensor([[[1.0, 1.0], [0.0, 2.0]]])
    mask = torch.ones(1, 2)
    assert layer_cosines([before, after], mask, token="cls").item() == pytest.approx(0.5**0.5)
    assert layer_cosines([before, after], mask, token="mean").item() == pytest.approx(0.5**0.5 / 2)


def test_a_layer_that_only_stretches_contributes_nothing() -> None:
    first = states(1)[0]
    cosines = layer_cosines([first, 3 * first, -first], MASK, token="mean")
    torch.testing.assert_close(cosines, torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("token", ["cls", "last", "mean"])
def test_padding_on_either_side_does_not_change_the_cosines(token: str) -> None:
    expected = cosines_BL(states(), MASK, token=token)
    right = cosines_BL([pad(s, (0, 0, 0, 4), value=9.0) for s in states()], pad(MASK, (0, 4)), token=token)
    left = cosines_BL([pad(s, (0, 0, 4, 0), value=9.0) for s in states()], pad(MASK, (4, 0)), token=token)
    torch.testing.assert_close(expected, right)
    torch.testing.assert_close(expected, left)


def test_the_summary_is_the_first_or_the_last_valid_token() -> None:
    first, last = (cosines_BL(states(), MASK, token=token) for token in ("cls", "last"))
    for row, at in enumerate((2, 1)):
        torch.testing.assert_close(
            first[row], torch.cosine_similarity(torch.stack(states())[:-1, row, 0], torch.stack(states())[1:, row, 0])
        )
        torch.testing.assert_close(
            last[row], torch.cosine_similarity(torch.stack(states())[:-1, row, at], torch.stack(states())[1:, row, at])
        )


def test_batches_add_up() -> None:
    whole = cosines_BL(states(), MASK, token="mean")
    parts = [cosines_BL([s[i : i + 1] for s in states()], MASK[i : i + 1], token="mean") for i in range(2)]
    assert whole.shape == (2, 3)
    torch.testing.assert_close(whole, torch.cat(parts))
    torch.testing.assert_close(layer_cosines(states(), MASK, token="mean"), whole.mean(0))


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(RecipeError, match="cls, last, mean"):
        layer_cosines(states(), MASK, token="first")
    with pytest.raises(ModelError, match="at least 2 hidden states"):
        layer_cosines([], MASK, token="cls")
    with pytest.raises(ModelError, match="at least 2 hidden states"):
        layer_cosines(states(), MASK[:, :2], token="cls")
