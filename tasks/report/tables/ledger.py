"""The ledger as text: a table for the terminal, and short sentences. ``~`` marks an estimate, ``?`` an unknown figure,
``≥`` a lower bound: the known parts of a sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
from tasks.report.format.durations import duration
from tasks.results.record import UNKNOWN_AMOUNT, Billed, Ledger, PlannedRun, StagePlan
from tasks.results.row import Amount, Cost

SIGNS = "~ is an estimate, ? is unknown, ≥ is the sum of the known parts."
LEGEND = f"{SIGNS} kWh are those of the machine; CO2e includes the overhead of the data centre."
ABOUT = (
    "About: the cost of earlier stages of the same kind, possibly with other settings, in sequence; stages may run "
    "in parallel."
)
NO_COST = "nothing"


def ledger_table(ledger: Ledger, title: str) -> Table:
    """Return the table of a run: a line for each stage, the total of the run, and the savings by the cache."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("stage", overflow="fold")
    for name in ("cache", *HEADINGS.values()):
        table.add_column(name, justify="left" if name == "cache" else "right", no_wrap=True)
    for row in ledger.stages:
        style = "dim" if row.cache == "hit" else None
        table.add_row(row.display_name, "hit" if row.cache == "hit" else row.state, *cells(row.figures), style=style)
    table.add_section()
    table.add_row("spent by this run", "", *cells(ledger.total), style="bold")
    table.add_row("saved by the cache", "", *cells(ledger.saved))
    return table


HEADINGS = {
    "seconds": "time",
    "gpu_seconds": "GPU",
    "kwh": "kWh",
    "co2e_kg": "kg CO2e",
    "co2e_lb": "lb",
    "dollars_on_demand": "$",
    "dollars_spot": "$ spot",
}


def cells(cost: Cost) -> list[str]:
    """Return one line of the table."""
    return [format_figure(part_of(cost, name), TIMES.get(name, in_digits)) for name in HEADINGS]


def part_of(cost: Cost, name: str) -> Amount:
    """Return one figure of a cost, by its name."""
    return cost.amounts().get(name, UNKNOWN_AMOUNT)


def in_digits(value: float) -> str:
    """Return a number with three digits."""
    return f"{value:.3g}"


def format_figure(figure: Amount, form: Callable[[float], str] = in_digits) -> str:
    """Return a figure with the sign of its origin."""
    if figure.value is None:
        return f"≥{form(figure.at_least)}" if figure.at_least else "?"
    return f"{'~' if figure.how == 'estimated' else ''}{form(figure.value)}"


TIMES = {"seconds": duration, "gpu_seconds": duration}


def counted_lines(ledger: Ledger) -> list[str]:
    """Return lines on the basis of the figures (instance, region, grid), the cost of the whole machine, and warnings;
    empty for a ledger of an older release, which did not record its basis."""
    basis, billed = ledger.basis, ledger.billed
    if basis is None:
        return []
    price = f"{basis.instance} in {basis.region}" if basis.instance else "no instance (costs.instance), so no dollars"
    factor = "no grid (costs.region), so no CO2e"
    if basis.kg_per_kwh is not None:
        factor = f"{basis.kg_per_kwh:g} kg per kWh ({basis.grid}), PUE {basis.pue:g}"
    return [
        f"Basis: {price}; {factor}.",
        *([whole_machine(billed)] if basis.instance and billed is not None else []),
        *(f"Warning: {one}." for one in ledger.warnings),
    ]


def whole_machine(billed: Billed) -> str:
    """Return a sentence on the price of the machine for the wall-clock time of the run."""
    return (
        f"The whole machine, {format_figure(billed.hours)} h: ${format_figure(billed.dollars_on_demand)} on demand, "
        f"${format_figure(billed.dollars_spot)} spot."
    )


def amount(cost: Cost) -> str:
    """Return the known parts of a cost in a few words."""
    forms: dict[str, Callable[[Amount], str]] = {
        "seconds": lambda figure: format_figure(figure, duration),
        "kwh": lambda figure: f"{format_figure(figure)} kWh",
        "co2e_kg": lambda figure: f"{format_figure(figure)} kg CO2e",
        "dollars_on_demand": lambda figure: f"${format_figure(figure)}",
    }
    return (
        ", ".join(form(part_of(cost, name)) for name, form in forms.items() if is_known(part_of(cost, name))) or NO_COST
    )


def is_known(figure: Amount) -> bool:
    """Return whether a figure or a lower bound of it is known and not zero."""
    return bool(figure.value or figure.at_least)


def plan_table(rows: Sequence[StagePlan], title: str) -> Table:
    """Return the table of a plan; energy, emissions and dollars have a column only if they are known for a stage."""
    from rich.table import Table

    parts = [
        name
        for name in ("seconds", "kwh", "co2e_kg", "dollars_on_demand")
        if name == "seconds" or any(is_known(part_of(row.cost, name)) for row in rows)
    ]
    table = Table("stage", "cache", "reason", title=title, title_justify="left")
    for name in parts:
        table.add_column("about" if name == "seconds" else HEADINGS[name], justify="right")
    for row in rows:
        missing = row.cache == "miss"
        shown = [format_figure(part_of(row.cost, name), TIMES.get(name, in_digits)) for name in parts]
        table.add_row(row.stage, row.cache, row.why, *(figure if missing else "" for figure in shown))
    return table


def plan_lines(plan: PlannedRun) -> list[str]:
    """Return lines on the number of stages that would run, their cost as far as similar stages ran before, and the
    savings by the cache."""
    rows, total = plan.stages, plan.total
    missing = [row for row in rows if row.cache == "miss"]
    unknown = sum(part_of(row.cost, "seconds").value is None for row in missing)
    guess = f", which takes {amount(total)}" if is_known(part_of(total, "seconds")) else ""
    apart = f"; the cost of {unknown} of them is unknown" if unknown else ""
    how = [ABOUT, SIGNS] if guess else []
    saved = [f"The cache saves {amount(plan.saved)}."] if is_known(part_of(plan.saved, "seconds")) else []
    return [
        f"{len(missing)} of {len(rows)} stages would run{guess}{apart}.",
        *how,
        *saved,
        *(f"Warning: {one}." for one in plan.warnings),
    ]
