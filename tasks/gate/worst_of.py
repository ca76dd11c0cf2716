"""Criteria about several sets of rows: each is asked as if it were the gate's split, and the worst of them decides.
Pure: figures in, words out.

On every set a bound is read at the worse end of the figure's own interval there, and a test at that of its paired
difference, at the level for so many rivals. Sets need no level of their own: a candidate must do on all of them what is
asked, which is as hard as the hardest (Berger 1982). A set that overlaps with what students learn from says nothing of
them, so the gate's ``leakage`` holds for each judging set, whether a criterion names it or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.gate.criteria import Finding, figure, weigh
from tasks.recipe.judging import Criterion, Gate
from tasks.scoring.quality.gain import Gain

ReadOn = Callable[[str, str, Criterion, float], Gain | None]
"""Returns the interval that a criterion reads on a set, by name, of a candidate, by name, at a confidence; None where
there is none."""


def nobody_knows_on(where: str, name: str, criterion: Criterion, confidence: float) -> Gain | None:
    """Return that there is no interval to be read."""
    return None


@dataclass(frozen=True)
class Elsewhere:
    """What the gate weighs of judging sets beside the figures in the rows of candidates and teacher."""

    read: ReadOn = nobody_knows_on
    """Intervals of bounds, in the metric's own unit, and of the paired differences that tests read."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of each set."""
    overlaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many of them overlap with what students learn from, by set and where."""


def worst_of(
    criterion: Criterion,
    candidate: Mapping[str, Any],
    teacher: Mapping[str, Any],
    split: str,
    read: Mapping[str, Gain | None],
    rivals: int = 1,
) -> Finding:
    """Hold a candidate against a criterion on every set that it names, and return what was found on the worst.

    ``read`` are the intervals that it reads, by set, widened for so many ``rivals``; ``split`` is the gate's, of which
    the figures stand in the rows themselves. Certainly worse on one set is worse than a greater distance on another
    that may be noise.
    """
    alone = criterion.model_copy(update={"worst_of": ()})
    asked = [(name, seen_on(candidate, name, split), seen_on(teacher, name, split)) for name in criterion.worst_of]
    found = [
        (weigh(alone, ours, theirs, None, read.get(name), rivals), room(alone, ours, theirs, read.get(name)), name)
        for name, ours, theirs in asked
    ]
    worst, _, where = max(found, key=lambda one: (not one[0].met, one[0].worse, one[0].shortfall, -one[1]))
    others = [name for _, _, name in found if name != where]
    beside = f"{where}, the worst of it and {', '.join(others)}" if others else where
    return replace(worst, reason=f"on {beside}: {worst.reason}")


def seen_on(row: Mapping[str, Any], name: str, split: str) -> Mapping[str, Any]:
    """Return a row's figures as the gate reads them, on one set of rows; a model that was not scored there has none."""
    if name == split:
        return row
    unknown = {**row, "metrics": {}, "retained": None, "headline": None}
    found: Mapping[str, Any] = (row.get("on") or {}).get(name, unknown)
    return found


def room(criterion: Criterion, ours: Mapping[str, Any], theirs: Mapping[str, Any], read: Gain | None) -> float:
    """Return how much better than the bound a figure is, or the share or difference that the bound is about: of sets
    that all meet it, the least is told."""
    if criterion.test is not None:
        return 0.0 if read is None else read.low
    value, other = figure(ours, criterion.metric), figure(theirs, criterion.metric)
    if value is not None and read is not None:
        value = read.low if criterion.at_least is not None else read.high
    if value is None or (criterion.reference is not None and other is None):
        return 0.0
    if criterion.reference is not None and other is not None:
        value = value - other if criterion.by == "difference" else value / other if other else 0.0
    return value if criterion.at_least is not None else -value


def leaks_of_sets(gate: Gate, elsewhere: Elsewhere) -> list[tuple[bool, str]]:
    """Say of each judging set how many of its rows overlap with what students learn from, and whether that is too
    many."""
    found = []
    for name, places in elsewhere.overlaps.items():
        for where, count in places.items():
            odd = count > gate.leakage * elsewhere.rows[name]
            if count:
                found.append(
                    (
                        odd,
                        f"{count:,} of the {elsewhere.rows[name]:,} rows of {name} overlap with the {where} (at "
                        f"most {gate.leakage:.1%}): "
                        f"{'too many' if odd else 'few enough'}",
                    )
                )
    return found
