"""What every mixer owes: no token reads padding, a causal one nothing after itself, and a fixed size is stated."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tasks.modeling.configuration import LimbeckEncoderConfig
from tasks.modeling.encoder import LimbeckEncoderForSequenceClassification
from tasks.modeling.mixers.local import local_attention
from tasks.modeling.mixers.mixers import MIXERS, SYNTHESIZERS, mixer_of
from tasks.modeling.mixers.softmax import softmax_attention
from tasks.modeling.mixers.synthesizers.dense_factorized import product_logits
from tasks.modeling.names import BLEND, MIXER_NAMES, SYNTHESIZER_NAMES, is_of_fixed_size

LENGTHS = (17, 11, 5)


def config_with(mixer: str, **sizes: Any) -> LimbeckEncoderConfig:
    """Return a small config with one mixer in all layers."""
    own = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32}
    return LimbeckEncoderConfig(
        **{**own, "mixer": mixer, "max_position_embeddings": 24, "mixer_window": 4, "mixer_rank": 5, **sizes}
    )


def encoder_with(mixer: str, **sizes: Any) -> Any:
    """Return a small classifier in float64 whose every weight counts."""
    torch.manual_seed(0)
    model = LimbeckEncoderForSequenceClassification(config_with(mixer, **sizes)).double().eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.2)
    return model


@pytest.mark.parametrize("mixer", MIXER_NAMES)
def test_a_text_alone_is_read_as_in_a_padded_batch(mixer: str) -> None:
    model, ids_BT = encoder_with(mixer), torch.arange(1, 52).reshape(3, 17) % 50
    mask_BT = (torch.arange(17)[None] < torch.tensor(LENGTHS)[:, None]).long()
    with torch.no_grad():
        together = model.limbeck(ids_BT, mask_BT).last_hidden_state
        other = model.limbeck(torch.where(mask_BT.bool(), ids_BT, 7), mask_BT).last_hidden_state
        for row, length in enumerate(LENGTHS):
            alone = model.limbeck(ids_BT[row : row + 1, :length]).last_hidden_state[0]
            torch.testing.assert_close(together[row, :length], alone, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(other[row, :length], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mixer", [name for name in MIXER_NAMES if name != "linformer"])
def test_a_causal_mixer_reads_nothing_after_a_token(mixer: str) -> None:
    """FAVOR+ subtracts the largest exponent of all keys, which cancels but for its floor of 1e-4."""
    torch.manual_seed(0)
    found = mixer_of(config_with(mixer), 1, causal=True).double().eval()
    with torch.no_grad():
        found.draw_weights(0.5)
        states_BTD = torch.randn(1, 9, 16, dtype=torch.float64)
        changed_BTD = states_BTD.clone()
        changed_BTD[:, 6:] += 1.0
        mask_BT = torch.ones(1, 9)
        before, after = (found(states, mask_BT) for states in (states_BTD, changed_BTD))
    close = {"rtol": 1e-2, "atol": 1e-3} if mixer == "favor" else {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(before[:, :6], after[:, :6], **close)
    assert not torch.allclose(before[:, 6:], after[:, 6:], atol=1e-3)


def test_linformer_cannot_be_causal() -> None:
    with pytest.raises(ValueError, match="linformer cannot be causal, because its keys have read the whole text"):
        mixer_of(config_with("linformer"), 0, causal=True)


@pytest.mark.parametrize("mixer", [name for name in MIXER_NAMES if is_of_fixed_size(name)])
def test_a_longer_text_than_a_mixer_was_built_for_is_refused(mixer: str) -> None:
    found = mixer_of(config_with(mixer), 0).eval()
    with pytest.raises(ValueError, match=r"the input has 25 tokens, and [\w-]+ was built for at most 24; truncate"):
        found(torch.zeros(1, 25, 16), torch.ones(1, 25))


def test_names_are_those_of_the_mixers() -> None:
    assert set(SYNTHESIZERS) == set(SYNTHESIZER_NAMES)
    assert {*MIXERS, *SYNTHESIZERS, *(f"{name}{BLEND}" for name in SYNTHESIZERS)} == set(MIXER_NAMES)


def test_local_attention_with_one_block_is_softmax_attention() -> None:
    query, key, value = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    mask_BT = (torch.arange(9)[None] < torch.tensor([9, 6])[:, None]).double()
    for causal in (False, True):
        ours = local_attention(query, key, value, mask_BT, 9, causal=causal)
        torch.testing.assert_close(ours, softmax_attention(query, key, value, mask_BT, causal=causal))


def test_local_attention_reads_its_block_both_neighbours_and_the_first_token() -> None:
    """By the gradient of one token's output."""
    query, key = torch.randn(2, 1, 1, 16, 4)
    value = torch.randn(1, 1, 16, 4, requires_grad=True)
    local_attention(query, key, value, torch.ones(1, 16), 3)[0, 0, 10].sum().backward()
    assert value.grad is not None
    assert value.grad[0, 0].abs().sum(-1).nonzero().flatten().tolist() == [0, *range(6, 15)]


def test_factorized_dense_logits_are_products_of_both_lists() -> None:
    """Written a second time, place by place."""
    query, near, far = torch.rand(1, 1, 2, 3), torch.randn(3, 2), torch.randn(3, 3)
    logits = product_logits(query, near, far, 5)
    for token in range(2):
        for place in range(5):
            expected = (query[0, 0, token] @ near[:, place % 2]) * (query[0, 0, token] @ far[:, place // 2])
            torch.testing.assert_close(logits[0, 0, token, place], expected)
