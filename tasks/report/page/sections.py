"""The parts of the page below its first screen. A part without figures in the result is None, and the page says so or
leaves it out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from tasks.report.format.baseline_comparison import baseline_lines, lines_on_further_rows
from tasks.report.format.numbers import DASH, amount, bounds, count, figure, money, percent, span
from tasks.report.format.one_class import one_class_lines
from tasks.report.format.pareto import Front, fronts, number
from tasks.report.format.speeds import format_latency, format_speedup, speed_lines
from tasks.report.page.charts import DropPoint, drop_chart, front_chart
from tasks.report.page.curves import curve_chart, spread
from tasks.report.page.headline import UNREGISTERED, seeds_sentence, verdict_of
from tasks.report.page.lineage_chart import lineage_chart
from tasks.report.page.parts import CurveParts, FrontPart, LedgerCell, LedgerPart, LedgerRow, TableRow, TrainingCurves
from tasks.report.page.svg import drawing, mark
from tasks.report.tables.ledger import counted_lines, is_known, part_of
from tasks.results.record import Lineage, Provenance
from tasks.results.roles import ROLES, role_of
from tasks.results.row import Amount, Cost, ResultRow
from tasks.results.run import Registered, RunResult
from tasks.task_types.interfaces import ErrorFigure, View
from tasks.task_types.stored import type_of_result
from tasks.task_types.views import VIEWS

CURVE_POINTS, MOST_CLASSES, LONGEST_TEXT = 60, 12, 400
Curves = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
"""The points (step, value) of trainings, by stage key and figure."""


# --- fronts and table -------------------------------------------------------------------------------------------------


def front_parts(result: RunResult) -> list[FrontPart]:
    """Return the three Pareto charts, each with a sentence."""
    return [
        FrontPart(
            title=f"Against {found.title}",
            chart=front_chart(found, result.headline) if found.points else None,
            said=front_sentence(found),
        )
        for found in fronts(result)
    ]


def front_sentence(found: Front) -> str:
    """Return the models on a front, its measure, and the models left out, in words."""
    best = [point.name for point in sorted(found.points, key=lambda point: point.cost) if point.name in found.best]
    said = f"On the front: {', '.join(best)}." if best else "Unknown for every model of this run."
    note = f" {found.note[0].upper()}{found.note[1:]}." if found.note and best else ""
    out = f" Left out, because unknown: {', '.join(found.left_out)}." if found.left_out and best else ""
    shaky = f" Left out, because unsteady: {', '.join(found.unsteady)}." if found.unsteady else ""
    return said + note + out + shaky


def table_rows(result: RunResult) -> list[TableRow]:
    """Return the rows of the table of all candidates."""
    entries, error = {entry.candidate: entry for entry in result.registered}, view_of(result).card_figure
    on = {
        name: [
            short
            for short, found in zip(("latency", "size", "energy"), fronts(result), strict=True)
            if name in found.best
        ]
        for name in names(result)
    }
    return [
        table_row(model, result.split, entries.get(model.name, UNREGISTERED), on[model.name], error)
        for model in result.models
    ]


def view_of(result: RunResult) -> View:
    """Return the words and figures of a run's task type."""
    return VIEWS[type_of_result(result.task_type, result.headline)]


def names(result: RunResult) -> list[str]:
    """Return the names of the models."""
    return [model.name for model in result.models]


def table_row(model: ResultRow, split: str, entry: Registered, on: Sequence[str], error: ErrorFigure) -> TableRow:
    """Return one row of the table, with figures as text; ``error`` is that of the error analysis."""
    score, retained, mean = model.score(split), model.share(split), model.mean(split)
    deviation = number(model.spread(split))
    over = figure(mean.value if mean else None)
    teacher = model.role == "teacher"
    return TableRow(
        name=model.name,
        role=model.role,
        mark=role_mark(model.role),
        champion=model.gate == "champion",
        of=model.of,
        making=model.making,
        engine=model.engine,
        score=figure(score.value),
        bounds=bounds(score),
        spread=f"mean {over} ± {deviation:.3f}, {seeds_sentence(model)}"
        if deviation is not None
        else seeds_sentence(model),
        retained=DASH if teacher else percent(retained.value),
        retained_bounds="" if teacher else bounds(retained, hundredth),
        parameters=figure(model.parameters, ".2f", 1e-6),
        size=figure(model.bytes, ".1f", 1e-6),
        flops=figure(model.flops, ".2f", 1e-9),
        latency=format_latency(model),
        speedup=format_speedup(model, "×"),
        memory=figure(model.memory_bytes, ".0f", 1e-6),
        error=figure((model.inspection or {}).get(error.name), ".3f"),
        cost=money(model.cost.dollars_on_demand if model.cost else None),
        gate="teacher" if teacher else model.gate or DASH,
        verdict=verdict_of(model, entry),
        reasons=list(entry.reasons),
        front=", ".join(on),
        note=model.note,
    )


