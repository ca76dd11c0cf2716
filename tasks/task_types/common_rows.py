"""Columns of a table of one text or two texts and one label, found without a recipe, for types that have them; names
of classes in the config of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.architectures import ModelConfig
from tasks.task_types.interfaces import ColumnChoice

TRAIN_ROWS = "train split"
"""The rows that are learned from, in messages."""
LABEL_WORDS = (
    *("label", "labels", "target", "class", "category", "sentiment", "score", "rating", "stars"),
    *("intent", "topic", "emotion", "similarity", "relatedness", "y"),
)
"""Usual names of a column of labels, and usual words in such names."""
ANY_TEXT_FITS = 0.5
"""How well a table fits that has a text and a label: types that find columns of their own fit better."""
WORDS_OF_A_SECOND_TEXT = 3
"""Mean number of words from which on a second column of strings may be a second text."""
WORDS_OF_A_LABEL = 4
"""Mean number of words up to which a column may hold names of classes."""
NO_CLASS = -1
"""A number that stands for no label, unless it is a class."""
ID_WORDS = ("id", "idx", "index", "uid", "guid", "uuid")
"""How the names of ids end."""
PARSE = re.compile(r"\(.*\)", re.DOTALL)
"""A text in brackets, as sentences are whose structure is written out."""
SHARE_OF_PARSES = 0.9
"""Share of the texts of a column that must be in brackets for it to hold parsed sentences."""
MOST_NAMED = 200
"""Classes that a column without a usual name may have."""
MOST_LEVELS = 20
"""Different whole numbers up to which a column counts classes; with more, it holds amounts."""
FEWEST_FLAGS = 3
"""Columns of 0 and 1 from which on they may hold the labels together: two are often unrelated."""
LEAST_FILLED = 0.5
"""Share of the rows in which a label must be present."""


def names_of_numbers(declared: Sequence[str], names: Sequence[str]) -> dict[int, str]:
    """Return the names of the classes that numbers in the labels of a file stand for: as the file declares, if its
    names are those of the task in perhaps another order (a recipe may name classes otherwise than a file); else by
    place, unless a class is named by a number, which would then be read twice."""
    if declared and set(declared) == set(names):
        return dict(enumerate(declared))
    return {} if any(name.isdecimal() for name in names) else dict(enumerate(names))


def choose_columns(
    columns: Mapping[str, Sequence[Any]], text: str | None = None, label: str | None = None, pair: str | None = None
) -> ColumnChoice | None:
    """Return the columns of a table that hold its texts and labels; given ones are taken as they are. None if there is
    no text or no label."""
    labels = [label] if label else label_columns({name: columns[name] for name in columns if name not in (text, pair)})
    joined = [name for name in columns if ", " in name and name.split(", ")[0] in columns]
    if joined and not label and not (labels and name_fit(labels[0]) > 0):
        labels = [*joined, *(name for name in labels if name not in joined)]
    if not labels:
        return None
    texts = text_columns({name: columns[name] for name in columns if name not in (labels[0], pair)})
    first = text or next(iter(texts), None)
    if first is None:
        return None
    second = pair if pair or text else second_text(columns, texts)
    names, is_sure = list(columns), name_fit(labels[0]) > 0 or label is not None
    chosen = ColumnChoice(first, second, labels[0], tuple(labels[1:]), is_sure)
    if second is not None and not (text or pair):
        earlier, later = sorted((first, second), key=names.index)
        return replace(chosen, text=earlier, pair=later, why_text="the first of the two columns with the longest texts")
    return chosen


def with_flags(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return columns with one more, of objects, that joins all columns of 0 and 1 where there are several: its name
    lists theirs, as a recipe names them together."""
    flags = [name for name in columns if are_flags(columns[name]) and "," not in name]
    own = {name: list(columns[name]) for name in columns}
    if len(flags) < FEWEST_FLAGS:
        return own
    rows = zip(*(columns[name] for name in flags), strict=True)
    return {**own, ", ".join(flags): [dict(zip(flags, row, strict=True)) for row in rows]}


def are_flags(values: Sequence[Any]) -> bool:
    """Tell whether a column holds 0 and 1, and nothing else."""
    known = known_values(values)  # as numbers with a point, too, as pandas writes a column that once had a gap
    return all(isinstance(value, (int, float)) and value in (0, 1) for value in known) and len({*map(int, known)}) == 2


