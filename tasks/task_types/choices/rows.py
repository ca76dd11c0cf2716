"""Rows of choices: a text, its options, and which of them is right.

The options are those of a column of lists (``{choices[]}`` as pair) or of several columns (``{choice1 | choice2}``),
with more text before or behind each (``{question} {choices[]}``). A label is the place of the right option from 0 on,
its text, its letter, the name of its column, or its key where a column of keys is named beside it (``answerKey,
choices_label``). It is stored with the number of options, as in ``1/4``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.errors import DataError
from tasks.task_types.choices.options import OPTION_LETTERS, options_in, place_text
from tasks.task_types.common_rows import are_strings, known_values, mean_words
from tasks.task_types.interfaces import ColumnChoice, JudgingLabels, Reader, TableGuess, TableRows
from tasks.task_types.texts.templates import Field, is_template, on_one_line, rendered, template_parts
from tasks.task_types.types import OPTIONS_COLUMN, RIGHT_OPTION, TEXT

if TYPE_CHECKING:
    import pyarrow as pa

FEWEST_OPTIONS = 2
LONGEST_NAMED = 40
"""Characters of an option that a message quotes."""
OPTIONS_FIT = 0.97
"""How well a table fits that has options and a label that names one of them."""
SHARE_OF_LABELS = 0.95
"""Share of the labels that must name an option for a guess."""
ROWS_OF_A_GUESS = 500
"""Rows of a table that are looked at for a guess."""
LABEL_NAMES = ("label", "answer", "answerkey", "answer_key", "gold", "target", "correct", "correct_answer", "cop")
LIST_NAMES = ("choices", "options", "endings", "answers", "candidates", "choices_text", "alternatives")
NUMBERED = re.compile(r"(.*?)[ _-]?(\d{1,2}|[A-Ha-h])")
"""The name of one of several columns: a word and a number, or a letter."""
COLUMN_WORDS = ("choice", "option", "op", "ending", "hypothesis", "sol", "answer", "alternative", "candidate")
RIGHT_NAMES = ("correct_answer", "correct", "right_answer", "best_answer", "answer")
WRONG_WORDS = ("distractor", "incorrect", "incorrect_answer", "wrong", "wrong_answer")
"""Names of a column that always holds the right option, and words in those of the wrong ones beside it."""
CONTEXT_NAMES = ("context", "dialogue", "article", "passage", "premise", "story", "sent1", "ctx", "startphrase", "goal")
QUESTION_NAMES = ("question", "query", "sent2", "ask-for", "ask_for")
RELATIONS = frozenset({"cause", "effect"})
"""The questions of COPA and its like."""


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
    for row, (pair, label) in enumerate(zip(pairs, rows.columns["label"], strict=True), start=1):
        if not isinstance(pair, str) or not pair.strip():  # told with the texts of the row
            found.append(None)
            continue
        options = options_in(pair)
        try:
            place = columns.index(label) if label in columns else place_of_label(label, options, are_signs)
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


def are_letters_or_places(labels: Sequence[Any], pairs: Sequence[Any]) -> bool:
    """Tell whether the texts in a column of labels are letters or places of options, and no texts of options: each is
    one, and not each is also a whole option. An option such as "Vitamin A" says nothing about the label A."""
    both = [
        (on_one_line(label), options_in(pair))
        for label, pair in zip(labels, pairs, strict=True)
        if isinstance(label, str) and label and isinstance(pair, str)
    ]
    return all(place_of_sign(text, options) is not None for text, options in both) and not all(
        text in options for text, options in both
    )


def place_of_sign(text: str, options: Sequence[str]) -> int | None:
    """Return the place of an option by its letter, or by its place as a text; None for any other text."""
    if len(text) == 1 and text.upper() in OPTION_LETTERS[: len(options)]:
        return OPTION_LETTERS.index(text.upper())
    return int(text) if text.isdecimal() and int(text) < len(options) else None


def place_of_label(label: Any, options: Sequence[str], is_sign: bool = False) -> int | None:
    """Return the place that a label names; None for no label. With ``is_sign``, a text is a letter or a place, and not
    the text of an option. Raises ValueError for another label."""
    if isinstance(label, Mapping):
        return place_of_key(label, options)
    if label is None or label == "" or label == -1:
        return None
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, bool) or not isinstance(label, (int, str)):
        raise ValueError(f"the label {label!r} is neither a place, nor a letter, nor an option's text; one is right")
    if isinstance(label, str):
        sign = place_of_sign(on_one_line(label), options) if is_sign else None
        return place_of_text(label, options) if sign is None else sign
    if not 0 <= label < len(options):
        raise ValueError(
            f"the label {label} is none of 0 to {len(options) - 1}, the places of {len(options)} options; places are "
            f"counted from 0: subtract 1, or write letters"
        )
    return label


def place_of_text(label: str, options: Sequence[str]) -> int:
    """Return the place of an option by its text, its letter or its place. Raises ValueError where there is none."""
    text = on_one_line(label)
    same = [place for place, option in enumerate(options) if option == text]
    ending = same or [place for place, option in enumerate(options) if option.endswith(f" {text}")]
    if ending:
        return ending[0]
    if (sign := place_of_sign(text, options)) is not None:
        return sign
    listed = ", ".join(in_quotes(option) for option in options[:4])
    raise ValueError(
        f"the label {in_quotes(text)} names none of {len(options)} options ({listed}); write a place from 0 on, a "
        f"letter, or the text, or name the column of their keys beside the label, as in label: answer, keys"
    )


def place_of_key(label: Mapping[str, object], options: Sequence[str]) -> int | None:
    """Return the place of an answer among the keys beside it. Raises ValueError where it is none of them."""
    cells = [cell.get("label") if isinstance(cell, Mapping) else cell for cell in label.values()]
    keys = next((cell for cell in cells if isinstance(cell, list)), None)
    answer = next((cell for cell in cells if not isinstance(cell, list)), None)
    if answer is None or answer == "":
        return None
    if keys is None or len(keys) != len(options):
        count = "no" if keys is None else len(keys)
        raise ValueError(f"there are {count} keys beside the label {answer!r}, and {len(options)} options")
    written = [str(key) for key in keys]
    if str(answer) not in written:
        raise ValueError(f"the label {answer!r} is none of the keys {', '.join(written)}")
    return written.index(str(answer))


def in_quotes(text: str) -> str:
    """Return the beginning of a text in quotes."""
    return repr(text if len(text) <= LONGEST_NAMED else text[:LONGEST_NAMED].rstrip() + " …")


def equal_options(rows: TableRows, names: Sequence[str] | None) -> list[str]:
    """Return a sentence about rows of which two options are equal: no model can tell them apart."""
    pairs = [options_in(pair) for pair in rows.columns.get("pair", ()) if isinstance(pair, str)]
    several = sum(len(set(options)) < len(options) for options in pairs)
    return [f"{rows.file}: {several:,} rows have two equal options"] if several else []


def require_a_choice(split: str, labels: Sequence[Any], names: Sequence[str] | None) -> None:
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


# --- tables without a recipe ------------------------------------------------------------------------------------------


def columns_of_options(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of a table with options and a label that names one of them; None for any other table."""
    some = {name: values[:ROWS_OF_A_GUESS] for name, values in columns.items()}
    if (apart := right_beside_wrong(some)) is not None:
        return apart
    for field, used in option_fields(some):
        others = {name: values for name, values in some.items() if name not in used}
        text, before, why = texts_beside(others)
        if text is None:
            continue
        pair = f"{{{before}}} {{{field}}}" if before else f"{{{field}}}"
        label = label_of_options(some, others, rendered(pair, some, len(some[used[0]]))[0], used)
        if label is not None:
            return ColumnChoice(text, pair, label, is_sure=True, why_text=why)
    return None


