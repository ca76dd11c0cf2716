"""Optional rows of a model card: calibration and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.report.format.page_words import DASH, figure, money
from tasks.report.format.pareto import number

Model = Mapping[str, Any]
COSTS = {
    "seconds": ("time", "{} s"),
    "gpu_seconds": ("GPU time", "{} s"),
    "kwh": ("energy", "{} kWh"),
    "co2e_kg": ("CO2e", "{} kg"),
    "co2e_lb": ("CO2e in pounds", "{} lb"),
    "dollars_on_demand": ("cost on demand", "{}"),
    "dollars_spot": ("cost on spot", "{}"),
}


def more_rows(model: Model) -> list[str]:
    """Return the known rows on calibration and cost, each with its origin."""
    return [*calibration_rows(model), *cost_rows(model)]


def calibration_rows(model: Model) -> list[str]:
    """Return the expected calibration error, or the mean error of a regression."""
    look = model.get("inspection") or {}
    if number(look.get("ece")) is not None:
        return [f"| expected calibration error | {figure(look['ece'], '.4f')} | measured |"]
    return (
        [f"| mean absolute error | {figure(look['mae'], '.4f')} | measured |"]
        if number(look.get("mae")) is not None
        else []
    )


def cost_rows(model: Model) -> list[str]:
    """Return the cost of the model's own training stages and of one inference; an unknown figure is a dash with its
    reason, never a zero."""
    cost = model.get("cost") or {}
    own = [
        cost_row(f"{name} of its own stages", form, cost[part], part)
        for part, (name, form) in COSTS.items()
        if isinstance(cost.get(part), Mapping)
    ]
    return own + (
        [cost_row("energy of one inference", "{} J", cost["joules"], "joules")]
        if isinstance(cost.get("joules"), Mapping)
        else []
    )


def cost_row(name: str, form: str, found: Mapping[str, Any], part: str) -> str:
    """Return one line of cost."""
    known = number(found.get("value")) is not None
    value = money(found["value"]) if part.startswith("dollars") else figure(found.get("value"), ".4g")
    how = f"{found.get('how', 'unknown')}: {found.get('by', '')}".rstrip(": ")
    return f"| {name} | {form.format(value) if known else DASH} | {how.replace('|', '/')} |"
