"""The gate: a verdict on every candidate of a run, with reasons. Pure functions.

- ``ANOMALOUS``: implausibly good: certainly better than the teacher by more than ``too_good`` (of an error, such as a
  perplexity, a share of the teacher's), a perfect score, or too many evaluation rows that overlap with training data.
- ``REGRESSION``: a test shows that it is certainly worse than its reference, by more than the tolerance.
- ``INFEASIBLE``: it misses a criterion, or is a classifier that gives all rows one class (``one_class``); if no
  candidate of a run is accepted, the one with the least total shortfall (each as a share of its bound) is marked as
  closest.
- ``ACCEPT``: it meets every criterion.

The first verdict that applies is given. Baselines, and steps on the way to another candidate, are scored and get no
verdict; exports get one, but never an alias of their own.

Among many candidates that are all too weak, one would pass by chance. The intervals of all candidates that may be
accepted are therefore widened by Holm's step-down correction (Holm 1979, "A simple sequentially rejective multiple test
procedure"): for any dependence between candidates, the probability of accepting at least one whose true quality misses
a criterion is at most half of one minus the criterion's confidence (2.5 % at 0.95). One candidate must meet every
criterion at once, which needs no correction (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tasks.errors import RecipeError
from tasks.gate.criteria import Champion, Finding, confidence_for, evaluate_criterion, figure, format_figure
from tasks.gate.one_class import one_class_findings
from tasks.gate.row import GateRow
from tasks.gate.served import ServedBudget, served_findings
from tasks.gate.worst_of import Elsewhere, leakage_of_sets, worst_of
from tasks.recipe.judging import COSTS, FIGURES, Criterion, Gate
from tasks.results.roles import role_of
from tasks.scoring.quality.gain import Gain, Unread

ACCEPT, REGRESSION, ANOMALOUS, INFEASIBLE = "ACCEPT", "REGRESSION", "ANOMALOUS", "INFEASIBLE"
BASELINE = "a baseline is scored for comparison and never becomes champion"
ONLY_A_STEP = "a step on the way to another candidate is scored and gets no version"


@dataclass(frozen=True)
class Decision:
    """The gate's decision on one candidate, with a sentence for every criterion."""

    name: str
    verdict: str | None
    reasons: tuple[str, ...]
    champion: bool = False
    """It is the preferred one of the candidates that this run's gate accepted."""
    closest: bool = False
    """No candidate was accepted, and this one has the least shortfall."""
    shortfall: float = 0.0
    """The sum of its shortfalls, each as a share of the criterion's bound."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """The evaluated figures, by the criterion's metric; None for unknown ones."""

    @property
    def accepted(self) -> bool:
        """Whether it may become champion."""
        return self.verdict == ACCEPT


Read = Callable[[str, Criterion, float], Gain | Unread | None]
"""Returns the interval that a criterion reads for a candidate, by name, at a confidence level; None if nothing is said
about the reason why it is unknown."""


def unknown_gain(name: str, criterion: Criterion, confidence: float) -> Gain | None:
    """Return None: no interval is known."""
    return None


@dataclass(frozen=True)
class Evidence:
    """The gate's evidence beside the figures of candidates and teacher."""

    champion: Champion | None = None
    read: Read = unknown_gain
    """Intervals of bounds, in the metric's own unit, and of the paired differences that tests read."""
    rows: int = 0
    """Number of rows of the gate's split."""
    overlaps: Mapping[str, int] = field(default_factory=dict)
    """Numbers of these rows that overlap with the students' training data, by its kind."""
    elsewhere: Elsewhere = Elsewhere()
    """The same evidence from judging sets."""
    budget: ServedBudget | None = None
    """The budget of a search whose answer is served by graphs."""


def evaluate_candidates(
    candidates: Sequence[GateRow], teacher: GateRow, gate: Gate, evidence: Evidence | None = None
) -> list[Decision]:
    """Return a decision on every candidate. The preferred accepted one is marked as the run's champion; if none is
    accepted, the one with the least shortfall is marked as closest, anomalous ones excluded."""
    for criterion in gate.criteria:
        require_known(criterion.metric, teacher)
    decisions = step_down(candidates, teacher, gate, evidence or Evidence())
    named = [number for number, candidate in enumerate(candidates) if role_of(candidate.role).registered]
    accepted = [number for number in named if decisions[number].accepted]
    if accepted:
        measure = measure_for(candidates[number] for number in accepted)
        best = min(accepted, key=lambda number: preference(candidates[number], gate.prefer, measure))
        told = chosen_here([candidates[number] for number in accepted], gate.prefer, measure)
        decisions[best] = replace(decisions[best], champion=True, reasons=(*decisions[best].reasons, *told))
        return decisions
    honest = [number for number in named if decisions[number].verdict != ANOMALOUS]
    if honest:
        measure = measure_for(candidates[number] for number in honest)
        best = min(
            honest,
            key=lambda number: (decisions[number].shortfall, preference(candidates[number], gate.prefer, measure)),
        )
        decisions[best] = closest(decisions[best])
    return decisions


