"""Columns of a table of questions with options, found without a recipe, for ``limbeck init``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.errors import DataError
from tasks.task_types.choices.options import OPTION_LETTERS, options_in
from tasks.task_types.choices.places import FEWEST_OPTIONS, place_of_label
from tasks.task_types.common_rows import are_strings, known_values, mean_words
from tasks.task_types.interfaces import ColumnChoice, TableGuess
from tasks.task_types.texts.templates import rendered

OPTIONS_FIT = 0.97
"""How well a table fits that has options and a label that names one of them."""
SHARE_OF_LABELS = 0.95
"""Share of the labels that must name an option for a guess."""
ROWS_OF_A_GUESS = 500
"""Rows of a table that are looked at for a guess."""
LABEL_NAMES = (
    *("label", "answer", "answerkey", "answer_key", "gold", "target", "correct", "correct_answer", "cop"),
    *("answer_idx", "answer_index", "correct_index", "correct_option", "correct_answer_id"),
)
LIST_NAMES = ("choices", "options", "endings", "answers", "candidates", "choices_text", "alternatives")
SURE_LISTS = ("choices", "options", "endings", "alternatives", "choices_text")
"""Names of columns of lists that are options, whatever stands beside them."""
SIGN = re.compile(r"\W*[A-Za-z]\W*|-?\d{1,2}(\.0)?")
"""A letter, or a number, as a label that names an option has it."""
NUMBERED = re.compile(r"(.*?)[ _-]?(\d{1,2}|[A-Ha-h])")
"""The name of one of several columns: a word and a number, or a letter."""
COLUMN_WORDS = ("choice", "option", "op", "ending", "hypothesis", "sol", "answer", "alternative", "candidate")
RIGHT_NAMES = ("correct_answer", "correct", "right_answer", "best_answer", "answer")
WRONG_WORDS = ("distractor", "incorrect", "incorrect_answer", "wrong", "wrong_answer")
"""Names of a column that always holds the right option, and words in those of the wrong ones beside it."""
PARAGRAPH_NAMES = ("context", "dialogue", "article", "passage", "paragraph", "story", "support", "background")
"""Names of a text that holds the answer of a question beside it."""
CONTEXT_NAMES = (*PARAGRAPH_NAMES, "premise", "sent1", "ctx", "startphrase", "goal")
QUESTION_NAMES = ("question", "query", "question_stem", "question.stem", "sent2", "ask-for", "ask_for")
RELATIONS = frozenset({"cause", "effect"})
"""The questions of COPA and its like."""


def columns_of_options(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of a table with options and a label that names one of them; None for any other table."""
    some = {name: values[:ROWS_OF_A_GUESS] for name, values in columns.items()}
    if (apart := right_beside_wrong(some)) is not None:
        return apart
    require_lists_of_options(some)
    for field, used in option_fields(some):
        others = {name: values for name, values in some.items() if name not in used}
        text, before, why = texts_beside(others, field)
        if text is None:
            continue
        pair = f"{{{before}}} {{{field}}}" if before else f"{{{field}}}"
        label = label_of_options(some, others, rendered(pair, some, len(some[used[0]]))[0], used)
        if label is not None:
            return ColumnChoice(text, pair, label, is_sure=True, why_text=why)
        if used[0].lower() in SURE_LISTS or any(count_from_one(some[name], len(used)) for name in named_labels(others)):
            require_other_labels(some, others, used[0], rendered(pair, some, len(some[used[0]]))[0])
    return None


def require_lists_of_options(columns: Mapping[str, Sequence[Any]]) -> None:
    """Raise DataError for a column of options that are objects, such as ``{A: …, B: …}``."""
    for name in columns:
        cells = known_values(columns[name])
        if (
            name.lower() in SURE_LISTS
            and cells
            and all(isinstance(cell, Mapping) and "text" not in cell for cell in cells)
        ):
            raise DataError(
                f"the column {name!r} holds objects of options; write the texts of each row as a list, in the order of "
                f"their letters, or each in a column of its own"
            )


def require_other_labels(
    columns: Mapping[str, Sequence[Any]], others: Mapping[str, Sequence[Any]], options: str, pairs: Sequence[Any]
) -> None:
    """Raise DataError for a column of labels that are the places or letters of options, and name none of some row."""
    for name in named_labels(others):
        for row, (label, pair) in enumerate(zip(columns[name], pairs, strict=True), start=1):
            if not isinstance(pair, str) or not SIGN.fullmatch(str(label)):
                continue
            try:
                place_of_label(label, options_in(pair))
            except ValueError as error:
                raise DataError(f"{options} holds options, and {name} does not name them; row {row}: {error}") from None


