"""Latency and speed-up as reported in the results, all relative to one latency of the teacher, and the detection of
unsteady ones.

Every candidate is timed in turn with its teacher, in a stage of its own, and a machine may change its speed between two
stages. So a stage measures a candidate's speed-up over the teacher; the candidate's reported latency is the teacher's
own, measured once, divided by that speed-up. Unsteady figures are displayed but decide nothing: no alias, no criterion,
no preference, no Pareto front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.results.facts import SpeedFacts, TextFacts
from tasks.results.row import ResultRow, Timing
from tasks.scoring.speed.speed import figure_of
from tasks.scoring.speed.timing import NEAR


def with_paces(rows: Sequence[ResultRow], paces: Sequence[SpeedFacts]) -> list[ResultRow]:
    """Return the rows of the results, the teacher's first, with latency and speed-up; ``paces`` are the measurements of
    their stages."""
    first = paces[0]
    paced = [
        row.replaced(**pace_of(pace, first, alone=number == 0))
        for number, (row, pace) in enumerate(zip(rows, paces, strict=True))
    ]
    apart = out_of_step(paced)
    return [row.replaced(unsteady=row.unsteady or apart.get(row.name)) for row in paced]


def pace_of(pace: SpeedFacts, teachers: SpeedFacts, *, alone: bool) -> dict[str, object]:
    """Return one row's figures of speed; ``alone`` is the teacher's own row."""
    theirs, measured = teachers.model.p50_ms, pace.model.p50_ms
    latency = theirs if alone else figure_of(theirs / pace.speedup)
    bounds = [measured / pace.model.high_ms, measured / pace.model.low_ms]
    if not alone:
        bounds = [pace.speedup_low / pace.speedup, pace.speedup_high / pace.speedup]
    low, high = min(1.0, *bounds), max(1.0, *bounds)  # figures are rounded, and may lie outside of a narrow interval
    because = pace.unsteady or (f"its teacher is unsteady: {teachers.unsteady}" if teachers.unsteady else None)
    if pace.token_unsteady:
        because = because or f"for a further token {pace.token_unsteady}"
    return {
        "latency_ms": latency,
        "latency_low_ms": latency / high,
        "latency_high_ms": latency / low,
        "latency_p95_ms": pace.model.p95_ms * latency / measured,
        "speedup": theirs / latency,
        "unsteady": because or None,
        "timed": Timing(measured_ms=measured, teacher_ms=pace.teacher.p50_ms, calls=pace.calls),
    }


def with_texts(rows: Sequence[ResultRow], found: Sequence[TextFacts]) -> list[ResultRow]:
    """Return the rows of the results, the teacher's first, with the figures of real texts; ``found`` are the
    measurements of their stages, none if there were none. Unsteady times make a row unsteady."""
    if not found:
        return list(rows)
    return [
        row.replaced(**text_figures(row, one, found[0], alone=number == 0))
        for number, (row, one) in enumerate(zip(rows, found, strict=True))
    ]


def text_figures(row: ResultRow, found: TextFacts, teachers: TextFacts, *, alone: bool) -> dict[str, object]:
    """Return one row's figures of real texts."""
    pace = pace_of(found, teachers, alone=alone)
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
    ordered = sorted((row.latency_ms or 0.0, row.name) for row in same)
    agree = max(
        (
            [name for latency, name in ordered[at:] if latency <= first * (1 + NEAR)]
            for at, (first, _) in enumerate(ordered)
        ),
        key=len,
    )
    kept = set(agree) if 2 * len(agree) > len(ordered) else set()
    low, high = ordered[0][0], ordered[-1][0]
    said = f"{len(ordered)} models of its shape took {low:g} to {high:g} ms, more than {100 * NEAR:g} % apart"
    return {name: said for _, name in ordered if name not in kept}
