"""Rows of word counts: a label is a whole number, at least 0, or empty in an unlabelled row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.errors import DataError
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.types import NUMBER, TEXT

if TYPE_CHECKING:
    import pyarrow as pa


def count_type() -> pa.DataType:
    """Return the Arrow type of counts."""
    import pyarrow as pa

    return pa.int64()


def no_class_names(rows: TableRows) -> None:
    """Return None: counts have no classes."""
    return None


def counts(rows: TableRows, names: Sequence[str] | None = None) -> list[int | None]:
    """Return labels as counts, or None for a missing one. Raises DataError for anything else."""
    for row, label in enumerate(rows.columns["label"], start=1):
        if label is not None and (not isinstance(label, int) or label < 0):
            raise DataError(f"{rows.file}, row {row}: the label {label!r} is no count; give a whole number, at least 0")
    return list(rows.columns["label"])


def accept_counts(split: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Accept any counts."""


def no_facts(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, Any]:
    """Return no facts."""
    return {}


def judging_counts(rows: TableRows, given: JudgingLabels, names: Sequence[str] | None) -> tuple[list[int | None], None]:
    """Return the labels of a judging set as counts."""
    return counts(rows), None


def no_names_in_config(config: Mapping[str, Any]) -> None:
    """Return None: counts have no names."""
    return None


def no_guess(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return None: no table is taken for one of word counts."""
    return None


READER = Reader(
    columns=(TEXT, NUMBER),
    label_type=count_type,
    class_names=no_class_names,
    labels=counts,
    require_labels=accept_counts,
    label_facts=no_facts,
    judging_labels=judging_counts,
    names_in_config=no_names_in_config,
    guess=no_guess,
)