def step_down(candidates: Sequence[GateRow], teacher: GateRow, gate: Gate, evidence: Evidence) -> list[Decision]:
    """Judge all candidates, corrected for the number of them that may be accepted (Holm 1979): accepted ones leave, and
    the rest is judged again with the correction for the smaller number.

    Baselines, exports and candidates that miss a criterion without sampling noise do not count towards this number;
    they are judged at the level of the first step.
    """
    left = [
        number
        for number, candidate in enumerate(candidates)
        if role_of(candidate.role).registered and not ruled_out(candidate, teacher, gate, evidence)
    ]
    decisions = [evaluate_gate(candidate, teacher, gate, evidence, max(1, len(left))) for candidate in candidates]
    rest = [number for number in left if not decisions[number].accepted]
    while rest and len(rest) < len(left):
        left = rest
        for number in left:
            decisions[number] = evaluate_gate(candidates[number], teacher, gate, evidence, len(left))
        rest = [number for number in left if not decisions[number].accepted]
    return decisions


def ruled_out(candidate: GateRow, teacher: GateRow, gate: Gate, evidence: Evidence) -> bool:
    """Return whether a candidate misses a criterion that does not depend on the evaluation rows, so that chance cannot
    make it pass."""
    costs = [
        evaluate_criterion(criterion, candidate, teacher, evidence.champion)
        for criterion in gate.criteria
        if not criterion.is_quality
    ]
    return not all(finding.met for finding in [*costs, *served_findings(candidate, evidence.budget)])


def closest(decision: Decision) -> Decision:
    """Return the decision marked as the closest of a run in which no candidate meets every criterion."""
    said = (
        f"no candidate meets all criteria; this one is the closest, with a total shortfall of {decision.shortfall:.1%}"
    )
    return replace(decision, closest=True, reasons=(*decision.reasons, said))


def evaluate_gate(candidate: GateRow, teacher: GateRow, gate: Gate, evidence: Evidence, rivals: int = 1) -> Decision:
    """Evaluate every criterion for one candidate, as one of ``rivals`` candidates, and check for implausible
    results."""
    values = {
        criterion.metric: figure(candidate, criterion.metric) for criterion in gate.criteria if not criterion.worst_of
    }
    if not role_of(candidate.role).judged:
        return Decision(candidate.name, None, (ONLY_A_STEP if candidate.role == "step" else BASELINE,), values=values)
    findings = [finding_of(criterion, candidate, teacher, gate, evidence, rivals) for criterion in gate.criteria]
    findings += [*served_findings(candidate, evidence.budget), *one_class_findings(candidate, gate)]
    wonders = [
        *too_good(candidate, teacher, gate, evidence.rows),
        *leakage(gate, evidence),
        *leakage_of_sets(gate, evidence.elsewhere),
    ]
    reasons = (*(finding.reason for finding in findings), *(said for _, said in wonders))
    short = sum(finding.shortfall for finding in findings)
    return Decision(
        candidate.name, verdict(findings, any(odd for odd, _ in wonders)), reasons, shortfall=short, values=values
    )


def finding_of(
    criterion: Criterion,
    candidate: GateRow,
    teacher: GateRow,
    gate: Gate,
    evidence: Evidence,
    rivals: int,
) -> Finding:
    """Return the result of one criterion for one of ``rivals`` candidates: on the gate's split, or on the worst of
    several sets.

    Several sets need no wider intervals: a candidate must meet the criterion on each of them, as it must meet every
    criterion.
    """
    read = partial(read_for, candidate.name, criterion, evidence=evidence, rivals=rivals)
    if not criterion.worst_of:
        return evaluate_criterion(criterion, candidate, teacher, evidence.champion, read(), rivals)
    found = {name: read(on=None if name == gate.split else name) for name in criterion.worst_of}
    return worst_of(criterion, candidate, teacher, gate.split, found, rivals)


def read_for(
    name: str, criterion: Criterion, evidence: Evidence, rivals: int, on: str | None = None
) -> Gain | Unread | None:
    """Return the interval that a criterion reads for a candidate, at the level for the number of ``rivals``; None if
    the criterion reads no interval.

    It is computed on the gate's split, or on the judging set ``on``.
    """
    if not criterion.reads_interval:
        return None
    confidence = confidence_for(criterion, rivals)
    return (
        evidence.read(name, criterion, confidence)
        if on is None
        else evidence.elsewhere.read(on, name, criterion, confidence)
    )


