"""The ledger as text: a table for the terminal, and short sentences. ``~`` marks an estimate, ``?`` an unknown figure,
``≥`` a lower bound: the known parts of a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table
from tasks.report.format.durations import duration

SIGNS = "~ is an estimate, ? is unknown, ≥ is the sum of the known parts."
LEGEND = f"{SIGNS} kWh are those of the machine; CO2e includes the overhead of the data centre."
ABOUT = (
    "About: the cost of earlier stages of the same kind, possibly with other settings, in sequence; stages may run "
    "in parallel."
)
NOTHING = "nothing"


def ledger_table(ledger: Mapping[str, Any], title: str) -> Table:
    """Return the table of a run: a line for each stage, the total of the run, and the savings by the cache."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("stage", overflow="fold")
    for name in ("cache", *HEADINGS.values()):
        table.add_column(name, justify="left" if name == "cache" else "right", no_wrap=True)
    for row in ledger["stages"]:
        style = "dim" if row["cache"] == "hit" else None
        table.add_row(row["stage"], "hit" if row["cache"] == "hit" else row["state"], *cells(row["cost"]), style=style)
    table.add_section()
    table.add_row("spent by this run", "", *cells(ledger["total"]), style="bold")
    table.add_row("saved by the cache", "", *cells(ledger["saved"]))
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


def cells(cost: Mapping[str, Any]) -> list[str]:
    """Return one line of the table."""
    return [format_figure(cost[name], TIMES.get(name)) for name in HEADINGS]


def format_figure(figure: Mapping[str, Any], form: Any = None) -> str:
    """Return a figure with the sign of its origin."""
    form = form or "{:.3g}".format
    if figure["value"] is None:
        return f"≥{form(figure['at_least'])}" if figure.get("at_least") else "?"
    return f"{'~' if figure['how'] == 'estimated' else ''}{form(figure['value'])}"


TIMES = {"seconds": duration, "gpu_seconds": duration}


def counted_lines(ledger: Mapping[str, Any]) -> list[str]:
    """Return lines on the basis of the figures (instance, region, grid), the cost of the whole machine, and
    warnings."""
    basis, billed = ledger["basis"], ledger["billed"]
    price = (
        f"{basis['instance']} in {basis['region']}"
        if basis["instance"]
        else "no instance (costs.instance), so no dollars"
    )
    known = basis["kg_per_kwh"] is not None
    factor = (
        f"{basis['kg_per_kwh']:g} kg per kWh ({basis['grid']}), PUE {basis['pue']:g}"
        if known
        else "no grid (costs.region), so no CO2e"
    )
    whole = (
        f"The whole machine, {billed['hours']['value']:.3g} h: ${format_figure(billed['dollars_on_demand'])} on "
        f"demand, ${format_figure(billed['dollars_spot'])} spot."
    )
    return [
        f"Basis: {price}; {factor}.",
        *([whole] if basis["instance"] else []),
        *(f"Warning: {one}." for one in ledger["warnings"]),
    ]


def amount(cost: Mapping[str, Any]) -> str:
    """Return the known parts of a cost in a few words."""
    dollars = format_figure(cost["dollars_on_demand"])
    said = [
        format_figure(cost["seconds"], duration),
        f"{format_figure(cost['kwh'])} kWh",
        f"{format_figure(cost['co2e_kg'])} kg CO2e",
        f"${dollars}",
    ]
    known = [
        words
        for words, name in zip(said, ("seconds", "kwh", "co2e_kg", "dollars_on_demand"), strict=True)
        if is_known(cost[name])
    ]
    return ", ".join(known) or NOTHING


def is_known(figure: Mapping[str, Any]) -> bool:
    """Return whether a figure or a lower bound of it is known and not zero."""
    return bool(figure["value"] or figure.get("at_least"))


def plan_table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return the table of a plan; energy, emissions and dollars have a column only if they are known for a stage."""
    from rich.table import Table

    parts = [
        name
        for name in ("seconds", "kwh", "co2e_kg", "dollars_on_demand")
        if name == "seconds" or any(is_known(row["cost"][name]) for row in rows)
    ]
    table = Table("stage", "cache", "reason", title=title, title_justify="left")
    for name in parts:
        table.add_column("about" if name == "seconds" else HEADINGS[name], justify="right")
    for row in rows:
        missing = row["cache"] == "miss"
        table.add_row(
            row["stage"],
            row["cache"],
            row["why"],
            *(format_figure(row["cost"][name], TIMES.get(name)) if missing else "" for name in parts),
        )
    return table


def plan_lines(plan: Mapping[str, Any]) -> list[str]:
    """Return lines on the number of stages that would run, their cost as far as similar stages ran before, and the
    savings by the cache."""
    rows, total = plan["stages"], plan["total"]
    missing = [row for row in rows if row["cache"] == "miss"]
    unknown = sum(row["cost"]["seconds"]["value"] is None for row in missing)
    guess = f", which takes {amount(total)}" if is_known(total["seconds"]) else ""
    apart = f"; the cost of {unknown} of them is unknown" if unknown else ""
    how = [ABOUT, SIGNS] if guess else []
    saved = [f"The cache saves {amount(plan['saved'])}."] if is_known(plan["saved"]["seconds"]) else []
    return [
        f"{len(missing)} of {len(rows)} stages would run{guess}{apart}.",
        *how,
        *saved,
        *(f"Warning: {one}." for one in plan["warnings"]),
    ]
