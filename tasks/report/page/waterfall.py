"""The steps of a chain of candidates as charts: score, size and latency after each step, one row a model.

The bar of a size or a latency ends at the model's figure; the hatched rest is the part that the step removed, and a
darker end the part that it added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from markupsafe import Markup

from tasks.report.format.chains import Chain, ChainStep, chains, percent_change, points, whole_way
from tasks.report.format.numbers import DASH, bounds, figure, percent
from tasks.report.format.pareto import number
from tasks.report.format.speeds import UNSTEADY, format_latency, milliseconds
from tasks.report.page.charts import clipped
from tasks.report.page.hover import box_note
from tasks.report.page.svg import Plot, Scale, box, drawing, line, mark, padded, scale, text
from tasks.results.run import RunResult

CHART_WIDTH, LEFT, RIGHT, ROW, TOP = 360.0, 128.0, 352.0, 26.0, 8.0
FOR_FIGURE = 58.0
"""Room to the right of the longest bar, for its figure."""
LONGEST_NAME = 19


class StepsPart(TypedDict):
    """One chain on the page: a sentence on the whole way, charts by title, and the rows of the table as text."""

    title: str
    said: str
    charts: list[tuple[str, Markup]]
    rows: list[dict[str, str]]


def steps_section(result: RunResult, first: str) -> list[StepsPart]:
    """Return the parts of every chain; that of the model ``first`` comes before the others."""
    return [
        {
            "title": f"To {chain.last.name}",
            "said": whole_way(chain, result.split),
            "charts": [
                ("Score", score_chart(chain, result.split)),
                ("Size of the weights, MB", size_chart(chain)),
                ("Latency, ms", latency_chart(chain)),
            ],
            "rows": [step_row(step, result.split) for step in chain.steps],
        }
        for chain in chains(result.models, first)
    ]


def step_row(step: ChainStep, split: str) -> dict[str, str]:
    """Return one row of the table below the charts, as text."""
    row = step.row
    return {
        "name": row.name,
        "making": step.making,
        "score": figure(row.score(split).value),
        "bounds": bounds(row.score(split)),
        "score_change": points(step.score_change(split), row.headline) or DASH,
        "retained": DASH if row.role == "teacher" else percent(row.share(split).value),
        "size": figure(row.bytes, ".1f", 1e-6),
        "size_change": percent_change(step.size_change) or DASH,
        "latency": format_latency(row),
        "latency_change": UNSTEADY
        if step.before is not None and step.is_unsteady
        else percent_change(step.latency_change) or DASH,
    }


# --- charts -----------------------------------------------------------------------------------------------------------


def score_chart(chain: Chain, split: str) -> Markup:
    """Draw the score after each step with its interval, and the teacher's as a line."""
    scores = [step.row.score(split) for step in chain.steps]
    values = [found for one in scores for end in (one.low, one.value, one.high) if (found := number(end)) is not None]
    if not values:
        return Markup("")
    place = scale(*padded(values, 0.1), LEFT, RIGHT - FOR_FIGURE)
    first, parts = number(scores[0].value), named_rows(chain.steps)
    if first is not None:
        parts.append(line(place(first), TOP, place(first), TOP + ROW * len(scores), "ideal"))
    for at, (step, one) in enumerate(zip(chain.steps, scores, strict=True)):
        y, value, low, high = middle(at), number(one.value), number(one.low), number(one.high)
        if low is not None and high is not None:
            parts.append(line(place(low), y, place(high), y, f"whisker thick {step.row.role}"))
        if value is not None:
            parts.append(mark(place(value), y, step.row.role, ""))
        parts.append(text(RIGHT, y + 4, figure(one.value), anchor="end", kind="label"))
    parts += notes_of(chain, [f"{figure(one.value)} {bounds(one)}" for one in scores])
    return drawing_of(chain, parts, "score", [figure(one.value) for one in scores])


