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
    look = model.inspection or {}
    if number(look.get("ece")) is not None:
        return [f"| expected calibration error | {figure(look['ece'], '.4f')} | measured |"]
    return (
        [f"| mean absolute error | {figure(look['mae'], '.4f')} | measured |"]
        if number(look.get("mae")) is not None
        else []
    )


def cost_rows(model: ResultRow) -> list[str]:
    """Return the cost of the model's own training stages and of one inference; an unknown figure is a dash with its
    reason, never a zero."""
    cost = model.cost.amounts() if model.cost else {}
    behind = model.cost.ancestors.amounts() if model.cost and model.cost.ancestors else {}
    own = [
        cost_row(f"{name} of {whose}", form, given[part], part)
        for whose, given in (("its own stages", cost), ("the candidates that it is made from", behind))
        for part, (name, form) in COSTS.items()
        if part in given
    ]
    return own + ([cost_row("energy of one inference", "{} J", cost["joules"], "joules")] if "joules" in cost else [])


def cost_row(name: str, form: str, found: Amount, part: str) -> str:
    """Return one line of cost."""
    known = number(found.value) is not None
    value = money(found.value) if part.startswith("dollars") else figure(found.value, ".4g")
    how = f"{found.how or 'unknown'}: {found.by}".rstrip(": ")
    return f"| {name} | {form.format(value) if known else DASH} | {how.replace('|', '/')} |"
