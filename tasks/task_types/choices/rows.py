"""Rows of choices: a text, its options, and which of them is right.

The options are those of a column of lists (``{choices[]}`` as pair) or of several columns (``{choice1 | choice2}``),
with more text before or behind each (``{question} {choices[]}``). A label is the place of the right option from 0 on,
its text, its letter, the name of its column, or its key where a column of keys is named beside it (``answerKey,
choices_label``). It is stored with the number of options, as in ``1/4``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.task_types.choices.columns import columns_of_options, guess_options
from tasks.task_types.choices.options import options_in, place_text
from tasks.task_types.choices.places import (
    FEWEST_OPTIONS,
    are_letters_or_places,
    are_options_or_places,
    in_quotes,
    place_of_column,
    place_of_label,
)
from tasks.task_types.interfaces import JudgingLabels, Reader, TableRows
from tasks.task_types.texts.templates import Field, is_nothing, is_template, template_parts
from tasks.task_types.types import OPTIONS_COLUMN, RIGHT_OPTION, TEXT

if TYPE_CHECKING:
    import pyarrow as pa

PLACES_LOOKED_AT = 30
"""Places of right options from which on one of them is 0, unless they are counted from 1."""


def place_type() -> pa.DataType:
    """Return the Arrow type of places."""
    import pyarrow as pa

    return pa.string()


def no_names_of_options(rows: TableRows) -> None:
    """Return None: options are texts of their row, and no classes."""
    return None


# --- labels -----------------------------------------------------------------------------------------------------------


def right_places(rows: TableRows, names: Sequence[str] | None = None) -> list[str | None]:
    """Return the place of the right option of each row, None for an unlabelled row, or one without options. Raises
    DataError for a label that is none of the options, and for a single option."""
    found: list[str | None] = []
    columns = columns_of_template(rows.names.get("pair", ""))
    pairs: Sequence[Any] = rows.columns.get("pair", [None] * len(rows.columns["label"]))
    are_signs = are_letters_or_places(rows.columns["label"], pairs)
    if are_options_or_places(rows.columns["label"], pairs):
        raise DataError(
            f"{rows.file}: options are numbers, and so are the labels in column {rows.names['label']!r}, which may be "
            f"options or their places; write letters as labels"
        )
    for row, (pair, label) in enumerate(zip(pairs, rows.columns["label"], strict=True), start=1):
        if not isinstance(pair, str) or not pair.strip():  # told with the texts of the row
            found.append(None)
            continue
        options = options_in(pair)
        try:
            is_column = label in columns
            place = place_of_column(label, columns, options) if is_column else place_of_label(label, options, are_signs)
        except ValueError as error:
            raise DataError(f"{rows.file}, row {row}: {error} (column {rows.names['label']!r})") from None
        if len(options) < FEWEST_OPTIONS:
            raise DataError(
                f"{rows.file}, row {row}: there is one option, {in_quotes(options[0])}, and a choice needs "
                f"{FEWEST_OPTIONS}; write the pair as a list, {{choices[]}}, or as columns, {{choice1 | choice2}}"
            )
        found.append(None if place is None else place_text(place, len(options)))
    return found


def columns_of_template(template: str) -> list[str]:
    """Return the columns of which each holds an option; none where the options are a list."""
    parts = template_parts(template) if is_template(template) else []
    return next((part.columns for part in parts if isinstance(part, Field) and part.others), [])


def equal_options(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return a sentence about rows of which two options are equal: no model can tell them apart."""
    pairs = [options_in(pair) for pair in rows.columns.get("pair", ()) if isinstance(pair, str)]
    several = sum(len(set(options)) < len(options) for options in pairs)
    if not several:
        return []
    return [f"{rows.file}: {several:,} {'row has' if several == 1 else 'rows have'} two equal options"]


def places_from_one(rows: TableRows) -> list[str]:
    """Return a sentence about places of which none is 0, which may be counted from 1: every right option would then be
    its neighbour."""
    places = [int(label) for label in rows.columns["label"] if str(label).isdecimal()]
    if len(places) < PLACES_LOOKED_AT or len(places) < len(rows.columns["label"]) / 2 or min(places) != 1:
        return []
    where = f"in column {rows.names['label']!r}"
    return [f"{rows.file}: no place {where} is 0; if yours are counted from 1, subtract 1, or write letters"]


def require_a_choice(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Accept any places: a model does not see them."""


def shares_of_counts(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return no facts about the places of options."""
    return {}


def judging_places(rows: TableRows, given: JudgingLabels, names: Sequence[str] | None) -> tuple[list[str | None], None]:
    """Return the places of a judging set; there are no classes to merge."""
    return right_places(rows), None


def no_options_in_config(config: ModelConfig) -> None:
    """Return None: a model knows no options."""
    return None


def ask_beside_options(pair: str | None) -> bool:
    """Tell whether a template of options has another column beside each, such as the question: a row whose paragraph is
    empty is then asked without it."""
    parts = template_parts(pair) if pair and is_template(pair) else []
    fields = [part for part in parts if isinstance(part, Field)]
    return any(field.gives_lines for field in fields) and not all(field.gives_lines for field in fields)


def rows_about_options(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return sentences about rows with two equal options, and about rows that lack their paragraph."""
    told = [*equal_options(rows, names), *places_from_one(rows)]
    lacking = (
        sum(is_nothing(text) for text in rows.columns["text"]) if ask_beside_options(rows.names.get("pair")) else 0
    )
    where = f"in column {rows.names['text']!r}"
    return [*told, f"{rows.file}: {lacking:,} rows have no text {where}, and are asked without it"] if lacking else told


READER = Reader(
    columns=(TEXT, OPTIONS_COLUMN, RIGHT_OPTION),
    label_type=place_type,
    class_names=no_names_of_options,
    labels=right_places,
    require_labels=require_a_choice,
    label_facts=shares_of_counts,
    judging_labels=judging_places,
    names_in_config=no_options_in_config,
    guess=guess_options,
    rows_have_classes=False,
    notes=rows_about_options,
    asked_without_text=ask_beside_options,
    columns_of=columns_of_options,
)
