"""Rows of embedding: two texts and the score of their similarity. Training rows need no score: a student learns the
vectors of their texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import DataError
from tasks.task_types.common_rows import TRAIN_ROWS, are_numbers, is_amount, known_values, mean_words
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.regression.rows import no_class_names, no_facts, no_names_in_config, number_type
from tasks.task_types.types import SCORE, SECOND_TEXT, TEXT

UNSCORED = math.nan
"""The stored score of a row that has none."""
SIMILARITY_WORDS = ("sim", "similarity", "sts", "relatedness", "relatedness_score", "similarity_score")
"""Names of columns that hold similarities of texts."""
NAMED_SIMILARITY_FITS = 0.9
"""How well a table fits two texts whose score is named after their similarity."""
WORDS_OF_A_SENTENCE = 3


def pair_scores(rows: TableRows, names: Sequence[str] | None = None) -> list[float]:
    """Return scores as finite numbers; NaN where a row has none. Raises DataError for anything else."""
    return [read_score(label, rows.file, row) for row, label in enumerate(rows.columns["label"], start=1)]


def read_score(label: Any, file: str, row: int) -> float:
    """Return one score; ``row`` is counted from 1."""
    if label is None or label == "":
        return UNSCORED
    try:
        value = float(label)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{file}, row {row}: the score {label!r} is not a number; correct it, or leave it empty"
        ) from error
    if not math.isfinite(value):
        raise DataError(f"{file}, row {row}: the score is {value}; give a finite number, or leave it empty")
    return value


def require_scores(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Raise DataError if pairs that judge have no score, or all the same."""
    if where == TRAIN_ROWS:
        return
    unscored = sum(math.isnan(label) for label in labels)
    if unscored:
        raise DataError(
            f"{unscored:,} of the {len(labels):,} pairs of the {where} have no score, and judge nothing; "
            f"give each a score, or use kind: retrieval, whose pairs are queries and their passages"
        )
    if len(labels) > 1 and len(set(labels)) == 1:
        raise DataError(
            f"all {len(labels):,} pairs of the {where} have the score {labels[0]:g}, so none is more "
            f"similar than another; give scores that differ, or use kind: retrieval"
        )


def judging_scores(rows: TableRows, given: JudgingLabels, names: Sequence[str] | None) -> tuple[list[Any], None]:
    """Return the scores of a judging set, None for a pair without one; there are no classes to merge."""
    return [None if math.isnan(score) else score for score in pair_scores(rows)], None


def guess_scored_pairs(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of two texts with the score of their similarity would be used; None for any other table."""
    if chosen.pair is None:
        return None
    if chosen.label not in columns:
        reason = f"{chosen.text} and {chosen.pair} are texts to learn from; without scores they judge nothing"
        return TableGuess(NAMED_SIMILARITY_FITS, reason, ("spearman", "pearson"))
    labels = known_values(columns[chosen.label])
    if not are_numbers(labels) or not (is_amount(labels) or chosen.task is not None):
        return None
    if chosen.task is None and not is_named_similarity(chosen.label, [chosen.text, chosen.pair]):
        return None
    if min(mean_words(columns[name]) for name in (chosen.text, chosen.pair)) < WORDS_OF_A_SENTENCE:
        return None
    reason = (
        f"{chosen.label} scores how similar {chosen.text} and {chosen.pair} are, from {min(labels):g} to "
        f"{max(labels):g}; a model that reads both together may score them better, and "
        f"cannot search: for that, set kind: regression"
    )
    return TableGuess(NAMED_SIMILARITY_FITS, reason, ("spearman", "pearson"))


def is_named_similarity(label: str, texts: Sequence[str]) -> bool:
    """Tell whether a column is named after the similarity of two sentences."""
    words = label.lower().replace("-", "_").replace(" ", "_")
    return any(word in (words, *words.split("_")) for word in SIMILARITY_WORDS)


READER = Reader(
    columns=(TEXT, SECOND_TEXT, SCORE),
    label_type=number_type,
    class_names=no_class_names,
    labels=pair_scores,
    require_labels=require_scores,
    label_facts=no_facts,
    judging_labels=judging_scores,
    names_in_config=no_names_in_config,
    guess=guess_scored_pairs,
    reads_apart=True,
)
