"""The parts of a run's page as its templates read them: figures are text already, charts are markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class FrontPart:
    """One Pareto chart with its sentence."""

    title: str
    chart: Markup | None
    said: str


@dataclass(frozen=True)
class TableRow:
    """One row of the table of all candidates."""

    name: str
    role: str
    mark: Markup
    champion: bool
    of: str | None
    """The original model of an export."""
    making: str
    engine: str | None
    score: str
    bounds: str
    spread: str
    retained: str
    retained_bounds: str
    parameters: str
    size: str
    flops: str
    latency: str
    speedup: str
    memory: str
    error: str
    """The figure of the error analysis."""
    cost: str
    gate: str
    verdict: str
    reasons: list[str]
    front: str
    """The Pareto charts with this model on the front."""
    note: str | None


@dataclass(frozen=True)
class TrainingCurves:
    """The charts of one training."""

    title: str
    cached: bool
    charts: list[Markup]
    seeds: int


@dataclass(frozen=True)
class CurveParts:
    """The charts of all trainings: those that are displayed at once, and the rest."""

    first: list[TrainingCurves]
    others: list[TrainingCurves]


@dataclass(frozen=True)
class LedgerCell:
    """One figure of the ledger with its origin: measured, estimated or unknown."""

    value: str
    how: str


@dataclass(frozen=True)
class LedgerRow:
    """One line of the ledger."""

    name: str
    cells: list[LedgerCell]


@dataclass(frozen=True)
class LedgerPart:
    """The ledger of a run."""

    heads: list[str]
    sums: list[LedgerRow]
    models: list[LedgerRow]
    stages: list[LedgerRow]
    methods: list[str]
    counted: list[str]


@dataclass(frozen=True)
class ConfusionCell:
    """The rows of one true class with one prediction; ``share`` is that of the true class's rows."""

    count: str
    share: float
    right: bool
    said: str


@dataclass(frozen=True)
class ConfusionRow:
    """One true class."""

    label: str
    cells: list[ConfusionCell]


@dataclass(frozen=True)
class AnalysisPart:
    """The error analysis of one model; ``confusion`` or ``mistakes`` is None."""

    name: str
    role: str
    figures: list[tuple[str, str]]
    chart: Markup | None
    labels: list[str]
    confusion: list[ConfusionRow] | None
    mistakes: list[str] | None


@dataclass(frozen=True)
class ShownAnswer:
    """A model's prediction for an example row."""

    answer: str
    probability: float | None


@dataclass(frozen=True)
class ShownExample:
    """One row on which student and teacher disagree."""

    id: int
    texts: list[str]
    label: str
    student: ShownAnswer
    teacher: ShownAnswer


@dataclass(frozen=True)
class ExampleList:
    """The example rows of one sort."""

    title: str
    rows: list[ShownExample]


@dataclass(frozen=True)
class DisagreementPart:
    """The disagreements of a student and its teacher."""

    lines: list[tuple[str, str]]
    lists: list[ExampleList]
    with_texts: bool


@dataclass(frozen=True)
class SweepCellPart:
    """One cell of the table of a sweep."""

    text: str
    chosen: bool


@dataclass(frozen=True)
class SweepRow:
    """The cells of one number of dropped layers."""

    drop: int
    cells: Sequence[SweepCellPart]