def named_labels(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns that have a usual name of a label of options."""
    known = {name.lower(): name for name in columns}
    return [known[one] for one in LABEL_NAMES if one in known]


def count_from_one(values: Sequence[Any], options: int) -> bool:
    """Tell whether a column has each number from 1 to the number of options, as places that are counted from 1."""
    return options > 1 and {str(value) for value in known_values(values)} == {
        str(place + 1) for place in range(options)
    }


def right_beside_wrong(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of a table whose right option has a column of its own, beside those of the wrong ones (SciQ);
    None for any other table."""
    known = {name.lower(): name for name in columns if are_strings(columns[name])}
    right = next((known[name] for name in RIGHT_NAMES if name in known), None)
    wrong = [name for name in known.values() if (match := NUMBERED.fullmatch(name.lower())) and match[1] in WRONG_WORDS]
    if right is None or not wrong:
        return None
    used = [right, *sorted(wrong)]
    field = " | ".join(used)
    text, before, why = texts_beside({name: values for name, values in columns.items() if name not in used}, field)
    if text is None:
        return None
    pair = f"{{{before}}} {{{field}}}" if before else f"{{{field}}}"
    return ColumnChoice(text, pair, right, is_sure=True, why_text=why)


def option_fields(columns: Mapping[str, Sequence[Any]]) -> list[tuple[str, list[str]]]:
    """Return the fields of a template that may be options, each with its columns: lists of texts, then numbered
    columns."""
    lists = [name for name in columns if are_lists_of_texts(columns[name])]
    lists.sort(key=lambda name: (has_keys(columns[name]), name.lower() not in LIST_NAMES, list(columns).index(name)))
    numbered: dict[str, list[str]] = {}
    for name in columns:
        match = NUMBERED.fullmatch(name)
        if match and are_strings(columns[name]):
            numbered.setdefault(match.group(1), []).append(name)
    series = [names for word, names in numbered.items() if len(names) > 1 and are_named_as_options(word, names)]
    return [(f"{name}[]", [name]) for name in lists] + [(" | ".join(names), names) for names in series]


def are_named_as_options(word: str, names: Sequence[str]) -> bool:
    """Tell whether columns with one word before their number have the names of options: a usual word, or none before
    the letters from A on."""
    letters = [name.upper() for name in names] == list(OPTION_LETTERS[: len(names)])
    return word.lower().strip("_- ") in COLUMN_WORDS or (not word and letters)


def are_lists_of_texts(values: Sequence[Any]) -> bool:
    """Tell whether nearly all cells of a column are lists of at least two texts, also as the ``text`` of an object.
    Numbers among them are options, too, where any option is a text."""
    cells = [cell.get("text") if isinstance(cell, Mapping) else cell for cell in known_values(values)]
    lists = [cell for cell in cells if isinstance(cell, list) and len(cell) >= FEWEST_OPTIONS]
    fitting = sum(all(isinstance(one, (str, int, float)) and one != "" for one in cell) for cell in lists)
    has_texts = any(isinstance(one, str) for cell in lists for one in cell)
    return has_texts and fitting >= SHARE_OF_LABELS * len(cells)


def texts_beside(columns: Mapping[str, Sequence[Any]], field: str) -> tuple[str | None, str | None, str]:
    """Return the column or template of the text beside a field of options, the column that stands before each option,
    if there is one, and why; the text is None if there is none."""
    names = {name.lower(): name for name in columns if are_strings(columns[name])}
    question = next((names[name] for name in QUESTION_NAMES if name in names), None)
    context = next((names[name] for name in CONTEXT_NAMES if name in names), None)
    if context is not None and question is not None and set(known_values(columns[question])) <= RELATIONS:
        return f"{{{context}}} What was the {{{question}}}?", None, f"{question} says what is asked about {context}"
    if context is not None and question is not None:
        return (
            context,
            question,
            f"the context; {question} stands before each option{closed_book(context, question, field)}",
        )
    if context is not None or question is not None:
        return context or question, None, "by its name"
    longest = max(names.values(), key=lambda name: mean_words(columns[name]), default=None)
    return longest, None, "the column with the longest texts"


def closed_book(context: str, question: str, field: str) -> str:
    """Return what a recipe without a paragraph would be, beside how it is read; empty for a context of another kind."""
    if context.lower() not in PARAGRAPH_NAMES:
        return ""
    return f', and {context} is read; without it (text: {question}, pair: "{{{field}}}") this is a test of knowledge'


def label_of_options(
    columns: Mapping[str, Sequence[Any]], others: Mapping[str, Sequence[Any]], pairs: Sequence[Any], used: Sequence[str]
) -> str | None:
    """Return the column of the label, with that of the keys beside it where it needs them; None if there is none."""
    known = {name.lower(): name for name in others}
    candidates = [known[name] for name in LABEL_NAMES if name in known]
    keys = [name for name in columns if name not in candidates and has_keys(columns[name])]
    for name in candidates:
        for label in [*(f"{name}, {one}" for one in keys), name]:  # a key may look like a place
            parts = label.split(", ")
            cells = [
                dict(zip(parts, row, strict=True)) if len(parts) > 1 else row[0]
                for row in zip(*(columns[one] for one in parts), strict=True)
            ]
            if name_options(cells, pairs, used):
                return label
    return None


def has_keys(values: Sequence[Any]) -> bool:
    """Tell whether a column holds lists of short texts, also as the ``label`` of an object."""
    cells = [cell.get("label") if isinstance(cell, Mapping) else cell for cell in known_values(values)]
    return bool(cells) and all(
        isinstance(cell, list) and all(isinstance(one, str) and len(one) <= 2 for one in cell) for cell in cells
    )


def name_options(labels: Sequence[Any], pairs: Sequence[Any], used: Sequence[str]) -> bool:
    """Tell whether nearly all labels name an option of their row."""
    asked, named = 0, 0
    for label, pair in zip(labels, pairs, strict=True):
        if not isinstance(pair, str) or label in (None, "", -1):
            continue
        asked += 1
        try:
            named += label in used or place_of_label(label, options_in(pair)) is not None
        except ValueError:
            continue
    return asked > 0 and named >= SHARE_OF_LABELS * asked


def guess_options(columns: Mapping[str, Sequence[Any]], chosen: ColumnChoice) -> TableGuess | None:
    """Return how a table of questions with options would be used; None for any other table."""
    if chosen.task != "choices" or chosen.pair is None:
        return None
    rows = len(next(iter(columns.values())))
    counts = Counter(len(options_in(pair)) for pair in rendered(chosen.pair, columns, rows)[0] if isinstance(pair, str))
    sizes = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    chance = sum(number / count for count, number in counts.items()) / counts.total()
    reason = f"each row has {sizes} options, and {chosen.label} names the right one; guessing is right in {chance:.0%}"
    return TableGuess(OPTIONS_FIT, reason, ("accuracy",))