def size_chart(chain: Chain) -> Markup:
    """Draw the bytes of the weights after each step."""
    sizes = {step.row.name: number(step.row.bytes) for step in chain.steps}
    return bars(chain, sizes, "size", {name: figure(value, ".1f", 1e-6) for name, value in sizes.items()})


def latency_chart(chain: Chain) -> Markup:
    """Draw the latency after each step."""
    times = {step.row.name: number(step.row.latency_ms) for step in chain.steps}
    return bars(chain, times, "latency", {name: milliseconds(value) for name, value in times.items()})


def bars(chain: Chain, values: dict[str, float | None], name: str, shown: dict[str, str]) -> Markup:
    """Draw a quantity after each step as bars from zero, with the part that the step removed or added."""
    most = max((value for value in values.values() if value), default=0.0)
    if not most:
        return Markup("")
    place = scale(0, most, LEFT, RIGHT - FOR_FIGURE)
    parts = named_rows(chain.steps)
    for at, step in enumerate(chain.steps):
        y, value = middle(at), values[step.row.name]
        before = values[step.before.name] if step.before is not None else None
        parts += step_bar(place, y, value, before, step.row.role)
        end = place(max(value or 0.0, before or 0.0))
        parts.append(text(end + 5, y + 4, shown[step.row.name], kind="label"))
    parts += notes_of(chain, [changed(shown[step.row.name], values, step) for step in chain.steps])
    return drawing_of(chain, parts, name, [shown[step.row.name] for step in chain.steps])


def changed(shown: str, values: Mapping[str, float | None], step: ChainStep) -> str:
    """Return a figure with its change from the step before, where both are known."""
    value, before = values[step.row.name], values[step.before.name] if step.before is not None else None
    return f"{shown}, {percent_change(value / before - 1)}" if value is not None and before else shown


def notes_of(chain: Chain, figures: Sequence[str]) -> list[Markup]:
    """Return the areas of the rows: each shows its model's whole name and its figure."""
    plot = Plot(LEFT, RIGHT, TOP, TOP + ROW * len(chain.steps), float, float)
    rows = zip(chain.steps, figures, strict=True)
    return [
        box_note(plot, (0, middle(at) - ROW / 2, RIGHT, middle(at) + ROW / 2), [step.row.name, words])
        for at, (step, words) in enumerate(rows)
    ]


def step_bar(place: Scale, y: float, value: float | None, before: float | None, role: str) -> list[Markup]:
    """Draw one bar; nothing for an unknown figure."""
    if value is None:
        return []
    kept = value if before is None else min(value, before)
    parts = [box(place(0), y - 8, place(kept) - place(0), 16, f"kept {role}")]
    if before is not None and before != value:
        kind = "removed" if before > value else f"added {role}"
        parts.append(box(place(kept), y - 8, place(max(value, before)) - place(kept), 16, kind))
    return parts


def named_rows(steps: Sequence[ChainStep]) -> list[Markup]:
    """Write the name of each row, with a thin line below it; a longer name is cut, the table has it whole."""
    parts = []
    for at, step in enumerate(steps):
        kind = "label strong" if step.row.gate == "champion" else "label"
        parts.append(text(LEFT - 8, middle(at) + 4, clipped(step.row.name, LONGEST_NAME), anchor="end", kind=kind))
        parts.append(line(LEFT, TOP + ROW * (at + 1), RIGHT, TOP + ROW * (at + 1), "grid"))
    return parts


def middle(at: int) -> float:
    """Return the height of the middle of a row."""
    return TOP + ROW * (at + 0.5)


def drawing_of(chain: Chain, parts: Sequence[Markup], name: str, shown: Sequence[str]) -> Markup:
    """Return the drawing of a chain, described in words."""
    said = ", ".join(f"{one} {value}" for one, value in zip(chain.names, shown, strict=True))
    return drawing(CHART_WIDTH, 2 * TOP + ROW * len(chain.steps), f"{name} after each step: {said}", parts)
