"""Chains of candidates, step by step: the teacher, each candidate that is made from the one before, and the exports of
the last. All figures are those of the rows of the results; a step is compared with the row before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.report.format.pareto import number
from tasks.results.roles import role_of
from tasks.results.row import ExportFacts, ResultRow
from tasks.task_types.types import ERROR_METRICS

FEWEST_STEPS = 2
"""Steps from which a chain is displayed: one step alone is a row of the table beside the teacher's."""


@dataclass(frozen=True)
class ChainStep:
    """One model of a chain, and the model that it is compared with; the teacher is compared with none."""

    row: ResultRow
    before: ResultRow | None
    making: str
    """How it is made from the one before, in a few words."""

    def score_change(self, split: str) -> float | None:
        """Return the change of the headline score; None if one of the two is unknown."""
        if self.before is None:
            return None
        ours, theirs = number(self.row.score(split).value), number(self.before.score(split).value)
        return None if ours is None or theirs is None else ours - theirs

    @property
    def size_change(self) -> float | None:
        """The change of the bytes of the weights, as a share of those before."""
        return None if self.before is None else relative(self.row.bytes, self.before.bytes)

    @property
    def latency_change(self) -> float | None:
        """The change of the latency, as a share of that before; None if one of the two is unsteady or unknown."""
        if self.before is None or self.row.unsteady or self.before.unsteady:
            return None
        return relative(self.row.latency_ms, self.before.latency_ms)

    @property
    def is_unsteady(self) -> bool:
        """Whether its latency, or that of the model before, is unsteady."""
        return bool(self.row.unsteady or (self.before is not None and self.before.unsteady))


@dataclass(frozen=True)
class Chain:
    """The steps of one chain: the teacher first, then candidates, then exports of the last candidate."""

    steps: tuple[ChainStep, ...]

    @property
    def last(self) -> ResultRow:
        """The last candidate."""
        return next(step.row for step in reversed(self.steps) if step.row.of is None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its models."""
        return tuple(step.row.name for step in self.steps)


def chains(models: Sequence[ResultRow], first: str = "") -> list[Chain]:
    """Return the chains of a run with at least two steps, in the order of the results; those with the model ``first``
    come before the others. Baselines begin no chain of their own."""
    known = {row.name: row for row in models if row.of is None}
    behind = {row.made_from for row in known.values()}
    ends = [row for row in known.values() if row.made_from and row.name not in behind and role_of(row.role).judged]
    found = [chain_to(row, known, models) for row in ends]
    long = [chain for chain in found if len(chain.steps) > FEWEST_STEPS]
    return sorted(long, key=lambda chain: first not in chain.names)


def chain_to(end: ResultRow, known: Mapping[str, ResultRow], models: Sequence[ResultRow]) -> Chain:
    """Return the chain that ends with a candidate, with the candidate's exports."""
    rows: list[ResultRow] = []
    place: ResultRow | None = end
    while place is not None and place not in rows and place.role != "teacher":
        rows.insert(0, place)
        place = known.get(place.made_from or "")
    teacher = next((row for row in models if row.role == "teacher"), None)
    rows = rows if teacher is None else [teacher, *rows]
    steps = [ChainStep(row, before, words_of(row)) for before, row in zip([None, *rows], rows, strict=False)]
    return Chain((*steps, *(ChainStep(row, end, words_of(row)) for row in models if row.of == end.name)))


def words_of(row: ResultRow) -> str:
    """Return how a model is made, in a few words; an export that is not published says so."""
    if row.of is not None:
        found = row.export or ExportFacts()
        return f"{found.format} export{'' if found.published else ', not published'}".strip()
    if row.made_by:
        return row.made_by
    return "teacher" if row.role == "teacher" else role_of(row.role).label


def relative(ours: object, theirs: object) -> float | None:
    """Return the change from one figure to another, as a share of the first; None if one is unknown."""
    after, before = number(ours), number(theirs)
    return None if after is None or not before else after / before - 1


def points(change: float | None, headline: str) -> str:
    """Return the change of a score: of an error or a figure beyond 1 as it is, of any other in points of a hundred."""
    if change is None:
        return ""
    figure = f"{change:+.3f}" if headline in ERROR_METRICS else f"{100 * change:+.1f} points"
    return figure.replace("-", "−")


def percent_change(change: float | None) -> str:
    """Return a change as a share in per cent; empty if it is unknown."""
    return "" if change is None else f"{100 * change:+.0f} %".replace("-", "−")


def whole_way(chain: Chain, split: str) -> str:
    """Return a sentence on the whole way, from the teacher to the last candidate and to its smallest published
    export."""
    start, headline = chain.steps[0].row, chain.last.headline
    exports = [step.row for step in chain.steps if step.row.export is not None and step.row.export.published]
    smallest = min((row for row in exports if number(row.bytes)), key=lambda row: row.bytes or 0, default=None)
    ends = [chain.last, *([smallest] if smallest is not None else [])]
    found = [(end, [part for part in parts_of(start, end, split, headline) if part]) for end in ends]
    return " ".join(
        f"From {start.name} to {end.name}: {', '.join(parts) or 'nothing is known'}." for end, parts in found
    )


def parts_of(start: ResultRow, end: ResultRow, split: str, headline: str) -> list[str]:
    """Return the changes from one model to another, in words; empty for an unknown one."""
    whole = ChainStep(end, start, "")
    size, speed = number(end.bytes), number(end.latency_ms)
    return [
        said if (said := points(whole.score_change(split), headline)) else "",
        f"{(start.bytes or 0) / size:.1f} times smaller" if size and number(start.bytes) else "",
        "speed unsteady"
        if whole.is_unsteady
        else f"{(start.latency_ms or 0) / speed:.1f} times as fast"
        if speed and number(start.latency_ms)
        else "",
    ]
