"""What a run may spend, and what it has spent: asked before every stage that would compute, and now and then while one
does.

Dollars and hours are the run's own, from its start on: a machine that waits costs as much as one that works. kWh are
those of its stages, each at least what is known of it. Cached stages cost nothing, and are not asked about.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.errors import BudgetError
from tasks.scoring.costs.figures import least
from tasks.scoring.costs.ledger import cost_of, number
from tasks.scoring.costs.rates import Rates

HOUR = 3600.0
SHOWN = {"dollars": "${:.4g}", "kwh": "{:.4g} kWh", "hours": "{:.4g} hours"}
GO_ON = "what is finished is kept; to go on: limbeck resume --set costs.budget.{name}=MORE"


@dataclass
class Purse:
    """The budget of one run. ``limits`` has dollars, kwh and hours, each a number or None."""

    limits: Mapping[str, float | None]
    rates: Rates = field(default_factory=Rates)
    by_estimate: bool = True
    opened: float = field(default_factory=time.monotonic)

    def spent(self, useds: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Return what the run has spent; ``useds`` are what its stages took, those under way included."""
        hours = (time.monotonic() - self.opened) / HOUR
        kwh = (
            sum(least(cost_of(used, self.rates)["kwh"]) for used in useds)
            if self.limits.get("kwh") is not None
            else 0.0
        )
        return {"hours": hours, "dollars": hours * (self.rates.dollars_per_hour() or 0.0), "kwh": kwh}

    def require_rest(
        self, useds: Iterable[Mapping[str, Any]], shown: str = "", likely: Mapping[str, Any] | None = None
    ) -> None:
        """Refuse to go on where the budget is spent, or where the stage ``shown``, if it takes what the like of it
        took, would go beyond it."""
        spent = self.spent(useds)
        for name, limit in self.limited():
            if spent[name] > limit:
                said = f"the run has spent {told(name, spent[name])} of its budget of {told(name, limit)}"
                raise BudgetError(f"{said}; {GO_ON.format(name=name)}")
        expected = foreseen([likely], self.rates) if likely and self.by_estimate else {}
        for name, limit in self.limited():
            if spent[name] + expected.get(name, 0.0) > limit:
                said = (
                    f"the run has spent {told(name, spent[name])}, and {shown} would take about "
                    f"{told(name, expected[name])} more"
                )
                rest = (
                    f"beyond its budget of {told(name, limit)}; {GO_ON.format(name=name)}, or "
                    f"costs.budget.by_estimate=false"
                )
                raise BudgetError(f"{said}, {rest}")

    def require_plan(self, likely: Iterable[Mapping[str, Any]]) -> None:
        """Refuse a run of which the stages whose like is known would spend more than there is, before anything is
        spent."""
        expected = foreseen(likely, self.rates) if self.by_estimate else {}
        for name, limit in self.limited():
            if expected.get(name, 0.0) > limit:
                raise BudgetError(
                    f"the run would take at least {told(name, expected[name])}, as the like of its stages took, and "
                    f"its budget is {told(name, limit)}; nothing "
                    f"was spent; raise costs.budget.{name}, or set costs.budget.by_estimate=false to run until it "
                    f"is spent"
                )

    def limited(self) -> Iterator[tuple[str, float]]:
        """Yield what has a limit."""
        yield from ((name, limit) for name, limit in self.limits.items() if limit is not None)


def foreseen(likely: Iterable[Mapping[str, Any]], rates: Rates) -> dict[str, float]:
    """Return at least what stages will spend, by what the like of them took: hours of the machine, side by side as they
    were."""
    useds = list(likely)
    hours = sum(number(used, "machine_seconds") or 0.0 for used in useds) / HOUR
    return {
        "hours": hours,
        "dollars": hours * (rates.dollars_per_hour() or 0.0),
        "kwh": sum(least(cost_of(used, rates)["kwh"]) for used in useds),
    }


def told(name: str, amount: float) -> str:
    """Return an amount for people."""
    return SHOWN[name].format(amount)