def verdict(findings: Sequence[Finding], anomalous: bool) -> str:
    """Return the first verdict that applies."""
    if anomalous:
        return ANOMALOUS
    if any(finding.worse for finding in findings):
        return REGRESSION
    return ACCEPT if all(finding.met for finding in findings) else INFEASIBLE


def too_good(candidate: GateRow, teacher: GateRow, gate: Gate, rows: int) -> list[tuple[bool, str]]:
    """Return the signs that a result is too good: a large lead over the teacher, or no error at all. ``lead`` is the
    gain of the headline score."""
    lead, found = candidate.lead, []
    most, whose = gate.too_good, ""
    if teacher.of_error and teacher.headline is not None:
        # Scores end at 1, and errors at no figure: the same 0.05 is nothing of a perplexity of 50.
        most, whose = (
            gate.too_good * teacher.headline,
            f" ({gate.too_good:.4g} of its {format_figure(teacher.headline)})",
        )
    if lead is not None and lead.low is not None and lead.low > most:
        found.append(
            (
                True,
                f"certainly {lead.low:.4g} better than the teacher, more than {format_figure(most)}{whose}: "
                f"implausibly good, check for a data leak",
            )
        )
    if candidate.perfect and rows >= gate.perfect_rows:
        found.append((True, f"no error on {rows:,} rows: implausibly good, check for a data leak"))
    return found


def leakage(gate: Gate, evidence: Evidence) -> list[tuple[bool, str]]:
    """Return, for each kind of training data that overlaps with the gate's rows, whether the overlap is too large, and
    a sentence."""
    found = []
    for where, count in evidence.overlaps.items():
        odd = count > gate.leakage * evidence.rows
        if count:
            word = "too many" if odd else "few enough"
            found.append(
                (
                    odd,
                    f"{count:,} of the {evidence.rows:,} evaluation rows overlap with the {where} (at most "
                    f"{gate.leakage:.1%}): {word}",
                )
            )
    return found


def require_known(metric: str, teacher: GateRow) -> None:
    """Raise RecipeError for a metric that this task does not have."""
    if metric not in (*FIGURES, *COSTS) and metric not in teacher.metrics:
        raise RecipeError(
            f"gate: unknown metric {metric!r}; legal are {', '.join([*FIGURES, *COSTS, *teacher.metrics])}"
        )


def measure_for(candidates: Iterable[GateRow]) -> str:
    """Return the measure of quality by which candidates are compared: the score on selection rows if all have one. A
    candidate selected as the best on the gate's rows would get an optimistic score there."""
    return "selection" if all(candidate.selection is not None for candidate in candidates) else "quality"


def chosen_here(accepted: Sequence[GateRow], prefer: str, measure: str) -> list[str]:
    """Return a sentence about a champion that is the best of several on the rows that report it: by the preference, or
    because what is preferred is the same for all."""
    by_quality = measure == "quality" and len({cost_by(candidate, prefer) for candidate in accepted}) == 1
    if len(accepted) < 2 or not by_quality:
        return []
    return [
        f"preferred among {len(accepted)} accepted candidates by its score on the rows that report it, as not all have "
        f"one on selection rows (data.selection_rows): its figures are those of a winner, and somewhat too good"
    ]


def preference(candidate: GateRow, prefer: str, measure: str = "quality") -> tuple[float, float]:
    """Return a sort key that is smallest for the preferred candidate: unknown costs come last, and quality (see
    ``measure_for``) breaks ties."""
    quality = candidate.worth(measure)
    return cost_by(candidate, prefer), math.inf if quality is None or math.isnan(quality) else -quality


def cost_by(candidate: GateRow, prefer: str) -> float:
    """Return what a preference saves, the less the better; infinity for an unknown cost, and the same for all where the
    best is preferred."""
    cost = COST[prefer](candidate)
    return math.inf if cost is None else cost


def size(candidate: GateRow) -> float | None:
    """Return the bytes of a candidate's weights."""
    return figure(candidate, "bytes")


def slowness(candidate: GateRow) -> float | None:
    """Return a value that is smaller for faster candidates: from the speed-up over the teacher, which was timed in turn
    and is therefore comparable between machines; else the latency."""
    speedup = figure(candidate, "speedup")
    return figure(candidate, "latency_ms") if speedup is None else -speedup


def no_cost(candidate: GateRow) -> float | None:
    """Return the same cost for all, so that quality decides."""
    return 0.0


COST = {"smallest": size, "fastest": slowness, "best": no_cost}
