"""Latency and speed-up in words: with their spread, and called unsteady where they decide nothing. Results of older
releases state no spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.report.format.pareto import number

Model = Mapping[str, Any]
DASH = "—"
UNSTEADY = "unsteady"


def milliseconds(value: Any) -> str:
    """Return a latency with the digits to which it was rounded: two after the point, or three in all below 1 ms."""
    found = number(value)
    return DASH if found is None else f"{found:.2f}" if found >= 1 else f"{found:.3g}"


def latency_said(model: Model) -> str:
    """Return a latency with how far its interval reaches, in whole per cent of it, rounded up."""
    spread = spread_of(model)
    return milliseconds(model.get("latency_ms")) + ("" if spread is None else f" ±{math.ceil(100 * spread - 1e-9)}%")


def spread_of(model: Model) -> float | None:
    """Return how far the interval of a latency reaches from it, as a share of it; None where that was not stated."""
    latency, low, high = (number(model.get(name)) for name in ("latency_ms", "latency_low_ms", "latency_high_ms"))
    return None if not latency or low is None or high is None else max(high - latency, latency - low) / latency


def speedup_said(model: Model, unit: str = "x") -> str:
    """Return a speed-up; that of the teacher over itself is a dash."""
    found = number(model.get("speedup"))
    if found is None or model.get("role") == "teacher":
        return DASH
    return UNSTEADY if model.get("unsteady") else f"{found:.1f}{unit}"


def times_as_fast(model: Model) -> str:
    """Say how fast a model is beside its teacher; nothing where that is not known."""
    found = number(model.get("speedup"))
    if found is None:
        return ""
    return "its speed is unsteady" if model.get("unsteady") else f"{found:.1f} times as fast as the teacher"


def speed_lines(models: Sequence[Model]) -> list[str]:
    """Return sentences on rows whose speed decides nothing, and on those whose products another library computes than
    the teacher's."""
    shaky = [
        f"The speed of {model['name']} is unsteady and decides nothing: {model['unsteady']}."
        for model in models
        if model.get("unsteady")
    ]
    held = [(model["name"], (model.get("export") or {}).get("unsteady")) for model in models]
    unheld = [
        f"{name} was not held to exports.min_speedup, because its speed beside its own fp32 is unsteady: {why}."
        for name, why in held
        if why
    ]
    return [*shaky, *unheld, *library_lines(models)]


def library_lines(models: Sequence[Model]) -> list[str]:
    """Say which rows were timed with another library for fp32 products than the first."""
    found = {model["name"]: library_of(model) for model in models if library_of(model)}
    first = next(iter(found.values()), "")
    others = sorted({library for library in found.values() if library != first})
    by = {one: ", ".join(name for name, own in found.items() if own == one) for one in others}
    return [f"Faster with the fp32 products of {one}, and so timed with them: {names}." for one, names in by.items()]


def library_of(model: Model) -> str:
    """Return the library that multiplied in a row's timing; none for an export."""
    words = str((model.get("measured_at") or {}).get("engine", "")).split(" against ")[0].split(", ")
    return words[1] if len(words) == 2 and words[0].startswith("torch fp32") else ""
