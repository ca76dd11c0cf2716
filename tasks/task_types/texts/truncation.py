"""Truncation of pairs: which of two texts is cut where both together are longer than a model's input.

The usual way cuts the longer of the two, token by token, and so the question too where the passage has become as short.
A task may name the text that alone is cut (``task.truncate``); a row whose other text alone fills the input is cut the
usual way. The tokenizer of a model states it in its settings, and an export on its card, so that every later reader of
the model cuts as its training did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Truncate = Literal["longest", "first", "second"]
TRUNCATIONS: dict[str, str] = {"first": "only_first", "second": "only_second"}
"""Names of transformers and tokenizers for the texts that are cut alone."""
STATED_TRUNCATION = "limbeck_truncation"
"""The name of the strategy in the settings of a tokenizer and on the card of an export."""


def state_truncation(tokenizer: Any, truncate: str) -> Any:
    """Write into the settings of a tokenizer which text of a pair is cut, and return it."""
    tokenizer.init_kwargs.pop(STATED_TRUNCATION, None)
    for named, strategy in TRUNCATIONS.items():
        if named == truncate:
            tokenizer.init_kwargs[STATED_TRUNCATION] = strategy
    return tokenizer


def stated_truncation(tokenizer: Any) -> str | None:
    """Return the strategy in a tokenizer's settings; None for the usual one."""
    found = tokenizer.init_kwargs.get(STATED_TRUNCATION)
    return found if found in TRUNCATIONS.values() else None


def cut_pairs(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, **options: Any
) -> Mapping[str, Sequence[Sequence[int]]]:
    """Tokenize rows in Python lists, cut as the tokenizer's settings state."""
    strategy = stated_truncation(tokenizer) if pairs is not None else None
    if strategy is None or pairs is None:
        return tokenized(tokenizer, texts, pairs, truncation=True, **options)
    most = options.pop("max_length")
    both = tokenized(tokenizer, texts, pairs, truncation=False, **options)
    long = [row for row, ids in enumerate(both["input_ids"]) if len(ids) > most]
    found = {name: list(values) for name, values in both.items()}
    for row in long:
        left = pairs[row] if strategy == "only_first" else texts[row]
        fits = len(tokenizer(left, add_special_tokens=False, verbose=False)["input_ids"]) + special(tokenizer) < most
        way = strategy if fits else True
        cut = tokenized(tokenizer, [texts[row]], [pairs[row]], truncation=way, max_length=most, **options)
        for name, (values,) in cut.items():
            found[name][row] = values
    return found


def batch_of(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, *, max_length: int, tensors: str
) -> Any:
    """Tokenize rows as one batch of tensors, cut as the tokenizer's settings state and padded; a tokenizer without a
    token to pad with takes one row alone."""
    padding = len(texts) > 1 or tokenizer.pad_token_id is not None
    if pairs is None or stated_truncation(tokenizer) is None:
        options = {"truncation": True, "max_length": max_length, "padding": padding, "return_tensors": tensors}
        return tokenizer(list(texts), None if pairs is None else list(pairs), **options)
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True  # its advice is not for rows cut by hand
    cut = cut_pairs(tokenizer, texts, pairs, max_length=max_length)
    return tokenizer.pad(dict(cut), padding=padding, return_tensors=tensors)


def special(tokenizer: Any) -> int:
    """Return the number of tokens that a tokenizer adds to a pair."""
    return int(tokenizer.num_special_tokens_to_add(pair=True))


def tokenized(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, **options: Any
) -> Mapping[str, Sequence[Sequence[int]]]:
    """Call a tokenizer on lists of texts."""
    found: Mapping[str, Sequence[Sequence[int]]] = tokenizer(
        list(texts), None if pairs is None else list(pairs), verbose=False, **options
    )
    return found
