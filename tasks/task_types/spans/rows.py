"""Rows of questions about a passage: a label is the answers that the passage has, or none.

A cell of answers has one of these forms: SQuAD's ``{"text": [...], "answer_start": [...]}``, a list of objects with
``text`` and ``answer_start``, either of them as JSON in a text, several columns (a text and its first character), or
the text of an answer alone, whose first place in the passage is then taken. Empty lists mean that the passage has no
answer; a missing cell is an unlabelled row. Every place is compared with the passage (Rajpurkar et al. 2018,
arXiv:1806.03822).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.metrics.of_answers import BETWEEN_ANSWERS, NO_ANSWER, coded_answer
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.types import ANSWERS_IN_PASSAGE, CONTEXT, QUESTION

if TYPE_CHECKING:
    import pyarrow as pa

ANSWER_TEXT, ANSWER_START = "text", "answer_start"
"""Names of the parts of an answer in SQuAD."""
NO_PLACE = None
"""The place of an answer whose text alone is given."""
PLACED_FIT, LIKELY_FIT = 1.0, 0.95
"""How well a table fits with answers and their places, and with texts that stand in the passage."""
QUESTIONS, PASSAGES = ("question", "query"), ("context", "passage", "paragraph", "document", "text")
ANSWER_COLUMNS = ("answers", "answer", "answer_text", "answers_text", "label")
PLACES_SUFFIX = "start"
"""The end of the name of a column of first characters."""
ROWS_GUESSED_FROM, MOST_SHOWN, STANDING = 1000, 60, 0.9
"""Rows that a guess looks at, characters of a text in a message, and the share of answers that must stand in their
passage."""

Given = tuple[str, int | None]
"""The text of an answer and its first character, if that is given."""


def answers_type() -> pa.DataType:
    """Return the Arrow type of answers."""
    import pyarrow as pa

    return pa.string()


# --- cells ------------------------------------------------------------------------------------------------------------


def given_answers(cell: Any) -> list[Given] | None:
    """Return the answers of a cell as they are written; None for an unlabelled row. Raises ValueError for a cell that
    holds none."""
    if isinstance(cell, str) and cell.strip()[:1] in ("{", "["):
        cell = from_json(cell)
    if cell is None or cell == "":
        return None
    if isinstance(cell, str):
        return [(cell, NO_PLACE)]
    if isinstance(cell, Mapping) and {ANSWER_TEXT, ANSWER_START} <= cell.keys():
        return from_lists(cell[ANSWER_TEXT], cell[ANSWER_START])
    if isinstance(cell, Mapping):
        return from_columns(cell)
    if isinstance(cell, (list, tuple)):
        return [answer for one in cell for answer in from_element(one)]
    raise ValueError(f"answers are {cell!r}; give their texts and places, as in {{text: [Rome], answer_start: [17]}}")


def from_json(cell: str) -> Any:
    """Return what a text of JSON holds; a text that holds no answers in JSON, such as ``[12]``, is one itself."""
    try:
        found = json.loads(cell)
    except ValueError:
        return cell
    return found if all(isinstance(one, (str, Mapping)) for one in found) else cell


def from_lists(texts: Any, starts: Any) -> list[Given]:
    """Return answers from a list of texts and one of places, or from one of each."""
    several = [value if isinstance(value, (list, tuple)) else [value] for value in (texts, starts)]
    texts, starts = ([value for value in values if value is not None] for values in several)
    if len(texts) != len(starts):
        raise ValueError(f"{len(texts)} answers have {len(starts)} places; give each answer its first character")
    return [(text_of(text), start_of(start)) for text, start in zip(texts, starts, strict=True)]


def from_element(one: Any) -> list[Given]:
    """Return the answer in an element of a list."""
    if isinstance(one, Mapping) and ANSWER_TEXT in one:
        return (
            from_lists(one[ANSWER_TEXT], one.get(ANSWER_START))
            if one.get(ANSWER_START) is not None
            else [(text_of(one[ANSWER_TEXT]), NO_PLACE)]
        )
    return [(text_of(one), NO_PLACE)]


def from_columns(cell: Mapping[str, object]) -> list[Given] | None:
    """Return the answers in several columns, of which one has numbers, or lists of them."""
    starts = {name: value for name, value in cell.items() if name.endswith(PLACES_SUFFIX)}
    texts = [value for name, value in cell.items() if name not in starts]
    if len(starts) != 1 or len(texts) != 1:
        raise ValueError(
            f"answers are in the columns {', '.join(cell)}; name one of texts and one of their first characters, whose "
            f"name ends with start"
        )
    start = next(iter(starts.values()))
    if isinstance(texts[0], (list, tuple)):
        return from_lists(texts[0], start)
    if texts[0] in (None, ""):
        return None if start in (None, "") else []
    return [(text_of(texts[0]), None if start in (None, "") else start_of(start))]


def text_of(value: Any) -> str:
    """Return the text of an answer. Raises ValueError for another value."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the answer {value!r} is no text; give a passage of the context, or an empty list for none")
    return value


