"""The budget of a search whose answer is served by graphs: one form in which a candidate can be served must meet all of
it. A checkpoint's own figures say nothing of its graph in int8. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.gate.criteria import UNKNOWN, Finding, evaluate_criterion
from tasks.gate.row import GateRow
from tasks.recipe.judging import Criterion
from tasks.results.roles import role_of
from tasks.results.row import ResultRow
from tasks.results.search import SearchResult

WHOLE_BUDGET = "budget"
"""The metric of a finding on the whole budget."""


@dataclass(frozen=True)
class ServedBudget:
    """The most that a served form may have of each figure, and the forms of each model by format."""

    limits: Mapping[str, float]
    formats: tuple[str, ...]
    forms: Mapping[str, Mapping[str, GateRow]]
    """By name: of a candidate all that may be published in a format of the search, of a graph itself alone."""


def served_budget(
    search: SearchResult | None, models: Sequence[ResultRow], rows: Sequence[GateRow]
) -> ServedBudget | None:
    """Return the budget of a search for some models and their figures; None without one that is for graphs."""
    if search is None or not search.limits:
        return None
    forms: dict[str, dict[str, GateRow]] = {}
    for model, row in zip(models, rows, strict=True):
        if model.export is None:
            forms[model.name] = {"torch": row} if "torch" in search.formats and role_of(model.role).judged else {}
    for model, row in zip(models, rows, strict=True):
        if model.export is not None and model.export.format in search.formats:
            forms[model.name] = {model.export.format: row}
            if model.export.published and model.of is not None:
                forms.setdefault(model.of, {})[model.export.format] = row
    return ServedBudget({name: float(most) for name, most in search.limits.items()}, search.formats, forms)


def served_findings(candidate: GateRow, budget: ServedBudget | None) -> list[Finding]:
    """Return the results of a budget for the form of a candidate that meets it, or misses it by the least; none for a
    graph in a format that the budget is not for."""
    if budget is None or candidate.name not in budget.forms:
        return []
    found = {way: form_in_budget(way, row, budget) for way, row in budget.forms[candidate.name].items()}
    if not found:
        said = f"the budget is for {' or '.join(budget.formats)}, and there is no such graph to publish: not met"
        return [Finding(WHOLE_BUDGET, False, said, UNKNOWN)]
    return min(found.values(), key=lambda findings: sum(one.shortfall for one in findings))


def form_in_budget(way: str, row: GateRow, budget: ServedBudget) -> list[Finding]:
    """Return the results of a budget for one form, each with its format."""
    bounds = [Criterion(metric=name, at_most=most) for name, most in budget.limits.items()]
    findings = [evaluate_criterion(bound, row, row) for bound in bounds]
    return [Finding(one.metric, one.met, f"budget, in {way}: {one.reason}", one.shortfall) for one in findings]
