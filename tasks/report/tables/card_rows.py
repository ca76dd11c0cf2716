"""Optional rows of a model card: calibration and cost."""

from __future__ import annotations

from tasks.report.format.numbers import DASH, figure, money
from tasks.report.format.pareto import number
from tasks.results.row import Amount, ResultRow

COSTS = {
    "seconds": ("time", "{} s"),
    "gpu_seconds": ("GPU time", "{} s"),
    "kwh": ("energy", "{} kWh"),
    "co2e_kg": ("CO2e", "{} kg"),
    "co2e_lb": ("CO2e in pounds", "{} lb"),
    "dollars_on_demand": ("cost on demand", "{}"),
    "dollars_spot": ("cost on spot", "{}"),
}


def more_rows(model: ResultRow) -> list[str]:
    """Return the known rows on calibration and cost, each with its origin."""
    return [*calibration_rows(model), *cost_rows(model)]


def calibration_rows(model: ResultRow) -> list[str]:
    """Return the expected calibration error, or the mean error of a regression."""
    analysis = model.inspection or {}
    if number(analysis.get("ece")) is not None:
        return [f"| expected calibration error | {figure(analysis['ece'], '.4f')} | measured |"]
    return (
        [f"| mean absolute error | {figure(analysis['mae'], '.4f')} | measured |"]
        if number(analysis.get("mae")) is not None
        else []
    )


def cost_rows(model: ResultRow) -> list[str]:
    """Return the cost of the model's own training stages and of one inference; an unknown figure is a dash with its
    reason, never a zero."""
    cost = model.cost.amounts() if model.cost else {}
    own = [
        cost_row(f"{name} of its own stages", form, cost[part], part)
        for part, (name, form) in COSTS.items()
        if part in cost
    ]
    return own + ([cost_row("energy of one inference", "{} J", cost["joules"], "joules")] if "joules" in cost else [])


def cost_row(name: str, form: str, found: Amount, part: str) -> str:
    """Return one line of cost."""
    known = number(found.value) is not None
    value = money(found.value) if part.startswith("dollars") else figure(found.value, ".4g")
    how = f"{found.how or 'unknown'}: {found.by}".rstrip(": ")
    return f"| {name} | {form.format(value) if known else DASH} | {how.replace('|', '/')} |"
