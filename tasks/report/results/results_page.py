"""The results page: results files of finished runs in, Markdown out. It contains nothing but results of actual runs.

Runs of one task, teacher and reporting split share a table, except for those that predate the purge of splits; a model
that is in several runs with the same scores is listed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.ports.markdown import escaped
from tasks.report.format.baseline_comparison import gap
from tasks.report.format.means import VARIED
from tasks.report.format.speeds import format_latency, format_speedup
from tasks.report.results.literature import ELSEWHERE, Literature, literature_table
from tasks.report.results.markdown_table import line, table
from tasks.report.results.results_file import Cell, Entry, Figure, Run, Score, Sweep, Within
from tasks.report.tables.held_back import purged_briefly
from tasks.report.tables.results import DASH, number
from tasks.results.roles import role_of

HEAD = """# Results

Made by `limbeck results deployments/results` from the files beside this page, one for each finished run; nothing here is written by hand.
`limbeck results deployments/results --add OUT.json` adds what `limbeck run RECIPE --json OUT.json` wrote."""  # noqa: E501
NOTHING = "No run has been added yet, so there is no table of ours."
READING = f"""Scores are means over seeds, ± the standard deviation over seeds, with an interval over rows and seeds, for comparing methods:
{VARIED}. *Registered* is the score of the one
seed that was chosen on the selection rows, which is the model that can be pulled; files of older releases do not have it. *Against the plain
baseline* is the paired difference to the same size trained on labels alone, with its own interval; *better* and *worse* hold for all comparisons of
one run together (Holm), and where a recipe has no such baseline nothing is claimed. Steps and minutes are those of a candidate's own stages, per seed:
general distillation, augmentation and the teacher are shared and count for the run."""  # noqa: E501
COLUMNS = (
    "registered",
    "of the teacher",
    "against the plain baseline",
    "seeds",
    "parameters",
    "ms",
    "speed-up",
    "steps",
    "minutes",
    "run",
)


def results_page(results: Sequence[Run | Sweep], literature: Literature | None = None) -> str:
    """Return the page."""
    parts = [HEAD, READING if results else NOTHING]
    for task in sorted({result.task for result in results}):
        parts += [f"## {task}", *task_parts([result for result in results if result.task == task])]
    parts += [ELSEWHERE, literature_table(literature)] if literature else []
    return "\n\n".join(parts) + "\n"


def task_parts(results: Sequence[Run | Sweep]) -> list[str]:
    """Return the tables of one task: one for each set of comparable runs, then the sweeps."""
    tables: dict[tuple[Any, ...], list[Run]] = {}
    for result in results:
        if isinstance(result, Run):
            tables.setdefault(
                (result.made.teacher, result.split, result.headline, result.rows[result.split], result.purged is None),
                [],
            ).append(result)
    parts = [run_section(runs) for _, runs in sorted(tables.items())]
    return parts + [sweep_section(result) for result in results if isinstance(result, Sweep)]


# --- runs -------------------------------------------------------------------------------------------------------------


def run_section(runs: Sequence[Run]) -> str:
    """Return one table of runs, and a line for each run on how it was produced."""
    first = runs[0]
    judged = f"{first.headline} on {first.rows[first.split]:,} {first.split} rows"
    synthetic = (
        " The data is synthetic and says nothing about natural language." if any(run.synthetic for run in runs) else ""
    )
    lines = [
        f"Teacher `{first.made.teacher}`, {judged}.{synthetic}",
        "",
        *table(["model", "what", first.headline, *COLUMNS]),
    ]
    lines += [line([*model_cells(run, entry), name]) for run, entry, name in in_order(runs)]
    return "\n".join(
        [*lines, *judged_lines(runs), "", *(how(run, f"ms at {conditions(run.measured_at)}") for run in runs)]
    )


def judged_lines(runs: Sequence[Run]) -> list[str]:
    """Return the table of scores on judging sets; empty if there are none."""
    rows = [
        (name, found, run, entry, names) for run, entry, names in in_order(runs) for name, found in entry.judged.items()
    ]
    if not rows:
        return []
    sets = list(dict.fromkeys(name for name, *_ in rows))
    said = (
        f"On judging sets, of which nothing is learned; the drop is below the score on {runs[0].split}. Where "
        f"classes are merged it has none."
    )
    lines = [
        "",
        said,
        "",
        *table(
            ["set", "rows", "model", runs[0].headline, "registered", "of the teacher", "to the teacher", "drop", "run"]
        ),
    ]
    for name, found, run, entry, names in sorted(rows, key=lambda row: sets.index(row[0])):
        teacher = entry.role == "teacher"
        ahead, retained = (Figure() if teacher else one for one in (found.difference, found.retained))
        merged = f" ({', '.join(found.merges)} as one)" if found.merges else ""
        score = found.scores.get(run.headline, Score())
        lines.append(
            line(
                [
                    f"`{name}`{merged}",
                    f"{found.rows:,}",
                    f"`{entry.name}`",
                    scored(score),
                    registered(score, entry),
                    number(retained.value, ".1%"),
                    number(ahead.value, "+.3f") + bounds(ahead, "+.3f"),
                    number(found.drop, "+.3f"),
                    names,
                ]
            )
        )
    return lines


def in_order(runs: Sequence[Run]) -> list[tuple[Run, Entry, str]]:
    """Return models with the names of their runs: the teacher first, then by decreasing size, with the plain baseline
    of each size first."""
    found: dict[str, tuple[Run, Entry, list[str]]] = {}
    for run in runs:
        for entry in run.models:
            same = f"{entry.name} {entry.plain} {entry.scores}"
            found.setdefault(same, (run, entry, []))[2].append(f"`{run.recipe}`")
    rows = [(run, entry, ", ".join(names)) for run, entry, names in found.values()]
    return sorted(rows, key=lambda row: place(row[0], row[1]))


def place(run: Run, entry: Entry) -> tuple[Any, ...]:
    """Return the sort key of a model in its table."""
    value = score_of(run, entry).value
    return (
        entry.role != "teacher",
        -entry.parameters,
        0 if entry.plain else role_of(entry.role).order,
        -(value if value is not None else -1.0),
        entry.name,
    )


def what(entry: Entry) -> str:
    """Return the kind of a model: its role, or "plain baseline"."""
    return "plain baseline" if entry.plain else entry.role


def model_cells(run: Run, entry: Entry) -> list[str]:
    """Return one row of a table, without its run."""
    retained = entry.retained.get(run.split, Figure()) if entry.role != "teacher" else Figure()
    return [
        f"`{entry.name}`",
        what(entry),
        scored(score_of(run, entry)),
        registered(score_of(run, entry), entry),
        number(retained.value, ".1%") + bounds(retained, ".1%"),
        baseline_cell(entry, run.split),
        str(len(entry.seeds) or len(score_of(run, entry).per_seed)),
        number(entry.parameters, ".2f", 1e-6, " M"),
        format_latency(entry),
        format_speedup(entry),
        number(mean(entry.steps) or None, ",.0f"),
        number(mean(entry.train_seconds) or None, ".1f", 1 / 60),
    ]


def score_of(run: Run, entry: Entry) -> Score:
    """Return the headline score on the reporting split."""
    return entry.scores.get(run.split, {}).get(run.headline, Score())


def scored(score: Score) -> str:
    """Return a score, its deviation and its interval."""
    spread = f" ±{score.deviation:.3f}" if score.deviation is not None else ""
    return number(score.value, ".3f") + spread + bounds(score, ".3f")


def registered(score: Score, entry: Entry) -> str:
    """Return the registered model's own score, with its seed if there are several."""
    if score.own is None:
        return DASH
    seed = f" (seed {entry.selected_seed})" if len(score.per_seed) > 1 and entry.selected_seed is not None else ""
    return number(score.own.value, ".3f") + bounds(score.own, ".3f") + seed


