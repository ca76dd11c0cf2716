"""Formulae of mixers written a second time, token by token in numpy, on padded texts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy import ndarray

from tasks.modeling.growth import peak_bytes
from tasks.modeling.mixers.dynamic import dynamic_convolution
from tasks.modeling.mixers.favor import favor_attention
from tasks.modeling.mixers.light import light_convolution, without_padding
from tasks.modeling.mixers.linear import linear_attention
from tasks.modeling.mixers.linformer import projected
from tasks.modeling.mixers.mixers import mixer_of
from tasks.modeling.mixers.softmax import softmax_attention
from tests.methods.golden.case import drawn

EXACT = {"rtol": 1e-10, "atol": 1e-12}
LENGTHS = (5, 3)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
QUERY, KEY, VALUE = (drawn(seed, 2, 2, 5, 4, reach=1) for seed in (1, 2, 3))
DIRECTIONS = drawn(4, 6, 4, reach=1)


def softmax(logits: ndarray) -> ndarray:
    """Shares that sum to 1."""
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def by_weights(weights_of: Callable[..., ndarray], *, causal: bool, below: float = 0.0) -> ndarray:
    """Mean of values by weights of a query and the keys that it may read; 0 at padding."""
    out = np.zeros_like(VALUE)
    for text, length in enumerate(LENGTHS):
        for head in range(2):
            for token in range(length):
                end = token + 1 if causal else length
                weights = weights_of(QUERY[text, head, token], KEY[text, head, :end], KEY[text, head, :length])
                out[text, head, token] = weights @ VALUE[text, head, :end] / (weights.sum() + below)
    return out


def favor_weights(query: ndarray, keys: ndarray, every: ndarray) -> ndarray:
    """Products of positive features."""
    scale = 4**-0.25

    def features(states: ndarray, largest: ndarray | float) -> ndarray:
        length = (states**2).sum(-1, keepdims=True) / (2 * 2.0)
        return (np.exp(states @ DIRECTIONS.T * scale - length - largest) + 1e-4) / np.sqrt(6)

    return features(keys, (every @ DIRECTIONS.T * scale).max()) @ features(query, (query @ DIRECTIONS.T * scale).max())


def linear_weights(query: ndarray, keys: ndarray, every: ndarray) -> ndarray:
    """Products of elu + 1."""

    def features(states: ndarray) -> ndarray:
        return np.where(states > 0, states + 1, np.exp(np.minimum(states, 0)))

    return features(keys) @ features(query)


def softmax_weights(query: ndarray, keys: ndarray, every: ndarray) -> ndarray:
    """Powers of scores."""
    return np.exp(keys @ query / 2.0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["softmax", "linear", "favor"])
def test_attentions(name: str, causal: bool) -> None:
    query, key, value, directions, mask = map(torch.from_numpy, (QUERY, KEY, VALUE, DIRECTIONS, MASK))
    expected, close = {
        "softmax": lambda: (by_weights(softmax_weights, causal=causal), EXACT),
        "linear": lambda: (by_weights(linear_weights, causal=causal, below=1e-6), EXACT),
        # a causal one adds 1e-6 to each sum of keys
        "favor": lambda: (by_weights(favor_weights, causal=causal), {"rtol": 1e-4, "atol": 1e-4} if causal else EXACT),
    }[name]()
    if name == "favor":
        found = favor_attention(query, key, value, directions, mask, causal=causal)
    else:
        found = {"softmax": softmax_attention, "linear": linear_attention}[name](query, key, value, mask, causal=causal)
    tokens = MASK.astype(bool)[:, None, :, None]
    np.testing.assert_allclose(np.where(tokens, found.numpy(), 0), expected, **close)


@pytest.mark.parametrize("causal", [False, True])
def test_convolutions(causal: bool) -> None:
    states, logits, own = drawn(5, 2, 5, 4, reach=1), drawn(6, 2, 3, reach=1), drawn(7, 2, 5, 2, 3, reach=1)
    light, dynamic = np.zeros_like(states), np.zeros_like(states)
    before = 2 if causal else 1
    for text, length in enumerate(LENGTHS):
        for token in range(5):
            for channel in range(4):
                for place in range(3):
                    source, head = token + place - before, channel // 2
                    if 0 <= source < length:
                        read = states[text, source, channel]
                        light[text, token, channel] += softmax(logits[head])[place] * read
                        dynamic[text, token, channel] += softmax(own[text, token, head])[place] * read
    kept = without_padding(torch.from_numpy(states), torch.from_numpy(MASK))
    found = light_convolution(kept, torch.from_numpy(logits).softmax(-1), causal=causal)
    np.testing.assert_allclose(found.numpy(), light, **EXACT)
    found = dynamic_convolution(kept, torch.from_numpy(own).softmax(-1), causal=causal)
    np.testing.assert_allclose(found.numpy(), dynamic, **EXACT)


def test_linformers_keys_are_sums_over_tokens_alone() -> None:
    states, projection = drawn(8, 2, 5, 4), drawn(9, 7, 3)
    found = projected(torch.from_numpy(states), torch.from_numpy(MASK), torch.from_numpy(projection))
    for text, length in enumerate(LENGTHS):
        expected = sum(np.outer(projection[place], states[text, place]) for place in range(length))
        np.testing.assert_allclose(found[text].numpy(), expected, **EXACT)


def test_a_dynamic_convolution_does_not_hold_all_windows_at_once() -> None:
    """31 times the text, beyond some length, is memory for which it waits."""
    states, shares = torch.randn(1, 256, 64), torch.randn(1, 256, 4, 31).softmax(-1)
    assert 2 * states.nbytes <= peak_bytes(lambda: states + 1 + 1) < 2.1 * states.nbytes
    assert states.nbytes < peak_bytes(lambda: dynamic_convolution(states, shares)) < 5 * states.nbytes


@pytest.mark.parametrize("mixer", ["light", "dynamic", "lsra"])
def test_a_further_word_costs_a_convolution_no_more_behind_a_long_text(mixer: str) -> None:
    """It had masked and padded all tokens before: 35 times the time behind 4,096 of them."""
    sizes: dict[str, Any] = {"num_attention_heads": 4, "hidden_size": 64, "attention_probs_dropout_prob": 0.0}
    sizes |= {"mixer": [mixer], "mixer_kernels": [7], "max_position_embeddings": 4096}
    mixing, states = mixer_of(SimpleNamespace(**sizes), 0, causal=True), torch.randn(1, 4096, 64)
    short = mixing.short if mixer == "lsra" else mixing
    with torch.no_grad():
        near = states[..., 32:] if mixer == "lsra" else states
        kept, mask = short.kept(near), torch.ones(1, 4096)
        assert peak_bytes(lambda: short.read(near[:, -1:], kept, mask)) < kept.nbytes / 20
        few = short.read(near[:, -1:], kept[:, -7:], mask[:, -7:])
        torch.testing.assert_close(short.read(near[:, -1:], kept, mask), few, rtol=0, atol=0)
