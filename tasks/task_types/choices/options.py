"""Options of a question: a row's second text holds one on each line, and each is read beside the row's text.

A label and a prediction are texts such as ``1/4``: the place of an option, from 0 on, and the number of options, which
differs from row to row. A target of an option is one number: the id of its row, and whether it is the right one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.task_types.texts.templates import LINES
from tasks.task_types.units import Parts

IS_WRONG, IS_RIGHT, IS_UNKNOWN = 0, 1, 2
"""An option of a row with a label that is not it, or is it; an option of a row without a label."""
BITS = 2
"""Bits of a target that say which of these it is; the others are the id of the row."""
OF = "/"
OPTION_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def options_in(pair: str) -> list[str]:
    """Return the options in a row's second text."""
    return pair.split(LINES)


def read_options(text: str, pair: str) -> list[tuple[str, str]]:
    """Return the row's text beside each option."""
    return [(text, option) for option in options_in(pair)]


def place_text(place: int, count: int) -> str:
    """Return the text of a place among so many options."""
    return f"{place}{OF}{count}"


def place_in_text(given: str) -> tuple[int, int]:
    """Return the place and the number of options of a label or a prediction."""
    place, _, count = given.partition(OF)
    return int(place), int(count)


def option_targets(row: int, label: Any, count: int) -> list[int]:
    """Return the targets of a row's options."""
    right = place_in_text(label)[0] if label else None
    codes = [IS_UNKNOWN if right is None else IS_RIGHT if place == right else IS_WRONG for place in range(count)]
    return [(row << BITS) | code for code in codes]


def right_targets(targets_U: np.ndarray) -> np.ndarray:
    """Tell by option whether it is the right one, from the targets."""
    return np.asarray((targets_U & ((1 << BITS) - 1)) == IS_RIGHT)


OPTION_PARTS = Parts(pairs=read_options, targets=option_targets, needed=right_targets)