def start_of(value: Any) -> int:
    """Return the first character of an answer. Raises ValueError for a value that is none."""
    number = int(value) if isinstance(value, str) and value.strip().lstrip("-").isdigit() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"the place {value!r} is no number from 0 on; give the answer's first character")
    return number


# --- labels -----------------------------------------------------------------------------------------------------------


def stored_answers(rows: TableRows, names: Sequence[str] | None) -> list[str | None]:
    """Return labels as they are stored, None for an unlabelled row. Raises DataError for an illegal one."""
    return [label for label, _ in read_answered_rows(rows)]


def read_answered_rows(rows: TableRows) -> list[tuple[str | None, int]]:
    """Return labels as they are stored, each with the number of its answers that stand several times in the passage and
    have no place."""
    passages = rows.columns.get("pair") or [None] * len(rows.columns["label"])
    both = zip(passages, rows.columns["label"], strict=True)
    return [read_answers_of_row(rows, row, passage, cell) for row, (passage, cell) in enumerate(both, start=1)]


def read_answers_of_row(rows: TableRows, row: int, passage: Any, cell: Any) -> tuple[str | None, int]:
    """Return the label of one row as it is stored, and the number of its answers whose place is a guess."""
    try:
        answers = given_answers(cell)
        if answers is None or not isinstance(passage, str) or not passage.strip():
            return None, 0
        spans = [span_in(passage, text, start) for text, start in answers]
    except ValueError as error:
        raise DataError(f"{rows.file}, row {row}: {error} (column {rows.names['label']!r})") from None
    stored = [coded_answer(first, last, passage[first:last]) for first, last in spans]
    guesses = sum(start is NO_PLACE and passage.count(text) > 1 for text, start in answers)
    return BETWEEN_ANSWERS.join(stored) or NO_ANSWER, guesses


def span_in(passage: str, text: str, start: int | None) -> tuple[int, int]:
    """Return the first character of an answer and the one after its last. Raises ValueError where it does not stand
    there."""
    if start is NO_PLACE:
        found = passage.find(text)
        if found < 0:
            raise ValueError(
                f"the answer {quoted_text(text)} does not stand in its passage; give a part of it, letter by letter"
            )
        return without_spaces(text, found)
    there = passage[start : start + len(text)]
    if there != text:
        raise ValueError(
            f"the answer {quoted_text(text)} is said to begin at character {start}, where {quoted_text(there)} "
            f"stands; count characters from 0, not bytes or words"
        )
    return without_spaces(text, start)


def without_spaces(text: str, start: int) -> tuple[int, int]:
    """Return the place of a text without the spaces at its ends, which are no part of an answer's tokens."""
    first = start + len(text) - len(text.lstrip())
    return first, first + len(text.strip())


def quoted_text(text: str) -> str:
    """Return a text of limited length in quotes."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} …")


def notes_on_answers(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return a sentence about answers whose place is a guess."""
    guesses = sum(count for _, count in read_answered_rows(rows))
    told = f"{guesses:,} answers without a place stand several times in their passage; the first counts"
    return [f"{rows.file}: {told}"] if guesses else []


def no_classes(rows: TableRows) -> None:
    """Answers have no classes."""


def no_names(config: ModelConfig) -> None:
    """Answers have no classes."""


