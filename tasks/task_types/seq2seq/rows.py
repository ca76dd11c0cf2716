"""Rows of sources, each with the text to write: one, or several right ones.

A model learns to write the first of several, and is judged beside all. As it is stored, a label is the right texts with
the sign between records between them. Rows whose sources are alike share a fate in splits: what leaks is a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.metrics.of_texts import BETWEEN_REFERENCES, references_in
from tasks.task_types.common_rows import are_strings, mean_words
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.types import SOURCE_TEXT, TARGET

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_WORDS = 2.0
"""Mean number of words of a target from which on a column of texts is no column of class names."""
USUAL_FIT, UNUSUAL_FIT = 0.95, 0.6
"""How well a table fits whose columns have the usual names, and another one of two columns of texts."""
FORBIDDEN = {"\x00": "NUL", BETWEEN_REFERENCES: "RS (between records)"}
LANGUAGES = "translation."
"""How the columns begin that are fields of a column of sentence pairs, as data sets of translations have them."""
USUAL_TARGETS = (TARGET.usual, "translation", "summary", "references", "highlights")


def texts_type() -> pa.DataType:
    """Return the Arrow type of stored right texts."""
    import pyarrow as pa

    return pa.string()


def right_texts(rows: TableRows, names: Sequence[str] | None) -> list[str | None]:
    """Return the right texts of each row as they are stored; None for a row without one. Raises DataError for a cell
    that is neither a text nor a list of texts, and for signs that no text has."""
    found = list[str | None]()
    for row, cell in enumerate(rows.columns["label"], start=1):
        where = f"{rows.file}, row {row}: the target in column {rows.names['label']!r}"
        texts = [one.strip() for one in texts_of_cell(where, cell) if one.strip()]
        for text in texts:
            require_legal_signs(where, text)
        found.append(BETWEEN_REFERENCES.join(texts) or None)
    for row, text in enumerate(rows.columns["text"], start=1):
        if isinstance(text, str):
            require_legal_signs(f"{rows.file}, row {row}: the source in column {rows.names['text']!r}", text)
    return found


def texts_of_cell(where: str, cell: Any) -> list[str]:
    """Return the texts of a cell: itself, those of its list, or those of several columns; none of an empty cell."""
    if cell is None or isinstance(cell, str):
        return [cell or ""]
    several = list(cell.values()) if isinstance(cell, Mapping) else cell
    if not isinstance(several, list):
        raise DataError(f"{where} is {cell!r}; give the text to write, or a list of several right ones")
    other = next((one for one in several if not isinstance(one, str) and one is not None), None)
    if other is not None:
        raise DataError(f"{where} has {other!r} among its right texts; each of them is a text")
    return [one or "" for one in several]


def require_legal_signs(where: str, text: str) -> None:
    """Raise DataError for signs that no text has."""
    for sign, name in FORBIDDEN.items():
        if sign in text:
            raise DataError(
                f"{where} contains the character {name}; it is no text file, or its encoding is another one"
            )
    lone = next((place for place, sign in enumerate(text) if "\ud800" <= sign <= "\udfff"), None)
    if lone is not None:
        raise DataError(f"{where} has half of a surrogate pair at character {lone}; write the text as UTF-8 again")


def require_a_target(rows: TableRows) -> None:
    """Return no classes, which texts do not have. Raises DataError for rows without a single target, and for targets
    that teach nothing: one for all sources, or the source itself."""
    if all(cell is None or cell == "" or cell == [] for cell in rows.columns["label"]):
        raise DataError(
            f"{rows.file} has no text to write in column {rows.names['label']!r}; name the column of the targets in "
            f"task.label"
        )
    pairs = [
        (source, target)
        for source, target in zip(rows.columns["text"], rows.columns["label"], strict=True)
        if source and target
    ]
    if len(pairs) > 1 and len({str(target) for _, target in pairs}) == 1 < len({str(source) for source, _ in pairs}):
        why = "has one text for all sources"
    elif pairs and all(source == target for source, target in pairs):
        why = "repeats the source in every row"
    else:
        return
    raise DataError(
        f"{rows.file}: the column {rows.names['label']!r} {why}, which teaches nothing; name the column of the texts "
        f"to write in task.label (limbeck init: --label)"
    )


def no_names_of_texts(config: ModelConfig) -> None:
    """Texts have no classes."""


def any_texts(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Accept any texts: each can be judged."""


def facts_of_texts(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return the mean number of right texts of a row, where rows have several."""
    counts = [str(label).count(BETWEEN_REFERENCES) + 1 for label in labels if label is not None]
    return {"references": sum(counts) / len(counts)} if any(count > 1 for count in counts) else {}


def first_right_text(text: str, label: Any) -> str:
    """Return the text that is learned of a row: the first of its right ones."""
    return references_in(str(label or ""))[0]


def judging_texts(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[str | None], list[int] | None]:
    """Return the right texts of a judging set. Raises DataError for a mapping of classes, which texts do not have."""
    if given.classes or given.meanings:
        raise DataError(f"{given.place}: texts have no classes; leave classes and labels out of its section")
    return right_texts(rows, names), None


# --- tables without a recipe ------------------------------------------------------------------------------------------


def is_texts(values: Sequence[Any]) -> bool:
    """Tell whether a column holds texts, or lists of texts, of several words."""
    flat = [one for value in values if value is not None for one in (value if isinstance(value, list) else [value])]
    return bool(flat) and are_strings(flat) and mean_words(flat) >= LEAST_WORDS


def columns_of_texts(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of a source and its target, by their usual names; None where they do not have them."""
    target = next((name for name in USUAL_TARGETS if name in columns and is_texts(columns[name])), None)
    source = next((name for name in (SOURCE_TEXT.usual, "document", "article") if name in columns), None)
    if target is None or source is None or not is_texts(columns[source]):
        return columns_of_languages(columns)
    return ColumnChoice(source, None, target, why_text=f"the source of the texts in {target}")


def columns_of_languages(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of two languages that are fields of one column, the first of them as the source; None where
    there are none."""
    fields = [name for name in columns if name.startswith(LANGUAGES)]
    if len(fields) != 2 or not all(is_texts(columns[name]) for name in fields):
        return None
    source, target = fields
    return ColumnChoice(source, None, target, is_sure=True, why_text=f"the first language, with {target} beside it")


def guess_texts(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of sources and targets would be used; None for any other table."""
    if chosen.pair is not None or chosen.label not in columns or chosen.text not in columns:
        return None
    source, target = columns[chosen.text], columns[chosen.label]
    if not (is_texts(source) and is_texts(target)):
        return None
    usual = chosen.label in USUAL_TARGETS
    many = len({str(one) for one in target}) > len(target) // 2
    if not usual and not many:
        return None
    flat = [one for value in target if value for one in (value if isinstance(value, list) else [value])]
    before, after = mean_words(source), mean_words(flat)
    shorter = after < before / 2
    reason = f"texts of {before:,.0f} words with texts of {after:,.0f}: " + ("summaries" if shorter else "translations")
    metrics = ("rouge_l", "rouge_1", "rouge_2") if shorter else ("bleu", "chrf")
    return TableGuess(USUAL_FIT if usual else UNUSUAL_FIT, reason, metrics)


READER = Reader(
    columns=(SOURCE_TEXT, TARGET),
    label_type=texts_type,
    class_names=require_a_target,
    labels=right_texts,
    require_labels=any_texts,
    label_facts=facts_of_texts,
    judging_labels=judging_texts,
    names_in_config=no_names_of_texts,
    guess=guess_texts,
    written=first_right_text,
    rows_have_classes=False,
    columns_of=columns_of_texts,
)
