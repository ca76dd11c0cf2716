"""Optional parts of a model card: errors and cost, and how figures are to be read."""

from __future__ import annotations

from tasks.catalog import TaskSpec
from tasks.metrics.metrics import METRICS
from tasks.ports.markdown import code_span
from tasks.recipe.recipe import Recipe
from tasks.report.format.numbers import DASH, figure, money
from tasks.report.format.pareto import number
from tasks.results.row import Amount, ResultRow
from tasks.task_types.interfaces import ErrorFigure
from tasks.task_types.views import VIEWS

COSTS = {
    "seconds": ("time", "{} s"),
    "gpu_seconds": ("GPU time", "{} s"),
    "kwh": ("energy", "{} kWh"),
    "co2e_kg": ("CO2e", "{} kg"),
    "co2e_lb": ("CO2e in pounds", "{} lb"),
    "dollars_on_demand": ("cost on demand", "{}"),
    "dollars_spot": ("cost on spot", "{}"),
}


def more_rows(model: ResultRow, error: ErrorFigure) -> list[str]:
    """Return the known rows on errors and cost, each with its origin; ``error`` is the figure that the task type puts
    on cards."""
    return [*error_rows(model, error), *cost_rows(model)]


def limit_row(model: ResultRow, task: TaskSpec) -> str:
    """Return the row on the share of inputs that were too long, with the column that was cut where one alone was."""
    cut = {"first": task.text, "second": task.pair}.get(task.truncate)
    named = f", of which {code_span(cut)} alone is cut" if cut else ""
    return f"| inputs longer than the limit{named} | {figure(model.truncated, '.2%')} | measured |"


def explained_figures(model: ResultRow, recipe: Recipe) -> str:
    """Return how a type's figures of texts are computed, and how these were read or written; empty for a type whose
    texts are truncated. A figure without that is comparable with no other."""
    judged, generation, tokens = VIEWS[recipe.spec.kind].judged, recipe.generation, recipe.scoring.max_length
    if not judged:
        return ""
    stated = str((model.inspection or {}).get("signature") or "")
    signatures = {"bleu": f" sacreBLEU's signature: `{stated}`."} if stated else {}
    metrics = [
        f"- `{name}`: {METRICS[name].description}{signatures.get(name, '')}"
        for name in model.metrics[recipe.gate.split]
        if name in METRICS
    ]
    sentence = judged.format(
        tokens=tokens,
        half=tokens // 2,
        beams=generation.beams,
        penalty=f"{generation.length_penalty:g}",
        most=generation.max_length,
    )
    return "\n".join([*metrics, "", sentence, "", ""])


def error_rows(model: ResultRow, error: ErrorFigure) -> list[str]:
    """Return the row of a figure of the error analysis; empty if it is unknown."""
    value = (model.inspection or {}).get(error.name)
    return [] if number(value) is None else [f"| {error.title} | {figure(value, '.4f')} | measured |"]


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