def bounds(figure: Figure, form: str) -> str:
    """Return an interval; empty if there is none."""
    return f" [{figure.low:{form}}, {figure.high:{form}}]" if figure.low is not None and figure.high is not None else ""


def baseline_cell(entry: Entry, split: str) -> str:
    """Return the verdicts on a model against its plain baselines."""
    said = [(baseline, splits[split]) for baseline, splits in entry.against.items() if split in splits]
    return "; ".join(f"{one.verdict}, `{baseline}`: {gap(one)}{lonely(one.seeds)}" for baseline, one in said) or DASH


def lonely(seeds: tuple[int, int]) -> str:
    """Return a remark if one seed leaves the noise between trainings unknown."""
    return " (one seed: without the noise of training)" if min(seeds) < 2 else ""


def mean(values: Sequence[float]) -> float:
    """Return a mean; 0 if there are no values."""
    return sum(values) / len(values) if values else 0.0


def conditions(at: Mapping[str, Any]) -> str:
    """Return the conditions of the latency measurement, in words."""
    return (
        f"batch {at['batch']}, length {at['length']}, {at['threads']} thread{'s' if at['threads'] > 1 else ''}, "
        f"{at['engine']}"
    )


# --- sweeps -----------------------------------------------------------------------------------------------------------


def sweep_section(sweep: Sweep) -> str:
    """Return the table of strategies by dropped layers, the answer, and a line on how the sweep was produced."""
    drops = sorted({cell.drop for cell in sweep.cells})
    strategies = list(dict.fromkeys(cell.strategy for cell in sweep.cells))
    found = {(cell.strategy, cell.drop): cell for cell in sweep.cells}
    seeds = f"{len(sweep.seeds)} seed{'s' if len(sweep.seeds) > 1 else ''}"
    about = f"{sweep.headline} on {sweep.rows:,} {sweep.split} rows, {seeds}; the teacher has {scored(sweep.teacher)}"
    lines = [
        f"Layers dropped from `{sweep.made.teacher}`: {about}. Bold: best of its column on the selection rows.",
        "",
    ]
    lines += table(["strategy", *(f"{drop} of {sweep.layers} dropped" for drop in drops)])
    lines += [line([strategy, *(cell_text(found.get((strategy, drop))) for drop in drops)]) for strategy in strategies]
    return "\n".join([*lines, "", *(f"- {answer(one, sweep.layers)}" for one in sweep.answer), how(sweep)])


