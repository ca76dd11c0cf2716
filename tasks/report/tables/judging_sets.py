"""Scores on judging sets, in words and tables: in the terminal, on the page of a run, in its text in MLflow and
Prefect, and on the cards of its models.

The drop is the difference between a model's headline score on the task's own rows and on the set. The teacher has a
drop as well, so compare a candidate's drop with the teacher's. Sets with merged classes have none: their task differs.
Nor have sets of another type than the task: they have a metric of their own, with the score of guessing beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.ports.markdown import code_span
from tasks.report.format.baseline_comparison import Bounded, baseline_lines, lines_on_further_rows, unlike
from tasks.report.format.markdown_table import line
from tasks.report.format.numbers import plural, share_label
from tasks.report.tables.results import DASH, number, over_seeds, with_interval
from tasks.results.facts import SetFacts
from tasks.results.row import UNDEFINED, ResultRow, SetScores
from tasks.results.run import RunResult

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("set", "model", "score", "of the teacher", "to the teacher", "drop")
GUESSING = "guessing"
"""Where the name of a model stands, of a set that no model has learned."""
MOST_PRINTED = 12
"""Comparisons on judging sets that the terminal prints; more of them would push the table out of sight."""


def judged_on(models: Sequence[ResultRow]) -> list[str]:
    """Return the names of a run's judging sets."""
    return list(dict.fromkeys(name for model in models for name in sets_of(model)))


def sets_of(model: ResultRow) -> dict[str, SetScores]:
    """Return the scores of a model by judging set."""
    return model.judged or {}


def judging_rows(models: Sequence[ResultRow]) -> list[tuple[str, ...]]:
    """Return a row of text for every set and model, the teacher first within each set; only the first row names the
    set."""
    rows = []
    for name in judged_on(models):
        scored = [model for model in models if name in sets_of(model)]
        cells = cells_of_set(scored, name)
        rows += [(titled(scored[0], name), *cells[0]), *(("", *others) for others in cells[1:])]
    return rows


def cells_of_set(scored: Sequence[ResultRow], name: str) -> list[tuple[str, ...]]:
    """Return the figures of all models on one set, as text; those of guessing are the last ones, where it is known."""
    chance = sets_of(scored[0])[name].chance
    guessing = [] if chance is None else [(GUESSING, number(chance, ".3f"), DASH, DASH, DASH)]
    return [*(judging_cells(model, name) for model in scored), *guessing]


def headline_on(model: ResultRow, name: str) -> str:
    """Return the metric that leads on a set."""
    return sets_of(model)[name].headline or model.headline


def titled(model: ResultRow, name: str) -> str:
    """Return the name of a set, with its metric where that is not the task's."""
    own = headline_on(model, name)
    return name if own == model.headline else f"{name} ({own})"


def judging_cells(model: ResultRow, name: str) -> tuple[str, ...]:
    """Return one model's figures on one set, as text."""
    found, teacher = sets_of(model)[name], model.role == "teacher"
    ahead, retained, led_by = found.difference or UNDEFINED, found.retained or UNDEFINED, headline_on(model, name)
    return (
        model.name,
        with_interval(found.metrics.get(led_by, UNDEFINED)) + over_seeds(model.on_sets(), name, led_by),
        DASH if teacher else number(retained.value, ".1%"),
        DASH if teacher else gap(ahead),
        number(found.drop, "+.3f"),
    )


def gap(found: Bounded) -> str:
    """Return a difference with its interval."""
    low, high = found.low, found.high
    return number(found.value, "+.3f") + (f" [{low:+.3f}, {high:+.3f}]" if low is not None and high is not None else "")


