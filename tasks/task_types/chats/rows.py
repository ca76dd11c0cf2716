"""Rows of chats: lists of messages, and no label. What is counted is what the assistant says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, TableGuess, TableRows
from tasks.task_types.next_words.rows import CHAT_COLUMNS, judging_counts, stored_counts
from tasks.task_types.next_words.rows import READER as DOCUMENTS
from tasks.task_types.texts.messages import said_by_assistant
from tasks.task_types.types import CHAT, NO_LABEL

FIT_OF_CHATS = 0.9
"""How well a table with a column of messages fits."""


def answers_alone(rows: TableRows) -> TableRows:
    """Return rows whose texts are what the assistant says."""
    texts = [said_by_assistant(text) if isinstance(text, str) else text for text in rows.columns["text"]]
    return replace(rows, columns={**rows.columns, "text": texts})


def counts_of_answers(rows: TableRows, names: Sequence[str] | None) -> list[str | None]:
    """Return of each chat the number of the assistant's words and line ends, of its bytes, and the nats that they take
    where each word is as likely as it is frequent; None for a row without a chat."""
    return stored_counts(answers_alone(rows), names)


def judging_chats(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[str | None], list[int] | None]:
    """Return the labels of a judging set. Raises DataError for a mapping of classes, which chats do not have."""
    return judging_counts(answers_alone(rows), given, names)


def words_of_assistant(text: str, label: Any) -> str:
    """Return what is learned of a chat: the messages of the assistant."""
    return said_by_assistant(text)


def is_chats(values: Sequence[Any]) -> bool:
    """Tell whether all cells of a column that are not empty are lists of messages, or their JSON."""
    given = [value for value in values if value]
    return bool(given) and all(map(is_list_of_messages, given))


def is_list_of_messages(cell: Any) -> bool:
    """Tell whether a cell is a list of mappings, or its JSON, as csv files have it."""
    if isinstance(cell, str):
        if not cell.lstrip().startswith("[{"):
            return False
        try:
            cell = json.loads(cell)
        except ValueError:
            return False
    return isinstance(cell, list) and all(isinstance(one, Mapping) for one in cell)


def have_roles(values: Sequence[Any]) -> bool:
    """Tell whether the first cell of a column that is not empty is a list of messages that state who says them."""
    first = next((value for value in values if value), "[]")
    cell = json.loads(first) if isinstance(first, str) else first
    return all("role" in one or "from" in one for one in cell)


def column_of_chats(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the column of messages of a table, by a usual name, or the only one with roles; None if there is none."""
    found = [name for name in CHAT_COLUMNS if name in columns and is_chats(columns[name])]
    if not found:
        others = [name for name in columns if is_chats(columns[name]) and have_roles(columns[name])]
        found = others if len(others) == 1 else []
    if not found:
        return None
    return ColumnChoice(found[0], None, NO_LABEL.role, why_text="lists of messages")


def guess_chats(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of chats would be used; None for any other table."""
    if chosen.text not in columns or not is_chats(columns[chosen.text]):
        return None
    reason = "lists of messages: what the assistant says is what is learned"
    return TableGuess(FIT_OF_CHATS, reason, ("word_perplexity", "token_perplexity", "bits_per_byte"))


READER = replace(
    DOCUMENTS,
    columns=(CHAT, NO_LABEL),
    labels=counts_of_answers,
    judging_labels=judging_chats,
    guess=guess_chats,
    columns_of=column_of_chats,
    written=words_of_assistant,
)
