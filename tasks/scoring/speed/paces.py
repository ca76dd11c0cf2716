"""Latency and speed-up as reported in the results, all relative to one latency of the teacher, and the detection of
unsteady ones.

Every candidate is timed in turn with its teacher, in a stage of its own, and a machine may change its speed between two
stages. So a stage measures a candidate's speed-up over the teacher; the candidate's reported latency is the teacher's
own, measured once, divided by that speed-up. Where this one measurement is unsteady, the candidates' stages tell the
teacher's latency, if most of them agree. Unsteady figures are displayed but decide nothing: no alias, no criterion, no
preference, no Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tasks.results.facts import SpeedFacts, TextFacts
from tasks.results.row import ResultRow, Timing
from tasks.scoring.speed.speed import figure_of
from tasks.scoring.speed.timing import NEAR

FEWEST_STAGES = 3
"""Of candidates, that must agree on the teacher's latency if its own stage could not tell it."""


@dataclass(frozen=True)
class TeacherLatency:
    """The latency of the teacher to which all others are relative, and the reason if it is unsteady."""

    ms: float
    low_ms: float
    high_ms: float
    unsteady: str | None


def with_paces(rows: Sequence[ResultRow], paces: Sequence[SpeedFacts]) -> list[ResultRow]:
    """Return the rows of the results, the teacher's first, with latency and speed-up; ``paces`` are the measurements of
    their stages."""
    teacher = teacher_latency(paces)
    paced = [
        row.replaced(**pace_of(pace, teacher, alone=number == 0))
        for number, (row, pace) in enumerate(zip(rows, paces, strict=True))
    ]
    apart = out_of_step(paced)
    return [row.replaced(unsteady=row.unsteady or apart.get(row.name)) for row in paced]


def teacher_latency(paces: Sequence[SpeedFacts]) -> TeacherLatency:
    """Return the teacher's latency by its own stage, the first; if that is unsteady, the median of those that at least
    three steady stages of candidates, and most of them, measured within 5 % of each other."""
    own, *beside = paces
    agree = most_that_agree([one.teacher.p50_ms for one in beside if not one.unsteady])
    if own.unsteady and len(agree) >= FEWEST_STAGES:
        return TeacherLatency(figure_of(median(agree)), agree[0], agree[-1], None)
    return TeacherLatency(own.model.p50_ms, own.model.low_ms, own.model.high_ms, own.unsteady)


def most_that_agree(latencies: Sequence[float]) -> Sequence[float]:
    """Return the largest group of latencies that lie within 5 % of its least, sorted; none if it is no majority."""
    ordered = sorted(latencies)
    groups = ([one for one in ordered[at:] if one <= first * (1 + NEAR)] for at, first in enumerate(ordered))
    agree = max(groups, key=len, default=[])
    return agree if 2 * len(agree) > len(ordered) else []


def pace_of(pace: SpeedFacts, teacher: TeacherLatency, *, alone: bool) -> dict[str, object]:
    """Return one row's figures of speed; ``alone`` is the teacher's own row."""
    measured = pace.model.p50_ms
    latency = teacher.ms if alone else figure_of(teacher.ms / pace.speedup)
    bounds = [teacher.ms / teacher.high_ms, teacher.ms / teacher.low_ms]
    if not alone:
        bounds = [pace.speedup_low / pace.speedup, pace.speedup_high / pace.speedup]
    low, high = min(1.0, *bounds), max(1.0, *bounds)  # figures are rounded, and may lie outside of a narrow interval
    because = teacher.unsteady if alone else pace.unsteady
    if not because and teacher.unsteady:
        because = f"its teacher is unsteady: {teacher.unsteady}"
    if pace.token_unsteady:
        because = because or f"for a further token {pace.token_unsteady}"
    return {
        "latency_ms": latency,
        "latency_low_ms": latency / high,
        "latency_high_ms": latency / low,
        "latency_p95_ms": pace.model.p95_ms * latency / measured,
        "speedup": teacher.ms / latency,
        "unsteady": because or None,
        "timed": Timing(measured_ms=measured, teacher_ms=pace.teacher.p50_ms, calls=pace.calls),
    }


def with_texts(rows: Sequence[ResultRow], found: Sequence[TextFacts]) -> list[ResultRow]:
    """Return the rows of the results, the teacher's first, with the figures of real texts; ``found`` are the
    measurements of their stages, none if there were none. Unsteady times make a row unsteady."""
    if not found:
        return list(rows)
    teacher = teacher_latency(found)
    return [
        row.replaced(**text_figures(row, one, teacher, alone=number == 0))
        for number, (row, one) in enumerate(zip(rows, found, strict=True))
    ]


def text_figures(row: ResultRow, found: TextFacts, teacher: TeacherLatency, *, alone: bool) -> dict[str, object]:
    """Return one row's figures of real texts."""
    pace = pace_of(found, teacher, alone=alone)
    why = f"for whole texts {pace['unsteady']}" if pace["unsteady"] else None
    pieces = {"fertility": found.fertility, "fertility_elsewhere": found.fertility_elsewhere}
    return {**pieces, "ms_per_text": pace["latency_ms"], "unsteady": row.unsteady or why}


def out_of_step(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return, by name, the reasons of rows that are unsteady because they are faster or slower than most rows of the
    same shape and engine."""
    shapes: dict[tuple[Any, ...], list[ResultRow]] = {}
    for row in rows:
        if not row.unsteady:
            shapes.setdefault(shape_of(row), []).append(row)
    return {name: why for same in shapes.values() for name, why in apart_in(same).items()}


def shape_of(row: ResultRow) -> tuple[Any, ...]:
    """Return the key of models of one shape: parameters, FLOPs, and the engine without its matrix library, which is
    chosen by the timing."""
    engine = row.measured_at.engine if row.measured_at else ""
    return row.parameters, row.flops, engine.split(" against ")[0].split(",")[0]


def apart_in(same: Sequence[ResultRow]) -> dict[str, str]:
    """Return, by name, the reasons of rows of one shape that the others contradict: all but the largest group that
    agrees within 5 %, and all rows if that group is no majority."""
    latencies = {row.name: row.latency_ms or 0.0 for row in same}
    agree = most_that_agree([*latencies.values()])
    low, high = min(latencies.values()), max(latencies.values())
    said = f"{len(same)} models of its shape took {low:g} to {high:g} ms, more than {100 * NEAR:g} % apart"
    return {name: said for name, latency in latencies.items() if latency not in agree}
