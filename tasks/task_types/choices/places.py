"""The place of an option that a label names: by its place from 0 on, its letter, its text, or its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.task_types.choices.options import OPTION_LETTERS, options_in
from tasks.task_types.texts.templates import on_one_line

FEWEST_OPTIONS = 2
AROUND_LETTERS = "(). :"
"""Signs that often stand around the letter of an option, as in (A) and A."""
LONGEST_NAMED = 40
"""Characters of an option that a message quotes."""


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


def are_options_or_places(labels: Sequence[Any], pairs: Sequence[Any]) -> bool:
    """Tell whether numbers in a column of labels may be meant as options and as places, and name different ones: each
    is the text of an option of its row, and not each stands at the place that it counts."""
    both = [
        (label, pair)
        for label, pair in zip(labels, pairs, strict=True)
        if isinstance(label, int) and isinstance(pair, str)
    ]
    if not all(str(label) in without_beginning(options_in(pair)) for label, pair in both):  # mostly told by one row
        return False
    return any(without_beginning(options_in(pair))[label : label + 1] != [str(label)] for label, pair in both)


def place_of_column(name: str, columns: Sequence[str], options: Sequence[str]) -> int:
    """Return the place of the option that stands in a column. Raises ValueError if that column is empty."""
    if columns.index(name) >= len(options):
        raise ValueError(f"the label {name!r} is a column without an option in this row; correct one of the two")
    return columns.index(name)


def place_of_sign(text: str, options: Sequence[str]) -> int | None:
    """Return the place of an option by its letter, or by its place as a text; None for any other text."""
    letter = text.strip(AROUND_LETTERS).upper()
    if len(letter) == 1 and letter in OPTION_LETTERS[: len(options)]:
        return OPTION_LETTERS.index(letter)
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
        raise ValueError(not_a_place(str(label), options))
    return label


def not_a_place(label: str, options: Sequence[str]) -> str:
    """Return a sentence on a label that counts beyond the options."""
    return (
        f"the label {label} is none of 0 to {len(options) - 1}, the places of {len(options)} options; places are "
        f"counted from 0: subtract 1, or write letters"
    )


def place_of_text(label: str, options: Sequence[str]) -> int:
    """Return the place of an option by its text, its letter or its place. Raises ValueError where there is none."""
    text = on_one_line(label)
    same = [place for place, option in enumerate(options) if option == text]
    same = same or [place for place, option in enumerate(without_beginning(options)) if option == text]
    ending = same or [place for place, option in enumerate(options) if option.endswith(f" {text}")]
    if len({options[place] for place in ending}) > 1:
        raise ValueError(
            f"the label {in_quotes(text)} ends {len(ending)} of {len(options)} options "
            f"({', '.join(in_quotes(options[place]) for place in ending[:4])}); write a place from 0 on, or a letter"
        )
    if ending:
        return ending[0]
    # another case names an option only if no other one has the same letters
    alike = [place for place, option in enumerate(options) if option.casefold().endswith(text.casefold())]
    alike = [place for place in alike if options[place].casefold() == text.casefold()] or alike
    if len(alike) == 1 and len(text) > 1 and is_whole_end(options[alike[0]], text):
        return alike[0]
    if (sign := place_of_sign(text, options)) is not None:
        return sign
    if text == str(len(options)):
        raise ValueError(not_a_place(in_quotes(text), options))
    listed = ", ".join(in_quotes(option) for option in options[:4])
    raise ValueError(
        f"the label {in_quotes(text)} names none of {len(options)} options ({listed}); write a place from 0 on, a "
        f"letter, or the text, or name the column of their keys beside the label, as in label: answer, keys"
    )


def without_beginning(options: Sequence[str]) -> list[str]:
    """Return options without the words with which all of a row begin, such as those of its question; each keeps one
    word at least."""
    words = [option.split(" ") for option in options]
    most = min(map(len, words)) - 1
    shared = next((place for place in range(most) if len({own[place] for own in words}) > 1), most)
    return [" ".join(own[shared:]) for own in words]


def is_whole_end(option: str, text: str) -> bool:
    """Tell whether a text is an option, or its last words, but for the case."""
    before = option[: len(option) - len(text)]
    return not before or before.endswith(" ")


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
