"""The readers of rows of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.errors import DataError
from tasks.task_types.chats.rows import READER as CHATS
from tasks.task_types.choices.rows import READER as CHOICES
from tasks.task_types.classification.rows import READER as CLASSIFICATION
from tasks.task_types.embedding.rows import READER as EMBEDDING
from tasks.task_types.interfaces import ColumnChoice, Reader
from tasks.task_types.masked_words.rows import READER as MASKED_WORDS
from tasks.task_types.multi_label.rows import READER as MULTI_LABEL
from tasks.task_types.next_words.rows import READER as NEXT_WORDS
from tasks.task_types.ranking.rows import READER as RANKING
from tasks.task_types.regression.rows import READER as REGRESSION
from tasks.task_types.retrieval.rows import READER as RETRIEVAL
from tasks.task_types.seq2seq.rows import READER as SEQ2SEQ
from tasks.task_types.spans.rows import READER as SPANS
from tasks.task_types.tokens.rows import READER as TOKENS
from tasks.task_types.types import NO_LABEL

READERS: dict[str, Reader] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "choices": CHOICES,
    "tokens": TOKENS,
    "multi-label": MULTI_LABEL,
    "spans": SPANS,
    "embedding": EMBEDDING,
    "retrieval": RETRIEVAL,
    "ranking": RANKING,
    "next-words": NEXT_WORDS,
    "chats": CHATS,
    "masked-words": MASKED_WORDS,
    "seq2seq": SEQ2SEQ,
}


def columns_of_types(file: str, values: Mapping[str, Sequence[Any]], task: str | None) -> ColumnChoice | None:
    """Return columns that a single type of task can read, with that type; None if there are none. Raises DataError for
    columns of a type that it cannot read as they are."""
    # Graded texts of a query first: a list of their addresses, which are words, and grades are no tokens with tags.
    # Documents last: long texts beside their summaries are no language model's.
    every = sorted(READERS, key=lambda name: (NO_LABEL in READERS[name].columns, name != "ranking"))
    for name in [task] if task in READERS else every:
        find = READERS[name].columns_of
        try:
            found = None if find is None else find(values)
        except DataError as error:
            raise DataError(f"{file}: {error}") from error
        if found is not None:
            return replace(found, task=name)
    return None


def able_to_read(labels: Sequence[Any]) -> list[str]:
    """Return the types of task that may have such labels: lists and objects are for some alone."""
    nested = any(isinstance(value, (list, dict)) for value in labels)
    lists = [name for name, one in READERS.items() if one.columns_of or any(column.several for column in one.columns)]
    return lists if nested else list(READERS)
