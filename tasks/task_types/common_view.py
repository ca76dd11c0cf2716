"""Examples and code that several task types share: of those with one row of logits for each text, or pair of texts, and
of those that write."""

from __future__ import annotations

import math
from typing import Any

LOGITS_OF_CHECKPOINT = 'logits = model(**tokenizer({text}, truncation=True, return_tensors="pt")).logits\n'
"""A line of code that asks a checkpoint for a tensor [1, C]."""
FEEDS = '{name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}'
LOGITS_OF_EXPORT = f'logits = session.run(["logits"], {FEEDS})[0][0]\n'
"""A line of code that asks an export for an array [C]."""
TAKES_LIKELIEST = (
    '    seen, size, penalty = [*before, *written], rules["no_repeat"], rules["repetition_penalty"]\n'
    "    logits[0, seen] *= np.where(logits[0, seen] < 0, penalty, 1 / penalty)\n"
    "    runs = range(size - 1, len(seen)) if size else ()  # of words, each of which occurs once\n"
    "    again = [seen[at] for at in runs if seen[at + 1 - size : at] == seen[len(seen) + 1 - size :]]\n"
    '    logits[0, [*rules["never"], *again]] = -np.inf\n'
    '    least = card.get("least", {"new": 0, "in_all": 0})\n'
    '    if len(written) < least["new"] or len(seen) < least["in_all"]:\n'
    '        logits[0, rules["ends"]] = -np.inf\n'
    '    prescribed = rules["last"] if len(written) == most - 1 else None if written else rules["first"]\n'
    "    word = int(logits[0].argmax()) if prescribed is None else prescribed\n"
    '    if word in rules["ends"]:\n'
    "        break\n"
    "    written.append(word)\n"
    "    following = [word]\n"
)
"""Lines of a loop that put the likeliest word by ``logits`` [1, V] behind the words ``written``, of ``most`` at most,
by the ``rules`` of a card; ``before`` are the words that stand before them."""


def example_text(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``text-classification``."""
    return [{"text": "first text", "text_pair": "second text"}] if pairs else ["some text"]


def example_arguments(pairs: bool) -> str:
    """Return an example as the arguments of a tokenizer."""
    return '"first text", "second text"' if pairs else '"some text"'


def two_digits(value: Any) -> str:
    """Return a value with two digits; a dash if it is undefined."""
    return f"{value:.2f}" if isinstance(value, (int, float)) and math.isfinite(value) else "—"