def cell_text(cell: Cell | None) -> str:
    """Return one cell; a strategy that was not trained to the end has no figure."""
    if cell is None or cell.score is None:
        return DASH
    text = scored(cell.score)
    return f"**{text}**" if cell.chosen else text


def answer(one: Within, layers: int) -> str:
    """Return a sentence on the number of layers that can be dropped within a distance from the teacher."""
    sure = (
        f"{one.holds} of {layers} layers can go, with an interval that holds"
        if one.holds
        else "no number of layers holds with its interval"
    )
    alone = f"; by the mean alone {one.mean}" if one.mean and one.mean != one.holds else ""
    return f"Within {one.points:g} point{'s' if one.points != 1 else ''} of the teacher: {sure}{alone}."


# --- runs and sweeps --------------------------------------------------------------------------------------------------


def how(result: Run | Sweep, more: str = "") -> str:
    """Return a line on how a result was produced: date, duration, machine, versions and command."""
    made = result.made
    cached = f", and {made.minutes.cached:.0f} min in stages that were cached" if made.minutes.cached >= 0.5 else ""
    machine = f"{made.hardware.cpu}, {made.hardware.cores} cores, {made.hardware.gpu or 'no GPU'}"
    versions = ", ".join(f"{name} {made.versions[name]}" for name in ("torch", "transformers") if name in made.versions)
    commit = f"commit {made.commit[:9]}" if made.commit else ""
    facts = "; ".join(
        part
        for part in (
            f"{made.date}, {made.minutes.run:.0f} min{cached}",
            machine,
            versions,
            commit,
            more,
            divided(result),
        )
        if part
    )
    note = f" {escaped(result.note, 1000)}" if result.note else ""
    return f"- `{result.recipe}`: {facts}.{note}" + (f"\n  `{made.command}`" if made.command else "")


def divided(result: Run | Sweep) -> str:
    """Return a few words on the purge of a run's training rows."""
    return purged_briefly(result.purged.model_dump() if result.purged else None)
