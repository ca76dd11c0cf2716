"""Rows of retrieval: a query, and a passage that answers it. A row may be marked 0: its passage does not answer its
query, and is one more that every query searches, its own one, too. Where rows judge, such a passage is stored without
its query, which would count it among its answers: ranks are computed from vectors, and do not know the marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import DataError
from tasks.task_types.common_rows import TRAIN_ROWS, are_numbers, are_strings, choose_columns, known_values, mean_words
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.regression.rows import no_class_names, no_facts, no_names_in_config, number_type
from tasks.task_types.texts.text_fields import name_has
from tasks.task_types.types import PASSAGE, RELEVANCE, TEXT

QUERY_WORDS = ("query", "question", "anchor", "search")
PASSAGE_WORDS = ("passage", "context", "document", "paragraph", "positive")
"""Usual names of the columns of queries and of passages."""
NAMED_QUERY_FITS = 0.95
"""How well a table fits whose columns have such names."""
FEWEST_PASSAGES = 11
"""Passages among which ten are not all."""
ANSWERED = 0.5
"""Share of the queries with a passage marked 0 that must have another one that answers them: where most have none, the
marks answer the queries themselves, as yes and no."""


def relevance(rows: TableRows, names: Sequence[str] | None = None) -> list[float]:
    """Return 1 for a passage that answers its query, which a row without a mark does, and 0 for another one. Raises
    DataError for any other mark."""
    return [read_mark(label, rows.file, row) for row, label in enumerate(rows.columns["label"], start=1)]


def read_mark(label: Any, file: str, row: int) -> float:
    """Return one mark; ``row`` is counted from 1."""
    if label is None or label == "":
        return 1.0
    if label in (0, 1, "0", "1"):
        return float(label)
    raise DataError(
        f"{file}, row {row}: the mark {label!r} is neither 1 (the passage answers the query) nor 0 (it does not); "
        f"correct it, or leave it empty for 1"
    )


def require_passages(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Raise DataError if rows that judge have no query with a passage."""
    if where != TRAIN_ROWS and labels and not any(labels):
        raise DataError(f"no passage of the {where} answers its query; mark rows whose passage does by 1")


def require_several_passages(where: str, passages: Sequence[str | None]) -> None:
    """Raise DataError if rows that judge have so few different passages that any search finds all."""
    count = len({*passages})
    if 0 < count < FEWEST_PASSAGES:
        raise DataError(
            f"the {where} has {count} different passages, and among at most ten every search finds all; hold out at "
            f"least {FEWEST_PASSAGES}"
        )


def repeated_pairs(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return a sentence about rows that repeat a query with its passage: each is ranked behind the others, so
    that their figures fall."""
    both = [pair for pair in zip(rows.columns["text"], rows.columns.get("pair", ()), strict=False) if None not in pair]
    more = len(both) - len(set(both))
    told = "repeat a query with its passage, and are ranked behind one another; remove them"
    return [f"{rows.file}: {more:,} rows {told}"] if more else []


def is_passage_alone(mark: Any) -> bool:
    """Tell whether a row with this mark brings a passage, and no query that it answers."""
    return mark == 0


def judging_relevance(rows: TableRows, given: JudgingLabels, names: Sequence[str] | None) -> tuple[list[Any], None]:
    """Return the marks of a judging set; there are no classes to merge."""
    return list(relevance(rows)), None


def columns_of_search(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of queries and of their passages, by their names, in a table without labels; None where there
    are none, or another column may hold labels."""
    texts = [name for name in columns if are_strings(columns[name]) and not name.lower().endswith("id")]
    query = next((name for name in texts if name_has(name, QUERY_WORDS)), None)
    passage = next((name for name in texts if name != query and name_has(name, PASSAGE_WORDS)), None)
    if query is None or passage is None or choose_columns(columns) is not None:
        return None
    return ColumnChoice(query, passage, RELEVANCE.role, why_text="a query; the passage beside it answers it")


def guess_queries(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of queries and passages would be used; None for any other table."""
    if chosen.pair is None:
        return None
    named = name_has(chosen.text, QUERY_WORDS) and name_has(chosen.pair, PASSAGE_WORDS)
    if not named and chosen.task is None:
        return None
    marks = columns.get(chosen.label, ())
    labels = known_values(marks)
    if labels and not (are_numbers(labels) and set(labels) <= {0, 1}):
        return None
    if chosen.task is None and 0 in labels and not are_answered(columns[chosen.text], marks):
        return None
    mean = mean_words(columns[chosen.pair])
    unread = "; ".join(["", *(f"{name} is not read" for name in columns if name_has(name, ("negative",)))])
    reason = f"{chosen.pair} is a passage ({mean:.0f} words on average) that answers {chosen.text}{unread}"
    return TableGuess(NAMED_QUERY_FITS, reason, ("ndcg_at_10", "mrr_at_10", "recall_at_10"))


def are_answered(queries: Sequence[Any], marks: Sequence[Any]) -> bool:
    """Tell whether most queries with a passage that is marked 0 have another passage that answers them."""
    wrong, right = ({query for query, mark in zip(queries, marks, strict=True) if mark == own} for own in (0, 1))
    return len(wrong & right) >= ANSWERED * len(wrong)


READER = Reader(
    columns=(TEXT, PASSAGE, RELEVANCE),
    label_type=number_type,
    class_names=no_class_names,
    labels=relevance,
    require_labels=require_passages,
    label_facts=no_facts,
    judging_labels=judging_relevance,
    names_in_config=no_names_in_config,
    guess=guess_queries,
    notes=repeated_pairs,
    columns_of=columns_of_search,
    reads_apart=True,
    require_pairs=require_several_passages,
    second_alone=is_passage_alone,
)
