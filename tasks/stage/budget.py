"""The budget of a run and its spending: checked before every stage that would compute, and periodically while one does.

Dollars and hours are counted for the whole run from its start on: an idle machine costs as much as a busy one. Where
its stages are computed on several machines, dollars are those of all of their hours. kWh are the sum over its stages,
each a lower bound of the stage's consumption. Cached stages cost nothing, and are not checked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tasks.contracts import Used
from tasks.errors import BudgetError
from tasks.scoring.costs.figures import least
from tasks.scoring.costs.ledger import cost_of, number
from tasks.scoring.costs.rates import Rates

HOUR = 3600.0
SHOWN = {"dollars": "${:.4g}", "kwh": "{:.4g} kWh", "hours": "{:.4g} hours"}
GO_ON = "finished stages are cached; to continue: limbeck resume --set costs.budget.{name}=MORE"


@dataclass
class RunBudget:
    """The budget of one run. ``limits`` has dollars, kwh and hours, each a number or None."""

    limits: Mapping[str, float | None]
    rates: Rates = field(default_factory=Rates)
    by_estimate: bool = True
    opened: float = field(default_factory=time.monotonic)

    def spent(self, useds: Iterable[Used]) -> dict[str, float]:
        """Return the run's spending so far; ``useds`` are the resources of its stages, running ones included."""
        hours, useds = (time.monotonic() - self.opened) / HOUR, list(useds)
        kwh = (
            sum(least(cost_of(used, self.rates)["kwh"]) for used in useds)
            if self.limits.get("kwh") is not None
            else 0.0
        )
        dollars = max(hours, machine_hours(useds)) * (self.rates.dollars_per_hour() or 0.0)
        return {"hours": hours, "dollars": dollars, "kwh": kwh}

    def require_rest(self, useds: Iterable[Used], shown: str = "", likely: Used | None = None) -> None:
        """Raise BudgetError if the budget is spent, or if the stage ``shown`` would exceed it; ``likely`` are the
        resources of a similar earlier stage."""
        spent = self.spent(useds)
        for name, limit in self.limited():
            if spent[name] > limit:
                amounts = f"{format_amount(name, spent[name])} of its budget of {format_amount(name, limit)}"
                said = f"the run has spent {amounts}"
                raise BudgetError(f"{said}; {GO_ON.format(name=name)}")
        expected = foreseen([likely], self.rates) if likely and self.by_estimate else {}
        for name, limit in self.limited():
            if spent[name] + expected.get(name, 0.0) > limit:
                said = (
                    f"the run has spent {format_amount(name, spent[name])}, and {shown} would take about "
                    f"{format_amount(name, expected[name])} more"
                )
                rest = (
                    f"beyond its budget of {format_amount(name, limit)}; {GO_ON.format(name=name)}, or "
                    f"costs.budget.by_estimate=false"
                )
                raise BudgetError(f"{said}, {rest}")

    def require_plan(self, likely: Iterable[Used]) -> None:
        """Raise BudgetError, before anything is spent, if the stages with a known estimate would exceed the budget."""
        expected = foreseen(likely, self.rates) if self.by_estimate else {}
        for name, limit in self.limited():
            if expected.get(name, 0.0) > limit:
                raise BudgetError(
                    f"the run would take at least {format_amount(name, expected[name])}, estimated from earlier "
                    f"stages of the same kind, and its budget is {format_amount(name, limit)}; no stage was run; "
                    f"raise costs.budget.{name}, or set costs.budget.by_estimate=false to run until it is spent"
                )

    def limited(self) -> Iterator[tuple[str, float]]:
        """Yield the limits that are set, by name."""
        yield from ((name, limit) for name, limit in self.limits.items() if limit is not None)


def machine_hours(useds: Iterable[Used]) -> float:
    """Return the hours of machines that stages took: on one machine at most those on the clock, because stages beside
    each other share it."""
    return sum(number(used, "machine_seconds") or 0.0 for used in useds) / HOUR


def foreseen(likely: Iterable[Used], rates: Rates) -> dict[str, float]:
    """Return a lower bound of the spending of stages, from similar earlier stages: their shares of the machine's hours,
    as they ran in parallel."""
    useds = list(likely)
    hours = machine_hours(useds)
    return {
        "hours": hours,
        "dollars": hours * (rates.dollars_per_hour() or 0.0),
        "kwh": sum(least(cost_of(used, rates)["kwh"]) for used in useds),
    }


def format_amount(name: str, amount: float) -> str:
    """Format an amount for display."""
    return SHOWN[name].format(amount)
