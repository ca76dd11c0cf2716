"""Criteria on several sets of rows: each set is evaluated as if it were the gate's split, and the worst one decides.
Pure functions.

On every set a bound is compared with the worse end of the figure's interval on that set, and a test reads the interval
of its paired difference, at the level for the number of rivals. No correction for the number of sets is needed: a
candidate must meet the criterion on all of them, which is as hard as on the hardest one (Berger 1982). Scores on a set
that overlaps with training data are not valid, so the gate's ``leakage`` applies to each judging set, named by a
criterion or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tasks.gate.criteria import Finding, evaluate_criterion, figure
from tasks.gate.row import GateRow
from tasks.recipe.judging import Criterion, Gate
from tasks.scoring.quality.gain import Gain, Unread

ReadOn = Callable[[str, str, Criterion, float], Gain | Unread | None]
"""Returns the interval that a criterion reads on a set, by name, for a candidate, by name, at a confidence level, or
None."""


def unknown_gain_on(where: str, name: str, criterion: Criterion, confidence: float) -> Gain | None:
    """Return None: no interval is known."""
    return None


@dataclass(frozen=True)
class Elsewhere:
    """The gate's evidence from judging sets beside the figures in the rows of candidates and teacher."""

    read: ReadOn = unknown_gain_on
    """Intervals of bounds, in the metric's own unit, and of the paired differences that tests read."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """Number of rows of each set."""
    overlaps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Numbers of these rows that overlap with the students' training data, by set and kind of data."""


def worst_of(
    criterion: Criterion,
    candidate: GateRow,
    teacher: GateRow,
    split: str,
    read: Mapping[str, Gain | Unread | None],
    rivals: int = 1,
) -> Finding:
    """Evaluate a criterion for a candidate on every set that it names, and return the result on the worst set.

    ``read`` are the intervals that the criterion reads, by set, widened for the number of ``rivals``; ``split`` is the
    gate's, whose figures are in the rows themselves. A set on which the candidate is certainly worse counts as worse
    than one with a larger shortfall that may be noise.
    """
    alone = criterion.model_copy(update={"worst_of": ()})
    asked = [(name, seen_on(candidate, name, split), seen_on(teacher, name, split)) for name in criterion.worst_of]
    found = [
        (
            evaluate_criterion(alone, ours, theirs, None, read.get(name), rivals),
            room(alone, ours, theirs, read.get(name)),
            name,
        )
        for name, ours, theirs in asked
    ]
    worst, _, where = max(found, key=lambda one: (not one[0].met, one[0].worse, one[0].shortfall, -one[1]))
    others = [name for _, _, name in found if name != where]
    beside = f"{where}, the worst of this and {', '.join(others)}" if others else where
    return replace(worst, reason=f"on {beside}: {worst.reason}")


def seen_on(row: GateRow, name: str, split: str) -> GateRow:
    """Return a row with its figures on one set in the gate's form; unknown ones for a model that was not scored
    there."""
    if name == split:
        return row
    return row.on.get(name) or row.replaced(metrics={}, retained=None, headline=None)


def room(criterion: Criterion, ours: GateRow, theirs: GateRow, read: Gain | Unread | None) -> float:
    """Return a value that is larger for a better figure, share or difference: among sets that all meet the bound, the
    one with the smallest value is reported."""
    if criterion.test is not None:
        return read.low if isinstance(read, Gain) else 0.0
    value, other = figure(ours, criterion.metric), figure(theirs, criterion.metric)
    if value is not None and isinstance(read, Gain):
        value = read.low if criterion.at_least is not None else read.high
    if value is None or (criterion.reference is not None and other is None):
        return 0.0
    if criterion.reference is not None and other is not None:
        value = value - other if criterion.by == "difference" else value / other if other else 0.0
    return value if criterion.at_least is not None else -value


def leakage_of_sets(gate: Gate, elsewhere: Elsewhere) -> list[tuple[bool, str]]:
    """Return, for each judging set and kind of training data that overlaps with it, whether the overlap is too large,
    and a sentence."""
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