def in_one_value(values: Sequence[Any]) -> list[Any]:
    """Return a column in which lists of labels, and objects of 0 and 1, are one text a row; any other as it is."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, dict) and all(one in (0, 1, None) for one in value.values()) for value in known):
        return in_one_value([value and [name for name in value if value[name]] for value in values])
    if not any(isinstance(value, list) for value in known):
        return list(values)
    if any(not isinstance(one, (str, int)) for value in known for one in (value if isinstance(value, list) else [{}])):
        return list(values)
    return [None if value is None else "|".join(map(str, value)) or "none" for value in values]


def label_columns(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns that may hold labels, the likeliest first: by names, then by how few values they have."""
    fitting = [name for name in columns if may_be_label(name, columns[name])]
    return sorted(fitting, key=lambda name: (-name_fit(name), different(columns[name])))


def may_be_label(name: str, values: Sequence[Any]) -> bool:
    """Tell whether a column has several values, most of them repeated or numbers, in most of its rows."""
    filled, values_known = len(known_values(values)), different(values)
    if values_known < 2 or filled < LEAST_FILLED * len(values) or mean_words(values) > WORDS_OF_A_LABEL:
        return False
    if is_amount(values):
        return name_fit(name) > 0
    return values_known <= MOST_NAMED and (values_known <= filled / 2 or name_fit(name) > 1)


def name_fit(name: str) -> int:
    """Return how much a name sounds like a label: 3 for a usual name, 2 if it ends with one, 1 if it contains one."""
    words = words_of_name(name)
    if len(words) == 1 and words[0] in LABEL_WORDS:
        return 3
    return 2 if words and words[-1] in LABEL_WORDS else 1 if set(words) & set(LABEL_WORDS) else 0


def words_of_name(name: str) -> list[str]:
    """Return the words of a column's name in lower case."""
    return [word for word in re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) if word]


def is_id(name: str) -> bool:
    """Tell whether a column has the name of an id."""
    return words_of_name(name)[-1:] in [[word] for word in ID_WORDS]


def text_columns(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns of strings, but for ids, those with the most words first; parsed sentences come last."""
    words = {name: mean_words(columns[name]) for name in columns if are_strings(columns[name]) and not is_id(name)}
    return sorted(words, key=lambda name: (are_parses(columns[name]), -words[name]))


def are_parses(values: Sequence[Any]) -> bool:
    """Tell whether nearly all texts of a column are sentences with their structure in brackets."""
    known = known_values(values)
    return sum(PARSE.fullmatch(value) is not None for value in known) >= SHARE_OF_PARSES * len(known)


def second_text(columns: Mapping[str, Sequence[Any]], texts: Sequence[str]) -> str | None:
    """Return a second text beside the longest one: sentences that are seldom repeated."""
    if len(texts) < 2:
        return None
    values = known_values(columns[texts[1]])
    is_text = mean_words(values) >= WORDS_OF_A_SECOND_TEXT and different(values) >= len(columns[texts[1]]) / 2
    return texts[1] if is_text else None


def known_values(values: Sequence[Any]) -> list[Any]:
    """Return the values that are there."""
    return [value for value in values if value is not None and value != ""]


def different(values: Sequence[Any]) -> int:
    """Return the number of different values that are there."""
    return len(set(map(str, known_values(values))))


def mean_words(values: Sequence[Any]) -> float:
    """Return the mean number of words of the values that are there."""
    counts = [len(str(value).split()) for value in known_values(values)]
    return sum(counts) / len(counts) if counts else 0.0


def are_strings(values: Sequence[Any]) -> bool:
    """Tell whether all values that are there are strings, and there is one."""
    known = known_values(values)
    return bool(known) and all(isinstance(value, str) for value in known)


def is_amount(values: Sequence[Any]) -> bool:
    """Tell whether a column holds amounts: fractions, or more whole numbers than classes that are numbered."""
    known = known_values(values)
    return are_numbers(known) and (any(value != int(value) for value in known) or len(set(known)) > MOST_LEVELS)


def are_numbers(values: Sequence[Any]) -> bool:
    """Tell whether all values are finite numbers, and there is one."""
    return bool(values) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )


def names_in_config(config: ModelConfig) -> tuple[str, ...]:
    """Return a model's names of its classes, labels or tags, in its order."""
    named = config.get("id2label") or {}
    return tuple(named[number] for number in sorted(named, key=int))
