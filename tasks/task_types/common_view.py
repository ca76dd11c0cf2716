"""Examples and code that task types with one row of logits for each text, or pair of texts, share."""

from __future__ import annotations

import math
from typing import Any

LOGITS_OF_CHECKPOINT = 'logits = model(**tokenizer({text}, truncation=True, return_tensors="pt")).logits\n'
"""A line of code that asks a checkpoint for a tensor [1, C]."""
FEEDS = '{name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}'
LOGITS_OF_EXPORT = f'logits = session.run(["logits"], {FEEDS})[0][0]\n'
"""A line of code that asks an export for an array [C]."""


def example_text(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``text-classification``."""
    return [{"text": "first text", "text_pair": "second text"}] if pairs else ["some text"]


def example_arguments(pairs: bool) -> str:
    """Return an example as the arguments of a tokenizer."""
    return '"first text", "second text"' if pairs else '"some text"'


def two_digits(value: Any) -> str:
    """Return a value with two digits; a dash if it is undefined."""
    return f"{value:.2f}" if isinstance(value, (int, float)) and math.isfinite(value) else "—"