def require_answers(where: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
    """Refuse a split without any answer, because its scores would be meaningless."""
    if len(labels) and all(label == NO_ANSWER for label in labels):
        raise DataError(f"the {where} has no question with an answer; provide more rows, or hold out fewer")


def answer_facts(labels: Sequence[Any], names: Sequence[str] | None) -> dict[str, object]:
    """Return no facts: rows state neither names of labels nor their shares."""
    return {}


def judging_answers(
    rows: TableRows, given: JudgingLabels, names: Sequence[str] | None
) -> tuple[list[str | None], list[int] | None]:
    """Return the labels of a judging set. Raises DataError for a mapping of classes, which answers do not have."""
    if given.classes or given.meanings:
        raise DataError(f"{given.place}: answers have no classes; leave classes and labels out of its section")
    return stored_answers(rows, names), None


# --- tables without a recipe ------------------------------------------------------------------------------------------


def columns_with_answers(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return columns of questions, passages and answers with their places, or of answers that stand in the passages;
    None if there are none."""
    question, passage, answers = (
        next((name for name in usual if name in columns), None) for usual in (QUESTIONS, PASSAGES, ANSWER_COLUMNS)
    )
    if question is None or passage is None or answers is None:
        return None
    passages, why = columns[passage][:ROWS_GUESSED_FROM], "a question, whose answer stands in another column"
    starts = next((name for name in columns if name.endswith(PLACES_SUFFIX) and name.startswith("answer")), None)
    if starts is not None:
        both = f"{answers}, {starts}"
        if standing_share(passages, first_cells(columns, both)) >= STANDING:
            return ColumnChoice(question, passage, both, why_text=why)
        why = f"{why}; {starts} does not say where, and is not read"
    cells = first_cells(columns, answers)
    if standing_share(passages, cells) < STANDING and not have_places(cells):
        return None
    return ColumnChoice(question, passage, answers, why_text=why)


def have_places(cells: Sequence[Any]) -> bool:
    """Tell whether a column holds answers with their places, as SQuAD does, though these may be wrong: a run then says
    which."""
    known = [one for cell in cells for one in (cell if isinstance(cell, list) and cell else [cell]) if one]
    return bool(known) and all(isinstance(one, Mapping) and {"text", "answer_start"} <= {*one} for one in known)


def first_cells(columns: Mapping[str, Sequence[Any]], label: str) -> Sequence[Any]:
    """Return the first cells of a label, of one column or of several with commas between their names."""
    names = [label] if label in columns else label.split(", ")
    if len(names) == 1:
        return columns[label][:ROWS_GUESSED_FROM]
    rows = zip(*(columns[name][:ROWS_GUESSED_FROM] for name in names), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def standing_share(passages: Sequence[Any], cells: Sequence[Any]) -> float:
    """Return the share of rows with an answer in which each stands in the passage."""
    known = list[bool]()
    for passage, cell in zip(passages, cells, strict=True):
        try:
            answers = given_answers(cell)
            if answers and isinstance(passage, str):
                known.append(all(span_in(passage, text, start) for text, start in answers))
        except ValueError:
            known.append(False)
    return sum(known) / len(known) if known else 0.0


def guess_answers(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of questions, passages and answers would be used; None for any other table."""
    if chosen.pair is None:
        return None
    cells, passages = first_cells(columns, chosen.label), columns[chosen.pair][:ROWS_GUESSED_FROM]
    if standing_share(passages, cells) < STANDING:
        reason = f"{chosen.label} has answers to {chosen.text}, and their places in {chosen.pair}"
        return TableGuess(PLACED_FIT, reason, ("squad_f1", "squad_exact")) if have_places(cells) else None
    placed = all(not isinstance(cell, str) or cell.strip()[:1] in ("{", "[") for cell in cells if cell is not None)
    if not placed and chosen.task is None:
        return None
    known = [answers for answers in map(given_answers, cells) if answers is not None]
    without = sum(not answers for answers in known) / max(1, len(known))
    several = f"; {without:.0%} of the questions have none" if without else ""
    reason = f"the answers to {chosen.text} in {chosen.label} stand in {chosen.pair}{several}"
    return TableGuess(PLACED_FIT if placed else LIKELY_FIT, reason, ("squad_f1", "squad_exact"))


READER = Reader(
    columns=(QUESTION, CONTEXT, ANSWERS_IN_PASSAGE),
    label_type=answers_type,
    class_names=no_classes,
    labels=stored_answers,
    require_labels=require_answers,
    label_facts=answer_facts,
    judging_labels=judging_answers,
    names_in_config=no_names,
    guess=guess_answers,
    rows_have_classes=False,
    notes=notes_on_answers,
    columns_of=columns_with_answers,
    divided_by="pair",
)
