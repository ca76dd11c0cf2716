"""Texts that are put together from several columns of a table, such as ``{word}: {sentence1 *start1:end1*}``.

In braces stands the name of a column. Between asterisks stand two further columns that name a passage of it, which is
put between asterisks in the text, as Raffel et al. 2020 (T5, arXiv:1910.10683) write the Winograd schemas: its first
character and the one behind its last (``*start:end*``), or its first word, from 0 on, and the words themselves, whose
number counts (``*index+words*``). Braces of the text itself are doubled.

Columns with bars between them (``{choice1 | choice2}``), and a column of lists (``{choices[]}``), stand for several
texts, such as the options of a question: the template is filled with each of them, and every text is a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tasks.errors import RecipeError

BETWEEN_COLUMNS = "|"
EACH = "[]"
"""Behind the name of a column of lists."""
LINES = "\n"
"""Between the texts that a template gives for several columns, or for the elements of a list."""
ANY_SPACE = re.compile(r"\s+")
PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
FIELD = re.compile(r"\s*(.+?)\s*(?:\*\s*([^*:+]+?)\s*([:+])\s*([^*:+]+?)\s*\*\s*)?")
BETWEEN_SPACES = re.compile(r"\S+")
EXAMPLE = "{word}: {sentence *start:end*}"


@dataclass(frozen=True)
class Field:
    """A column in a template, and the columns of the passage that is marked in it."""

    column: str
    first: str = ""
    """Column of the place where the passage begins; empty: nothing is marked."""
    last: str = ""
    """Column of the place where it ends, or of its words."""
    by_words: bool = False
    """Whether places count words, not characters."""
    others: tuple[str, ...] = ()
    """Further columns, each of which gives a text of its own."""
    is_list: bool = False
    """Whether the column holds lists, of which each element gives a text of its own."""

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return [name for name in (self.column, self.first, self.last, *self.others) if name]

    @property
    def gives_lines(self) -> bool:
        """Whether it gives several texts."""
        return self.is_list or bool(self.others)


@dataclass(frozen=True)
class Unrendered:
    """Stands for the text of a row that its template cannot be filled with."""

    reason: str


def is_template(name: str) -> bool:
    """Tell whether the name of a column is a template."""
    return "{" in name or "}" in name


def template_parts(template: str) -> list[str | Field]:
    """Return the texts and the fields of a template in order. Raises RecipeError for one that cannot be read."""
    found, end = list[str | Field](), 0
    for piece in PIECE.finditer(template):
        found.append(template[end : piece.start()])
        end = piece.end()
        inside = piece.group(1)
        if piece.group() in ("{{", "}}"):
            found.append(piece.group()[0])
        elif inside is None or not inside.strip():
            raise RecipeError(
                f"the template {template!r} has a brace without a column (character {piece.start() + 1}); write "
                f"{EXAMPLE}, and double the braces of the text itself"
            )
        else:
            found.append(field_of(template, inside))
    found.append(template[end:])
    if sum(isinstance(part, Field) and part.gives_lines for part in found) > 1:
        raise RecipeError(
            f"the template {template!r} has several texts in two places; name the columns of all options in one, as in "
            f"{{choice1 | choice2}}, or one column of lists, as in {{choices[]}}"
        )
    return [part for part in found if part]


def field_of(template: str, inside: str) -> Field:
    """Return the field that stands between two braces. Raises RecipeError for a mark that cannot be read."""
    names = [name.strip() for name in inside.split(BETWEEN_COLUMNS)]
    if len(names) > 1:
        if not all(names):
            raise RecipeError(f"the template {template!r} names no column beside a bar; write {{choice1 | choice2}}")
        return Field(names[0], others=tuple(names[1:]))
    if names[0].endswith(EACH) and names[0] != EACH:
        return Field(names[0].removesuffix(EACH).strip(), is_list=True)
    match = FIELD.fullmatch(inside)
    if match is None or (match.group(2) is None and "*" in inside):
        raise RecipeError(
            f"the template {template!r} marks nothing by {{{inside}}}; write {{column *start:end*}} for columns of "
            f"characters, or {{column *index+words*}} for the number of the first word and the words"
        )
    column, first, sign, last = match.groups()
    return Field(column, first or "", last or "", sign == "+")


def columns_in(name: str) -> list[str]:
    """Return the columns that a template reads, each once; a name that is no template is a column."""
    if not is_template(name):
        return [name]
    return list(
        dict.fromkeys(each for part in template_parts(name) if isinstance(part, Field) for each in part.columns)
    )


def gives_lines(name: str) -> bool:
    """Tell whether a template gives several texts a row, each on a line of its own."""
    return is_template(name) and any(isinstance(part, Field) and part.gives_lines for part in template_parts(name))


def has_further_words(name: str) -> bool:
    """Tell whether a template writes more than one column: several of them, or words beside it."""
    return is_template(name) and len(template_parts(name)) > 1


def beginning(name: str) -> str:
    """Return the text before the first column of a template; empty for the name of a column."""
    parts = template_parts(name) if is_template(name) else []
    return "".join(part for part in takewhile(lambda part: isinstance(part, str), parts) if isinstance(part, str))


def prompt_in(name: str) -> str:
    """Return the prompt of a template: what stands before its only column, behind which nothing stands; else empty."""
    *before, last = template_parts(name) if is_template(name) else [""]
    is_prompt = isinstance(last, Field) and not last.first and not any(isinstance(part, Field) for part in before)
    return beginning(name) if is_prompt else ""


def rendered(name: str, columns: Mapping[str, Sequence[Any]], rows: int) -> tuple[list[Any], Counter[str]]:
    """Return a template filled with the columns of every row, and sentences about passages that may not be meant, with
    the number of their rows. A name that is no template gives its column as it is; a row in which a column is empty
    gives None."""
    if not is_template(name):
        return list(columns[name]), Counter()
    parts, notes, found = template_parts(name), Counter[str](), list[Any]()
    for row in range(rows):
        values = {each: columns[each][row] for each in columns_in(name)}
        found.append(filled(parts, values, notes))
    return found, notes


def filled(parts: Sequence[str | Field], values: Mapping[str, object], notes: Counter[str]) -> str | Unrendered | None:
    """Return the text of one row, on several lines where a field gives several texts."""
    several = next((part for part in parts if isinstance(part, Field) and part.gives_lines), None)
    needed = {name for part in parts if isinstance(part, Field) and part is not several for name in part.columns}
    if any(values[name] is None or values[name] == "" for name in needed):
        return None
    if several is not None:
        elements = elements_of(several, values)
        if elements is None or isinstance(elements, Unrendered):
            return elements
        every = [filled([one if part is several else part for part in parts], values, notes) for one in elements]
        return next((one for one in every if not isinstance(one, str)), LINES.join(map(on_one_line, every)))
    texts = list[str]()
    for part in parts:
        one = part if isinstance(part, str) else filled_field(part, values, notes)
        if isinstance(one, Unrendered):
            return one
        texts.append(one)
    return "".join(texts)


def elements_of(field: Field, values: Mapping[str, object]) -> list[str] | Unrendered | None:
    """Return the texts that a field gives in one row, in order; None if there is none. Trailing empty columns give no
    text."""
    cells: list[object] = [values[name] for name in field.columns]
    where = f"the column {field.column!r}" if field.is_list else f"one of the columns {', '.join(field.columns)}"
    if field.is_list:
        (cell,) = cells
        cell = cell.get("text") if isinstance(cell, dict) else cell
        if cell is None or cell == "" or cell == []:
            return None
        if not isinstance(cell, list):
            return Unrendered(f"the column {field.column!r} holds no list; name it without {EACH}")
        cells = cell
    else:
        while cells and is_nothing(cells[-1]):
            cells.pop()
    if not cells:
        return None
    if any(is_nothing(cell) for cell in cells):
        return Unrendered(f"text {1 + [is_nothing(cell) for cell in cells].index(True)} of {where} is empty")
    nested = next((cell for cell in cells if isinstance(cell, (list, dict))), None)
    if nested is not None:
        return Unrendered(f"{where} holds {nested!r} where a text is needed")
    return [str(cell) for cell in cells]


def is_nothing(cell: object) -> bool:
    """Tell whether a cell holds nothing, or spaces alone."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def on_one_line(text: object) -> str:
    """Return a text without breaks between lines, which divide texts."""
    return ANY_SPACE.sub(" ", str(text)).strip()