def hundredth(value: Any) -> str:
    """Return a share in per cent without the unit, which is already beside it."""
    return figure(value, ".1f", 100)


def role_mark(role: str) -> Markup:
    """Return a role's mark as in the charts."""
    return drawing(16, 16, role, [mark(8, 8, role if role in ROLES else "student", role, size=5.4)], kind="inline")


def notes(result: RunResult) -> list[str]:
    """Return the comparisons of candidates with baselines and controls, the notes of stages, and the models that give
    all rows one class, or have an unsteady speed."""
    noted = sorted({f"{model.note}." for model in result.models if model.note})
    further = sorted({split for model in result.models for split in model.metrics} - {result.split})
    if further:  # lines on several sets of rows: each names its own
        compared = lines_on_further_rows(result.models, [result.split, *further])
    else:
        compared = baseline_lines(result.models, result.split)
    return [*compared, *noted, *one_class_lines(result.models), *speed_lines(result.models)]


# --- training ---------------------------------------------------------------------------------------------------------

SHOWN = {"loss": "loss", "selection_score": "score on the selection rows"}


@dataclass
class TrainingLines:
    """The curves of one training's seeds, by figure and seed; ``cached`` if all of them were."""

    cached: bool = True
    lines: dict[str, dict[str, list[Sequence[float]]]] = field(default_factory=dict)


def curve_parts(result: RunResult, curves: Curves | None, first: Sequence[str]) -> CurveParts:
    """Return charts of every training, with all of its seeds in one chart: first those of the displayed model and of
    trainings of no candidate."""
    groups: dict[tuple[str, str], TrainingLines] = {}
    for stage in result.stages:
        found = (curves or {}).get(stage.key)
        if found:
            name, seed = label_and_seed(stage.label)
            group = groups.setdefault((stage.name, name), TrainingLines())
            group.cached &= stage.cache == "hit"
            for what in SHOWN:
                if found.get(what):
                    group.lines.setdefault(what, {})[seed] = spread(found[what], CURVE_POINTS)
    candidates = {model.name for model in result.models if model.role != "teacher"}
    parts = CurveParts([], [])
    for (stage_name, name), group in groups.items():
        title, at_once = f"{stage_name} {name}".rstrip(), name in first or name not in candidates
        charts = [curve_chart(title, lines, SHOWN[what], noted=at_once) for what, lines in group.lines.items()]
        part = TrainingCurves(title, group.cached, charts, len(next(iter(group.lines.values()))))
        (parts.first if at_once else parts.others).append(part)
    return parts


def label_and_seed(label: str) -> tuple[str, str]:
    """Split a stage's label into the name of its model and its seed."""
    found = re.fullmatch(r"(.*) s(\d+)", label)
    return (found[1], found[2]) if found else (label, "")


# --- layers, lineage, ledger, reproduction ----------------------------------------------------------------------------


def dropped_section(result: RunResult) -> Markup | None:
    """Return the chart of models with dropped layers; None if there are none."""
    series: dict[str, list[DropPoint]] = {}
    for model in result.models:
        strategy, _, drop = model.name.rpartition("-")
        score = model.score(result.split)
        value = number(score.value)
        if role_of(model.role).by_layers and not model.making and drop.isdigit() and value is not None:
            series.setdefault(strategy, []).append(DropPoint(int(drop), value, number(score.low), number(score.high)))
    teacher = next(
        (number(model.score(result.split).value) for model in result.models if model.role == "teacher"),
        None,
    )
    ordered = {name: sorted(found, key=lambda point: point.drop) for name, found in series.items()}
    return drop_chart(ordered, teacher, result.headline) if ordered else None


def lineage_section(result: RunResult, model: ResultRow) -> Markup | None:
    """Return the graph of all stages and sources that a model depends on."""
    lineage = result.lineage or Lineage()
    nodes, edges = lineage.nodes, lineage.edges
    ends = {node.id for node in nodes if node.made and node.made == model.checkpoint}
    ends |= {node.id for node in nodes if node.label == model.name and node.name in ("score-model", "measure-speed")}
    kept: set[str] = set()
    while ends - kept:
        kept |= ends
        ends = {first for first, second in edges if second in kept}
    shown = [node for node in nodes if node.id in kept]
    return (
        lineage_chart(shown, [(first, second) for first, second in edges if first in kept and second in kept])
        if shown
        else None
    )


def licence_lines(result: RunResult) -> list[str]:
    """Return every source with its licence, as given in the recipe; empty for an older result, which does not contain
    them."""
    return [f"{one['what']}: {one['source']}, licence: {one['licence']}" for one in result.licences or ()]


