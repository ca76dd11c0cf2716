"""Rows of documents whose hidden tokens are found; they are read, and counted, as those of next words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.task_types.interfaces import ColumnChoice, TableGuess
from tasks.task_types.next_words.rows import ONLY_FIT, guess_documents
from tasks.task_types.next_words.rows import READER as DOCUMENTS

BEHIND_NEXT_WORDS = ONLY_FIT - 0.1
"""How well a table of documents fits: both types read the same tables."""


def guess_hidden_words(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of documents would be used; None for any other table."""
    found = guess_documents(columns, chosen)
    if found is None:
        return None
    reason = found.reason.replace("the next word is what is learned", "hidden words are what is learned")
    return replace(found, fit=BEHIND_NEXT_WORDS, reason=reason, metrics=("masked_perplexity",))


READER = replace(DOCUMENTS, guess=guess_hidden_words)
