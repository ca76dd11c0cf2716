"""Rows of documents: a text of any length, and no label. A label as it is stored counts what a document consists of.

Rows are documents, so whatever is said of rows elsewhere (no row that judges is among the training rows, or overlaps
with one; intervals draw rows) is said of whole documents. Documents that stand in several rows share a split where
``data.group`` names their column.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.task_types.common_rows import are_strings, choose_columns, mean_words
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.next_words.streams import as_stream
from tasks.task_types.types import DOCUMENT, NO_LABEL

if TYPE_CHECKING:
    import pyarrow as pa

LINE_END = "\n"
WORDS_OF_A_DOCUMENT = 20
"""Mean number of words from which on a column of texts without labels may hold documents."""
ONLY_FIT = 0.4
"""How well a table of texts without labels fits: types with labels fit better."""
CHAT_COLUMNS = ("messages", "conversations", "conversation")


def counts_type() -> pa.DataType:
    """Return the Arrow type of the counts of a document."""
    import pyarrow as pa

    return pa.string()


# --- counts -----------------------------------------------------------------------------------------------------------


def words_and_line_ends(text: str) -> Counter[str]:
    """Return how often each word occurs in a document, and the end of a line; the last line ends, too."""
    counted = Counter(text.split())
    counted[LINE_END] += text.count(LINE_END) + (not text.endswith(LINE_END))
    return counted


def stored_counts(rows: TableRows, names: Sequence[str] | None) -> list[str | None]:
    """Return of each document the number of its words and line ends, of its bytes, and the nats that it takes where
    each word is as likely as it is frequent among all documents; None for a row without a text. Raises DataError for
    labels, and for texts that are no documents."""
    label = rows.names["label"]
    if label != NO_LABEL.role:
        raise DataError(
            f"task.label names {label!r}, and a language model learns from the texts alone; leave label out, or name "
            f"another task.kind"
        )
    texts = rows.columns["text"]
    for row, text in enumerate(texts, start=1):
        require_document(rows, row, text)
    own = [words_and_line_ends(text) if is_document(text) else None for text in texts]
    total: Counter[str] = Counter()
    for counted in own:
        total.update(counted or {})
    every = sum(total.values())
    nats = {word: math.log(every / count) for word, count in total.items()}
    return [
        None if counted is None else counts_of(text, counted, nats) for text, counted in zip(texts, own, strict=True)
    ]


def counts_of(text: str, counted: Counter[str], nats: Mapping[str, float]) -> str:
    """Return words and line ends, bytes and nats of a document, from the nats of each word."""
    own = sum(many * nats[word] for word, many in counted.items())
    return f"{sum(counted.values())} {len(text.encode())} {own:.4f}"


def is_document(text: Any) -> bool:
    """Tell whether a cell is a text with a word."""
    return isinstance(text, str) and bool(text.strip())


def require_document(rows: TableRows, row: int, text: Any) -> None:
    """Raise DataError for a chat, and for a text that is no Unicode; other cells that are no texts are reported by the
    reader of tables."""
    where = f"{rows.file}, row {row}: the text in column {rows.names['text']!r}"
    if isinstance(text, list) and all(isinstance(one, Mapping) for one in text):
        raise DataError(f"{where} is a chat; set task.kind: chats, or write each as one text")
    if not isinstance(text, str):
        return
    if "\x00" in text:
        raise DataError(f"{where} contains the character NUL; it is no text file, or its encoding is another one")
    lone = next((place for place, sign in enumerate(text) if "\ud800" <= sign <= "\udfff"), None)
    if lone is not None:
        raise DataError(f"{where} has half of a surrogate pair at character {lone}; write the text as UTF-8 again")


def require_two_documents(rows: TableRows) -> None:
    """Return no classes, which documents do not have. Raises DataError for fewer than two documents: none could be held
    back."""
    count = sum(map(is_document, rows.columns["text"]))
    if count == 1:
        raise DataError(
            f"{rows.file} has one document, and one at least is held back to judge; write each document as a row of "
            f"its own, or hold out fewer"
        )


def no_names_of_words(config: ModelConfig) -> None:
    """Documents have no classes."""


def any_documents(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Accept any documents: each can be judged."""


def no_facts_of_documents(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return no facts: rows state neither names of labels nor their shares."""
    return {}


def judging_counts(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[str | None], list[int] | None]:
    """Return the labels of a judging set. Raises DataError for a mapping of classes, which documents do not have."""
    if given.classes or given.meanings:
        raise DataError(f"{given.place}: documents have no classes; leave classes and labels out of its section")
    return stored_counts(rows, names), None


# --- tables without a recipe ------------------------------------------------------------------------------------------


def columns_of_documents(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the column of documents of a table without labels; None where another column may hold some."""
    if any(name in columns for name in CHAT_COLUMNS) or choose_columns(columns) is not None:
        return None
    found = [
        name for name in columns if are_strings(columns[name]) and mean_words(columns[name]) >= WORDS_OF_A_DOCUMENT
    ]
    if len(found) != 1:
        return None
    return ColumnChoice(found[0], None, NO_LABEL.role, why_text="long texts, and no column is a label of them")


def guess_documents(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of documents would be used, also of one with a label where the type is asked for; None for any
    other table."""
    if chosen.pair is not None or (chosen.label in columns and chosen.task is None):
        return None
    words = mean_words(columns[chosen.text])
    if not are_strings(columns[chosen.text]) or not words:
        return None
    reason = f"texts of {words:,.0f} words on average without a label: the next word is what is learned"
    return TableGuess(ONLY_FIT, reason, ("word_perplexity", "token_perplexity", "bits_per_byte"))


READER = Reader(
    columns=(DOCUMENT, NO_LABEL),
    label_type=counts_type,
    class_names=require_two_documents,
    labels=stored_counts,
    require_labels=any_documents,
    label_facts=no_facts_of_documents,
    judging_labels=judging_counts,
    names_in_config=no_names_of_words,
    guess=guess_documents,
    rows_have_classes=False,
    columns_of=columns_of_documents,
    joined=as_stream,
)