def right_beside_wrong(columns: Mapping[str, Sequence[Any]]) -> ColumnChoice | None:
    """Return the columns of a table whose right option has a column of its own, beside those of the wrong ones (SciQ);
    None for any other table."""
    known = {name.lower(): name for name in columns if are_strings(columns[name])}
    right = next((known[name] for name in RIGHT_NAMES if name in known), None)
    wrong = [name for name in known.values() if (match := NUMBERED.fullmatch(name.lower())) and match[1] in WRONG_WORDS]
    if right is None or not wrong:
        return None
    used = [right, *sorted(wrong)]
    text, before, why = texts_beside({name: values for name, values in columns.items() if name not in used})
    if text is None:
        return None
    field = " | ".join(used)
    pair = f"{{{before}}} {{{field}}}" if before else f"{{{field}}}"
    return ColumnChoice(text, pair, right, is_sure=True, why_text=why)


def option_fields(columns: Mapping[str, Sequence[Any]]) -> list[tuple[str, list[str]]]:
    """Return the fields of a template that may be options, each with its columns: lists of texts, then numbered
    columns."""
    lists = [name for name in columns if are_lists_of_texts(columns[name])]
    lists.sort(key=lambda name: (name.lower() not in LIST_NAMES, list(columns).index(name)))
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
    """Tell whether a column holds lists of at least two texts, also as the ``text`` of an object."""
    cells = [cell.get("text") if isinstance(cell, Mapping) else cell for cell in known_values(values)]
    return bool(cells) and all(
        isinstance(cell, list) and len(cell) >= FEWEST_OPTIONS and all(isinstance(one, str) and one for one in cell)
        for cell in cells
    )


def texts_beside(columns: Mapping[str, Sequence[Any]]) -> tuple[str | None, str | None, str]:
    """Return the column or template of the text, the column that stands before each option, if there is one, and why;
    the text is None if there is none."""
    names = {name.lower(): name for name in columns if are_strings(columns[name])}
    question = next((names[name] for name in QUESTION_NAMES if name in names), None)
    context = next((names[name] for name in CONTEXT_NAMES if name in names), None)
    if context is not None and question is not None and set(known_values(columns[question])) <= RELATIONS:
        return f"{{{context}}} What was the {{{question}}}?", None, f"{question} says what is asked about {context}"
    if context is not None and question is not None:
        return context, question, f"the context; {question} stands before each option"
    if context is not None or question is not None:
        return context or question, None, "by its name"
    longest = max(names.values(), key=lambda name: mean_words(columns[name]), default=None)
    return longest, None, "the column with the longest texts"


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
    notes=equal_options,
    columns_of=columns_of_options,
)
