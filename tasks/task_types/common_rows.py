"""Columns of a table of one text or two texts and one label, found without a recipe, for types that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LABEL_COLUMNS = ("label", "labels", "target", "class", "score", "sentiment", "category")
"""Usual names of a column of labels."""
ANY_TEXT_FITS = 0.5
"""How well a table fits that has a text and a label: types that find columns of their own fit better."""
WORDS_OF_A_SECOND_TEXT = 3
"""Mean number of words from which on a second column of strings is a second text."""


@dataclass(frozen=True)
class TextColumns:
    """Names of the columns of texts and labels."""

    text: str
    pair: str | None
    label: str

    def lines(self) -> list[str]:
        """Return the lines of a recipe's section ``task``."""
        pair = [f"pair: {self.pair}        # a second text column; remove it if it is not one"] if self.pair else []
        return [f"text: {self.text}        # the longest text column", *pair, f"label: {self.label}"]


def text_columns(columns: Mapping[str, Sequence[Any]]) -> TextColumns | None:
    """Return the columns of a table that hold its texts and labels; None if there is no text beside the labels."""
    label = next((name for name in columns if name.lower() in LABEL_COLUMNS), None)
    label = label or min(columns, key=lambda name: len(set(map(str, columns[name]))))
    words = {name: mean_words(columns[name]) for name in columns if name != label}
    texts = [name for name in sorted(words, key=lambda name: -words[name]) if starts_with_strings(columns[name])]
    if not texts:
        return None
    if len(texts) < 2 or words[texts[1]] < WORDS_OF_A_SECOND_TEXT:
        return TextColumns(texts[0], None, label)
    first, second = sorted(texts[:2], key=list(columns).index)
    return TextColumns(first, second, label)


def mean_words(values: Sequence[Any]) -> float:
    """Return the mean number of words of the values that are there."""
    counts = [len(str(value).split()) for value in values if value is not None]
    return sum(counts) / len(counts) if counts else 0.0


def starts_with_strings(values: Sequence[Any]) -> bool:
    """Tell whether the first 50 values are strings."""
    return all(isinstance(value, str) for value in values[:50])


def has_fractions(values: Sequence[Any]) -> bool:
    """Tell whether a value is no whole number."""
    return any(isinstance(value, float) and value != int(value) for value in values if value is not None)
