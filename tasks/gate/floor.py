"""The floor of a teacher: nothing is distilled from a teacher whose score is not clearly better than guessing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tasks.errors import GateError
from tasks.recipe.training import Teacher

MARGIN = 0.05  # minimum margin of a teacher's accuracy above the majority class, as a share


CORRELATED = 0.3  # minimum correlation of a regression teacher


ENOUGH = (
    200  # rows from which on the score itself is compared with the default floor: half its interval is at most 7 points
)


Z = 1.959964  # 95 % of a normal distribution lie within so many standard deviations


def require_floor(knobs: Teacher, facts: Mapping[str, Any]) -> str:
    """Raise GateError for a teacher below its floor; return a warning if its rows are too few to tell, else "".

    A floor that the recipe sets is compared with the score itself. So is the default floor on ``ENOUGH`` rows or more;
    on fewer, it refuses a teacher only if the whole interval of its score lies below the floor.
    """
    rows, floor, source = int(facts["selection_count"]), knobs.floor, "teacher.floor"
    if floor is not None:
        score, low, high = (facts["selection_score"],) * 3
    elif "selection_accuracy" in facts:
        score, floor, source = (
            facts["selection_accuracy"],
            min(0.999, facts["majority"] + MARGIN),
            "the majority class plus 5 points",
        )
        low, high = share_interval(score, rows)
    else:
        score, floor, source = (
            facts["selection_correlation"],
            CORRELATED,
            "the minimum correlation of a regression teacher",
        )
        low, high = correlation_interval(score, rows)
    where = (
        "selection rows"
        if facts["selection_split"] == "selection"
        else "training rows, since there are no selection rows"
    )
    if score < floor and (rows >= ENOUGH or high < floor):
        raise GateError(
            f"the teacher scores {score:.3f} on {rows:,} {where} and the floor is {floor:.3f} ({source}); "
            "check the label column and label order, train it longer, or set teacher.floor"
        )
    if rows >= ENOUGH or low >= floor:
        return ""
    return (
        f"the teacher scores {score:.3f} on {rows:,} {where}, with an interval from {low:.3f} to {high:.3f}: so few "
        f"rows cannot decide on the floor of {floor:.3f} ({source}); raise data.selection_rows (at most a tenth of "
        f"train is used), or add rows"
    )


def share_interval(share: float, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy, given as a share (Wilson 1927, Journal of the American Statistical
    Association 22)."""
    wide = 1 + Z**2 / rows
    middle = (share + Z**2 / (2 * rows)) / wide
    reach = Z / wide * math.sqrt(share * (1 - share) / rows + Z**2 / (4 * rows**2))
    return middle - reach, middle + reach


def correlation_interval(correlation: float, rows: int) -> tuple[float, float]:
    """Return the 95 % interval of a correlation (Fisher 1921, Metron 1); with 3 rows or fewer it is (-1, 1)."""
    if rows <= 3:
        return -1.0, 1.0
    middle, reach = math.atanh(max(-0.999999, min(0.999999, correlation))), Z / math.sqrt(rows - 3)
    return math.tanh(middle - reach), math.tanh(middle + reach)
