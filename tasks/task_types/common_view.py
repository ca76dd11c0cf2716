"""Examples and code that task types with one row of logits for each text, or pair of texts, share."""

from __future__ import annotations

import math
from typing import Any

from tasks.task_types.interfaces import Code


def example_text(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``text-classification``."""
    return [{"text": "first text", "text_pair": "second text"}] if pairs else ["some text"]


def example_arguments(pairs: bool) -> str:
    """Return an example as the arguments of a tokenizer."""
    return '"first text", "second text"' if pairs else '"some text"'


def code_of_logits(*, checkpoint: str, export: str) -> Code:
    """Return the code that asks for ``logits``, followed by a line that prints the prediction: of a checkpoint from a
    tensor [1, C], of an export from an array [C]."""
    feeds = '{name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}'
    return Code(
        text=example_arguments,
        checkpoint=f'logits = model(**tokenizer({{text}}, truncation=True, return_tensors="pt")).logits\n{checkpoint}',
        export=f'logits = session.run(["logits"], {feeds})[0][0]\n{export}',
    )


def two_digits(value: Any) -> str:
    """Return a value with two digits; a dash if it is undefined."""
    return f"{value:.2f}" if isinstance(value, (int, float)) and math.isfinite(value) else "—"