def filled_field(field: Field, values: Mapping[str, object], notes: Counter[str]) -> str | Unrendered:
    """Return the text of a field, with its passage marked."""
    value = values[field.column]
    if isinstance(value, (list, dict)):
        return Unrendered(f"the column {field.column!r} holds a list or an object, and a template needs texts")
    text = str(value)
    if not field.first:
        return text
    passage = (words_at if field.by_words else characters_at)(field, text, values, notes)
    if isinstance(passage, Unrendered):
        return passage
    start, end = passage
    return f"{text[:start]}* {text[start:end]} *{text[end:]}"


def characters_at(
    field: Field, text: str, values: Mapping[str, object], notes: Counter[str]
) -> tuple[int, int] | Unrendered:
    """Return the first character of a passage and the one behind its last."""
    start, end = (place_in(values[name]) for name in (field.first, field.last))
    if start is None or end is None or not start < end <= len(text):
        return Unrendered(
            f"the columns {field.first!r} and {field.last!r} name characters {values[field.first]} to "
            f"{values[field.last]}, and {field.column!r} has {len(text)}"
        )
    borders = (text[start - 1 : start + 1] if start else "", text[end - 1 : end + 1])
    if any(len(both) == 2 and both.isalnum() for both in borders):
        notes[f"passages between {field.first!r} and {field.last!r} begin or end inside of a word"] += 1
    return start, end


def words_at(
    field: Field, text: str, values: Mapping[str, object], notes: Counter[str]
) -> tuple[int, int] | Unrendered:
    """Return the first character of some words and the one behind their last; signs behind them are not marked."""
    first, words = place_in(values[field.first]), str(values[field.last])
    spans = [match.span() for match in BETWEEN_SPACES.finditer(text)]
    count = len(words.split())
    if first is None or not count or first + count > len(spans):
        return Unrendered(
            f"the column {field.first!r} names word {values[field.first]} for {words!r}, and {field.column!r} has "
            f"words 0 to {len(spans) - 1}"
        )
    start, end = spans[first][0], spans[first + count - 1][1]
    if text[start:end].lower().startswith(words.lower()):
        return start, start + len(words)
    notes[f"words at {field.first!r} are others than those of {field.last!r}, and are marked where they stand"] += 1
    return start, end


def place_in(value: object) -> int | None:
    """Return a place in a text, which a delimited file gives as a text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    return int(value) if str(value).strip().isdecimal() else None