def judging_table(models: Sequence[ResultRow], split: str) -> Table | None:
    """Return the table for rich; None if there are no sets."""
    from rich import box
    from rich.table import Table

    if not judged_on(models):
        return None
    table = Table(
        title=heading(models, split), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for place, name in enumerate(HEADS):
        table.add_column(
            name,
            justify="left" if place < 2 else "right",
            overflow="fold" if place < 2 else "ellipsis",
            no_wrap=place >= 2,
        )
    for row in judging_rows(models):
        table.add_row(*row)
    return table


def metrics_in_words(models: Sequence[ResultRow]) -> str:
    """Return the metric of the sets in words."""
    own = any(headline_on(model, name) != model.headline for model in models for name in sets_of(model))
    return f"{models[0].headline}, or the metric beside a set," if own else models[0].headline


def heading(models: Sequence[ResultRow], split: str) -> str:
    """Return the title of the table."""
    return f"{metrics_in_words(models)} on judging sets, which are not used in training; drop: difference to {split}"


def judging_markdown(models: Sequence[ResultRow], split: str) -> list[str]:
    """Return the table as lines of Markdown, with a heading; empty if there are no sets."""
    rows = judging_rows(models)
    if not rows:
        return []
    return [
        "",
        f"{heading(models, split).capitalize()}.",
        "",
        line(HEADS),
        "|---|---|" + "---:|" * (len(HEADS) - 2),
        *map(line, rows),
        *(f"{'' if place else chr(10)}- {said}" for place, said in enumerate(comparisons_on_sets(models))),
    ]


def comparisons_on_sets(models: Sequence[ResultRow]) -> list[str]:
    """Return a line for every comparison of two models on a judging set; empty if nothing was compared."""
    return lines_on_further_rows([model.on_sets() for model in models], judged_on(models))


def printed_comparisons(models: Sequence[ResultRow]) -> list[str]:
    """Return the same for the terminal: where they would fill it, only their number, and where to read them."""
    lines = comparisons_on_sets(models)
    if len(lines) - 1 <= MOST_PRINTED:
        return lines
    return [f"{len(lines) - 1} comparisons on judging sets are on the run's page: limbeck report --open"]


@dataclass(frozen=True)
class SetPart:
    """One judging set on the page: a sentence on it, the cells of each model, and lines that compare two of them."""

    name: str
    about: str
    rows: list[tuple[str, ...]]
    compared: list[str]


@dataclass(frozen=True)
class JudgingPart:
    """The part of a run's page on its judging sets."""

    sets: list[SetPart]
    heads: Sequence[str]
    headline: str


def judging_section(result: RunResult) -> JudgingPart | None:
    """Return the part of a run's page on its judging sets; None if there are none."""
    models, known = result.models, result.held_back.judging if result.held_back else {}
    sets = [
        SetPart(
            name=titled(scored[0], name),
            about=about_set(name, known.get(name)),
            rows=cells_of_set(scored, name),
            compared=baseline_lines([model.on_sets() for model in scored], name),
        )
        for name in judged_on(models)
        if (scored := [model for model in models if name in sets_of(model)])
    ]
    return JudgingPart(sets, HEADS[1:], metrics_in_words(models)) if sets else None


POOLED = "both splits"
"""Stands for the name of a set where the rows of both held-out splits are scored together."""


@dataclass(frozen=True)
class PooledPart:
    """The part of a run's page on the rows of both held-out splits together: a description of them, and the cells of
    each model."""

    about: str
    rows: list[tuple[str, ...]]
    heads: Sequence[str]
    headline: str


def pooled_section(result: RunResult) -> PooledPart | None:
    """Return the part of a run's page on both held-out splits together; None if the run has one alone."""
    rows = [
        judging_cells(model.replaced(judged={POOLED: model.pooled}), POOLED)[:-1]
        for model in result.models
        if model.pooled is not None
    ]
    if not rows:
        return None
    parts = [f"{result.rows[split]:,} {split}" for split in ("holdout", "validation") if split in result.rows]
    return PooledPart(f"{' and '.join(parts)} rows", rows, HEADS[1:-1], result.models[0].headline)


def about_set(name: str, known: SetFacts | None) -> str:
    """Return a sentence on a set: its number of rows, the rows left out, and merged classes; empty if it is unknown."""
    if known is None:
        return ""
    parts = [f"{name} has {known.rows:,} rows"]
    parts += [f"{known.left_out:,} that overlap with training rows were excluded"] if known.left_out else []
    parts += [f"{known.unlabelled:,} without a label were excluded"] if known.unlabelled else []
    parts += [f"{one} count as one class" for one in known.merges]
    return "; ".join(parts) + "."


def set_lines(sets: Mapping[str, SetFacts]) -> list[str]:
    """Return a line for every set: its description, and the number of its rows that overlap with training data."""
    said = []
    for name, known in sets.items():
        learned = known.learned
        found = [
            f"{count:,} with the {where}" + (f" ({learned[where]:,} of those)" if count and where in learned else "")
            for where, count in known.leaked.items()
        ]
        said.append(
            f"Judging set: {about_set(name, known)}" + (f" Of these overlap: {', '.join(found)}." if found else "")
        )
    return said


def card_rows(model: ResultRow) -> list[str]:
    """Return the rows of a model card's table of figures."""
    rows = []
    for name, found in sets_of(model).items():
        led_by = headline_on(model, name)
        merged = f", {' and '.join(found.merges)} as one" if found.merges else ""
        where = f"judging set {name}, {found.rows:,} rows{merged}"
        rows += [
            f"| {metric}, {where} | {with_interval(score)} | measured |" for metric, score in found.metrics.items()
        ]
        share = number((found.retained or UNDEFINED).value, ".2%")
        rows.append(f"| {share_label(led_by, where)} | {share} | measured |")
        rows.append(
            f"| {led_by}, difference to the teacher, {where} | {gap(found.difference or UNDEFINED)} | measured |"
        )
        if found.chance is not None:
            rows.append(
                f"| {led_by} of guessing, {where}, which no model has learned | {found.chance:.3f} | computed |"
            )
        if found.drop is not None:
            rows.append(f"| {model.headline}, drop from the task's own rows, {where} | {found.drop:+.4f} | computed |")
        rows += mean_rows(model.on_sets(), name, where)
        rows += [
            f"| {led_by}, difference to {code_span(other)}{unlike(one.differs)} over seeds, {where} | {gap(one)}, "
            f"{one.verdict} | measured |"
            for other, one in found.against.items()
        ]
    return rows


def mean_rows(model: ResultRow, split: str, where: str) -> list[str]:
    """Return the rows of a card with the means over seeds on one set, which stands for a split in this row."""
    means = {metric: model.mean(split, metric) for metric in model.metrics[split]}
    return [
        f"| {metric}, {where}, mean of {plural(len(model.per_seed[split][metric]), 'seed')} ± "
        f"{model.spread(split, metric):.4f}, to compare methods | {with_interval(mean)} | measured |"
        for metric, mean in means.items()
        if mean
    ]
