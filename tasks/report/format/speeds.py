"""Latency and speed-up as text: with their spread, and marked as unsteady if so. Results of older releases contain no
spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from tasks.report.format.pareto import number
from tasks.results.row import Number, ResultRow

DASH = "—"
UNSTEADY = "unsteady"


class Timed(Protocol):
    """A model with latency and speed-up."""

    @property
    def role(self) -> str:
        """Its role in the run."""

    @property
    def latency_ms(self) -> Number | None:
        """Its median latency."""

    @property
    def latency_low_ms(self) -> Number | None:
        """The lower bound of the latency."""

    @property
    def latency_high_ms(self) -> Number | None:
        """The upper bound of the latency."""

    @property
    def speedup(self) -> Number | None:
        """The latency of its teacher divided by its own."""

    @property
    def unsteady(self) -> str | None:
        """The reason why its speed is unsteady and therefore decides nothing."""


def milliseconds(value: Any) -> str:
    """Return a latency with the digits to which it was rounded: two decimals, or three significant digits below
    1 ms."""
    found = number(value)
    return DASH if found is None else f"{found:.2f}" if found >= 1 else f"{found:.3g}"


def format_latency(model: Timed) -> str:
    """Return a latency with the reach of its interval, in whole per cent of the latency, rounded up."""
    spread = spread_of(model)
    return milliseconds(model.latency_ms) + ("" if spread is None else f" ±{math.ceil(100 * spread - 1e-9)}%")


def spread_of(model: Timed) -> float | None:
    """Return the reach of the interval of a latency, as a share of the latency; None if there is no interval."""
    latency, low, high = map(number, (model.latency_ms, model.latency_low_ms, model.latency_high_ms))
    return None if not latency or low is None or high is None else max(high - latency, latency - low) / latency


def format_speedup(model: Timed, unit: str = "x") -> str:
    """Return a speed-up; that of the teacher over itself is a dash."""
    found = number(model.speedup)
    if found is None or model.role == "teacher":
        return DASH
    return UNSTEADY if model.unsteady else f"{found:.1f}{unit}"


def times_as_fast(model: Timed) -> str:
    """Return a model's speed relative to its teacher, in words; empty if unknown."""
    found = number(model.speedup)
    if found is None:
        return ""
    return "its speed is unsteady" if model.unsteady else f"{found:.1f} times as fast as the teacher"


def speed_lines(models: Sequence[ResultRow]) -> list[str]:
    """Return sentences on rows of unsteady speed, and on rows whose matrix products use another library than the
    teacher's."""
    shaky = [
        f"The speed of {model.name} is unsteady and not used for decisions: {model.unsteady}."
        for model in models
        if model.unsteady
    ]
    held = [(model.name, model.export.unsteady if model.export else None) for model in models]
    unheld = [
        f"{name} was not checked against exports.min_speedup, because its speed relative to its own fp32 graph is "
        f"unsteady: {why}."
        for name, why in held
        if why
    ]
    return [*shaky, *unheld, *library_lines(models), *text_lines(models)]


def text_lines(models: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on the pieces and the time of real texts for each model; none unless they were measured."""
    return [
        f"Texts of the validation split take {model.name} {milliseconds(model.ms_per_text)} ms each, at "
        f"{model.fertility:.3f} pieces per word{elsewhere(model)}."
        for model in models
        if model.fertility is not None
    ]


def elsewhere(model: ResultRow) -> str:
    """Return the pieces per word of judging sets, as the end of a sentence; empty without such sets."""
    return "" if model.fertility_elsewhere is None else f" ({model.fertility_elsewhere:.3f} in judging sets)"


def library_lines(models: Sequence[ResultRow]) -> list[str]:
    """Return sentences on the rows that were timed with another library for fp32 products than the first row."""
    found = {model.name: library_of(model) for model in models if library_of(model)}
    first = next(iter(found.values()), "")
    others = sorted({library for library in found.values() if library != first})
    by = {one: ", ".join(name for name, own in found.items() if own == one) for one in others}
    return [
        f"Faster with the fp32 matrix products of {one}, and therefore timed with them: {names}."
        for one, names in by.items()
    ]


def library_of(model: ResultRow) -> str:
    """Return the library of the matrix products in a row's timing; empty for an export."""
    words = (model.measured_at.engine if model.measured_at else "").split(" against ")[0].split(", ")
    return words[1] if len(words) == 2 and words[0].startswith("torch fp32") else ""