LEDGER = {
    "seconds": "seconds",
    "gpu_seconds": "GPU seconds",
    "kwh": "kWh",
    "co2e_kg": "kg CO2e",
    "co2e_lb": "lb CO2e",
    "dollars_on_demand": "$ on demand",
    "dollars_spot": "$ spot",
}


SAME = {"co2e_kg": "co2e_lb", "co2e_lb": "co2e_kg"}
"""Figures that are one quantity in two units: both have a column, or none."""


def ledger_section(result: RunResult) -> LedgerPart | None:
    """Return the ledger's rows: the total, the savings by the cache, every model and every stage."""
    ledger = result.ledger
    if ledger is None:
        return None
    sums = [("the whole run", ledger.total), ("saved by the cache", ledger.saved)]
    costs = [(model.name, model.cost) for model in result.models if model.cost]
    stages = [(stage.display_name, stage.figures) for stage in ledger.stages]
    rows = [cost for _, cost in (*sums, *costs, *stages)]
    known = {part for part in LEDGER if part == "seconds" or any(is_known(part_of(cost, part)) for cost in rows)}
    shown = [part for part in LEDGER if known & {part, SAME.get(part)}]
    return LedgerPart(
        heads=[LEDGER[part] for part in shown],
        sums=[ledger_row(*one, shown) for one in sums],
        models=[ledger_row(*one, shown) for one in costs],
        stages=[ledger_row(*one, shown) for one in stages],
        methods=methods([cost for _, cost in (*sums, *costs)], shown),
        counted=counted_lines(ledger) + left_out(rows, shown),
    )


def left_out(rows: Sequence[Cost], shown: Sequence[str]) -> list[str]:
    """Return sentences on the figures without a column: those that are zero, and those that are unknown."""
    hidden = [part for part in LEDGER if part not in shown]
    zero = [LEDGER[part] for part in hidden if all(number(part_of(cost, part).value) == 0 for cost in rows)]
    unknown = [LEDGER[part] for part in hidden if LEDGER[part] not in zero]
    return [
        *([f"Unknown for this run: {', '.join(unknown)}."] if unknown else []),
        *([f"Zero for this run: {', '.join(zero)}."] if zero else []),
    ]


def ledger_row(name: str, cost: Cost, parts: Sequence[str]) -> LedgerRow:
    """Return one line of the ledger; every figure has its origin (measured, estimated or unknown)."""
    return LedgerRow(name, [ledger_cell(part_of(cost, part)) for part in parts])


def ledger_cell(found: Amount) -> LedgerCell:
    """Return one figure with its origin; for a sum with unknown parts, a lower bound."""
    least = number(found.at_least)
    shown = f"≥ {amount(least)}" if number(found.value) is None and least else amount(found.value)
    return LedgerCell(shown, found.how)


def methods(costs: Sequence[Cost], parts: Sequence[str]) -> list[str]:
    """Return the methods by which the figures were determined, each once."""
    found = {
        f"{LEDGER[part]}: {figure.how}, {figure.by}"
        for cost in costs
        for part, figure in cost.amounts().items()
        if part in parts and figure.by and is_known(figure)
    }
    return sorted(found)


def reproduction(result: RunResult) -> list[tuple[str, str]]:
    """Return the facts needed to reproduce the run; a required fact that was not recorded is "unknown"."""
    made, manifest = result.made or Provenance(), result.manifest
    seeds = ", ".join(f"{model.name} {'/'.join(map(str, model.seeds))}" for model in result.models if model.seeds)
    compare = f"limbeck reproduce {result.run[:8]}" if manifest is not None and result.run else ""
    found = {
        "command": made.command,
        "compare": compare,
        "run": result.run,
        "date": made.date,
        "commit": made.commit,
        "versions": joined(made.versions or (manifest.versions if manifest else {}), "{0} {1}"),
        "seeds": seeds,
        "hardware": joined(made.hardware or (manifest.hardware if manifest else {}), "{0} {1}"),
        "rows": ", ".join(f"{count(many)} {split}" for split, many in result.rows.items()),
        "time": span(made.minutes["run"] * 60) if "run" in made.minutes else "",
    }
    return [(name, str(value) if value else "unknown") for name, value in found.items() if value or name in NEEDED]


NEEDED = ("command", "commit", "versions", "hardware")


def joined(values: Any, form: str) -> str:
    """Return a mapping's names and values in one line; any other value as text."""
    if not isinstance(values, Mapping):
        return str(values or "")
    return ", ".join(
        form.format(name, value) for name, value in values.items() if value and not isinstance(value, (Mapping, list))
    )
