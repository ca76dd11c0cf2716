"""The ledger in words: estimates, unknowns and least sums look different from what was measured, and old prices are
told."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from tasks.report.page.sections import ledger_section
from tasks.report.tables.ledger import (
    HEADINGS,
    amount,
    counted_lines,
    format_figure,
    ledger_table,
    part_of,
    plan_lines,
    plan_table,
)
from tasks.results.record import Ledger, PlannedRun
from tasks.results.row import Amount
from tasks.results.run import RunResult


def figure(value: float | None, how: str = "measured", **more: float) -> dict[str, Any]:
    return {"value": value, "how": how, "by": "by hand", **more}


def shown(value: float | None, how: str = "measured", **more: float) -> str:
    return format_figure(Amount.model_validate(figure(value, how, **more)))


COST = {name: figure(2.0, "estimated") for name in HEADINGS} | {
    "seconds": figure(90.0),
    "co2e_kg": figure(None, "unknown"),
    "gpu_seconds": figure(0.0),
}
UNKNOWN = {name: figure(None, "unknown") for name in HEADINGS}
LEDGER = {
    "stages": [{"stage": "finetune-teacher", "state": "completed", "cache": "miss", "cost": COST}],
    "total": COST,
    "saved": UNKNOWN,
    "billed": {
        "hours": figure(0.5),
        "dollars_on_demand": figure(1.0, "estimated"),
        "dollars_spot": figure(None, "unknown"),
    },
    "basis": {"market": "spot", "instance": "i", "region": "r", "kg_per_kwh": None, "grid": None, "pue": 1.0},
    "warnings": ["the price of i in r is old"],
}

READ = Ledger.model_validate(LEDGER)
RESULT = RunResult(recipe="r", task="t", headline="accuracy", split="validation", models=(), ledger=READ)


def test_signs() -> None:
    assert [shown(0.5), shown(0.5, "estimated")] == ["0.5", "~0.5"]
    assert [shown(None, "unknown"), shown(None, "unknown", at_least=0.25)] == ["?", "≥0.25"]
    assert shown(0.0) == "0", "nothing was spent: that is known"
    assert shown(None, "unknown", at_least=0.0) == "?"


def test_a_few_words_leave_out_what_is_unknown() -> None:
    assert amount(READ.total) == "90.0 s, ~2 kWh, $~2" and amount(READ.saved) == "nothing"


def test_the_table_has_a_line_for_each_stage_and_its_sums() -> None:
    console = Console(width=120, record=True, file=None, quiet=True)
    console.quiet = False
    with console.capture() as caught:
        console.print(ledger_table(READ, "cost"))
    lines = [line.split() for line in caught.get().splitlines()]
    assert ["finetune-teacher", "completed", "90.0", "s", "0.0", "s", "~2", "?", "~2", "~2", "~2"] in lines
    assert any(line[:4] == ["saved", "by", "the", "cache"] and line[4:] == ["?"] * 7 for line in lines)


def test_what_was_counted_with_is_told_also_on_the_page() -> None:
    first, whole, warning = counted_lines(READ)
    assert first == "Basis: i in r; no grid (costs.region), so no CO2e." and "0.5 h: $~1 on demand, $? spot" in whole
    assert warning == "Warning: the price of i in r is old."
    part = ledger_section(RESULT)
    assert part is not None and part.counted[:3] == [first, whole, warning]


def test_the_page_has_emissions_in_both_units_and_the_unknown_is_no_zero() -> None:
    part = ledger_section(RESULT)
    assert part is not None and {"kg CO2e", "lb CO2e"} <= set(part.heads)
    at = part.heads.index("kg CO2e")
    spent, saved = ([cell.value for cell in line.cells[at : at + 2]] for line in part.sums)
    assert spent == ["—", "2"] and saved == ["—", "—"]


def test_what_no_stage_knows_or_needs_has_a_sentence_and_no_column_of_unknowns() -> None:
    """A machine without a GPU, a price or a grid had five columns of "0 measured" and "— unknown"."""
    cost = {"seconds": figure(9.0), "gpu_seconds": figure(0.0), "kwh": figure(0.5)}
    ledger = LEDGER | {"stages": [], "total": UNKNOWN | cost, "saved": UNKNOWN | cost}
    part = ledger_section(RESULT.replaced(ledger=ledger, models=()))
    assert part is not None and part.heads == ["seconds", "kWh"]
    assert part.counted[-2:] == [
        "Unknown for this run: kg CO2e, lb CO2e, $ on demand, $ spot.",
        "Zero for this run: GPU seconds.",
    ]
    assert not [said for said in part.methods if "unknown" in said or "GPU" in said]


def test_a_plan_says_of_how_many_stages_nothing_is_known() -> None:
    rows = [
        {"stage": "a", "cache": "miss", "why": "w", "cost": COST},
        {"stage": "b", "cache": "miss", "why": "w", "cost": UNKNOWN},
    ]
    least = UNKNOWN | {"seconds": figure(None, "unknown", at_least=90.0)}
    plan = PlannedRun.model_validate({"stages": rows, "total": least, "saved": UNKNOWN, "warnings": ["old"]})
    first, *_, warning = plan_lines(plan)
    assert (
        first == "2 of 2 stages would run, which takes ≥90.0 s; the cost of 1 of them is unknown."
        and warning == "Warning: old."
    )
    assert [column.header for column in plan_table(plan.stages, "plan").columns] == [
        "stage",
        "cache",
        "reason",
        "about",
        "kWh",
        "$",
    ]


def test_a_ledger_of_an_older_release_has_its_figures_beside_the_name_of_a_stage() -> None:
    """Two releases ago a stage had a name of two parts, and a figure could be a number alone."""
    old = Ledger.model_validate({"stages": [{"name": "distill", "label": "small", "seconds": 3.5, "kwh": COST["kwh"]}]})
    (stage,) = old.stages
    assert stage.display_name == "distill small" and part_of(stage.figures, "seconds").value == 3.5
    assert part_of(stage.figures, "kwh").how == "estimated" and part_of(stage.figures, "co2e_kg").value is None


def test_a_ledger_is_written_as_it_is_read() -> None:
    assert READ.as_json() == LEDGER
