"""The budget: refused before it is spent, never by what is unknown, and each sentence says how to go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import BudgetError
from tasks.ports.store.open import open_store
from tasks.stage.budget import RunBudget, machine_hours
from tasks.stage.session import Session, StageRecord
from tests.scoring.costs.test_ledger import HOUR, RATES

NONE: dict[str, float | None] = {"dollars": None, "kwh": None, "hours": None}


def budget(*, hours_ago: float = 0.0, by_estimate: bool = True, **limits: float) -> RunBudget:
    return RunBudget({**NONE, **limits}, RATES, by_estimate, time.monotonic() - 3600 * hours_ago)


def test_no_budget_refuses_nothing() -> None:
    budget(hours_ago=1e6).require_rest([HOUR] * 1000, "stage", HOUR)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"hours": 2.9}, "has spent 3 hours of its budget of 2.9 hours"),
        ({"dollars": 2.9}, r"has spent \$3 of its budget of \$2.9"),
        ({"kwh": 0.01}, "has spent 0.011 kWh of its budget of 0.01 kWh"),
    ],
)
def test_what_is_spent_is_refused_with_the_way_on(limits: dict[str, float], said: str) -> None:
    with pytest.raises(
        BudgetError,
        match=said + f"; finished stages are cached; to continue: limbeck resume --set "
        f"costs.budget.{next(iter(limits))}=",
    ):
        budget(hours_ago=3, **limits).require_rest([HOUR, HOUR])


def test_hours_of_several_machines_cost_more_than_those_on_the_clock() -> None:
    """Eight GPU machines cost what one does, until the run ended."""
    rest = budget(hours_ago=1, dollars=5, hours=2)
    rest.require_rest([HOUR] * 8)  # each had half of a machine
    with pytest.raises(BudgetError, match=r"has spent \$6 of its budget of \$5"):
        rest.require_rest([HOUR] * 12)


def test_a_stage_on_another_machine_counts_from_its_beginning(tmp_path: Path) -> None:
    session = Session(open_store(str(tmp_path), tmp_path), 1, 1)
    begun = time.monotonic() - 1800
    facts: Any = {"name": "answer-rows", "label": "", "key": "0" * 64, "kind": "answers", "explanation": {}}
    for number, (state, sent) in enumerate((("waiting", None), ("running", begun), ("running", begun))):
        session.records.append(StageRecord(number=number, **facts, state=state, sent=sent))
    assert machine_hours(session.taken()) == pytest.approx(1.0, rel=1e-3)


def test_a_stage_that_would_go_beyond_is_refused_by_what_the_like_of_it_took() -> None:
    rest = budget(kwh=0.015)
    rest.require_rest([HOUR], "next", HOUR)
    with pytest.raises(
        BudgetError,
        match="has spent 0.011 kWh, and next would take about 0.0055 kWh more, beyond its budget of 0.015 kWh",
    ):
        rest.require_rest([HOUR, HOUR], "next", HOUR)
    budget(kwh=0.015, by_estimate=False).require_rest([HOUR, HOUR], "next", HOUR)


def test_what_is_unknown_neither_counts_nor_stops() -> None:
    budget(kwh=0.001).require_rest([{"seconds": 1e9}], "next", {"seconds": 1e9})


def test_a_plan_beyond_the_budget_is_refused_before_anything_is_spent() -> None:
    likely: list[dict[str, Any]] = [HOUR, {}, HOUR]
    budget(dollars=1.1).require_plan(likely)
    with pytest.raises(
        BudgetError, match=r"at least \$1, .* budget is \$0.9; no stage was run; raise costs.budget.dollars"
    ):
        budget(dollars=0.9).require_plan(likely)
    budget(dollars=0.9, by_estimate=False).require_plan(likely)
