"""Charts of the page: each takes figures and returns one self-contained drawing that is also legible on a phone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from tasks.report.format.numbers import bounds
from tasks.report.format.pareto import Front, Point, number
from tasks.report.page.hover import box_note, spot_note
from tasks.report.page.svg import (
    Box,
    Labels,
    Plot,
    Scale,
    axes,
    box,
    boxes_of_stairs,
    drawing,
    labelled,
    line,
    log_ticks,
    mark,
    padded,
    path,
    scale,
    short,
    spread_apart,
    text,
    tick_label,
    ticks,
)
from tasks.results.error_analysis import Bin, ErrorAnalysis
from tasks.results.row import Estimate
from tasks.task_types.types import ERROR_METRICS

WIDE, HIGH = 360.0, 270.0
CROWD = 9
WIDER_THAN = 6.0  # costs, and errors, whose ratio of largest to smallest exceeds this get a logarithmic axis


class Axis(NamedTuple):
    """One direction of a chart: the map from figures to coordinates, its ticks, and a note for its title."""

    place: Scale
    ticks: list[tuple[float, str]]
    note: str


def front_chart(found: Front, headline: str) -> Markup:
    """Draw score against cost: each model's mark and interval, the front as a step line, and as many names as fit."""
    scores = [value for point in found.points for value in (point.low, point.score, point.high) if value is not None]
    across = axis_of([point.cost for point in found.points], 52, WIDE - 14, share=0.12)
    up = axis_of(scores, HIGH - 40, 30, linear=headline not in ERROR_METRICS)
    plot = Plot(52, WIDE - 14, 30, HIGH - 40, across.place, up.place)
    parts = [
        axes(plot, across.ticks, up.ticks, (f"{found.title}, {found.unit}{across.note}", f"{headline}{up.note}")),
    ]
    best = sorted((point for point in found.points if point.name in found.best), key=lambda point: point.cost)
    stairs = [(plot.x(point.cost), plot.y(point.score)) for point in best]
    parts.append(path(stairs, "front", stairs=True))
    parts += [whisker(plot, point) for point in found.points]
    parts += [
        spot(plot, point, found, headline)
        for point in sorted(found.points, key=lambda point: (point.champion, point.name in found.best))
    ]
    parts += names(plot, found, boxes_of_stairs(stairs))
    parts += [
        spot_note(plot, plot.x(point.cost), plot.y(point.score), note_of(point, found, headline))
        for point in found.points
    ]
    words = f"{headline} against {found.title}; on the front: {', '.join(point.name for point in best)}"
    return drawing(WIDE, HIGH, words, parts)


def axis_of(values: Sequence[float], start: float, end: float, *, share: float = 0.08, linear: bool = False) -> Axis:
    """Return the axis between two coordinates on which all values fit, with ``share`` of their range beside them: a
    logarithmic one if they differ widely, are all positive, and need not be linear."""
    low, high = min(values), max(values)
    if not linear and low > 0 and high / low > WIDER_THAN:
        low, high = low / 1.25, high * 1.25
        marks = [(at, tick_label(at)) for at in log_ticks(low, high)]
        return Axis(scale(low, high, start, end, log=True), marks, ", logarithmic")
    first, last = padded(values, share)
    return Axis(scale(first, last, start, end), labelled(ticks(max(0.0, first) if low >= 0 else first, last)), "")


def whisker(plot: Plot, point: Point) -> Markup:
    """Draw a score's interval."""
    if point.low is None or point.high is None:
        return Markup("")
    return line(plot.x(point.cost), plot.y(point.low), plot.x(point.cost), plot.y(point.high), f"whisker {point.role}")


def spot(plot: Plot, point: Point, found: Front, headline: str) -> Markup:
    """Draw one model's mark: with a ring for the champion, hollow if another model is better at no higher cost."""
    title = ": ".join(note_of(point, found, headline))
    ring = (
        Markup('<circle cx="{}" cy="{}" r="10" class="ring"/>').format(
            short(plot.x(point.cost)), short(plot.y(point.score))
        )
        if point.champion
        else Markup("")
    )
    return ring + mark(
        plot.x(point.cost), plot.y(point.score), point.role, title, more="" if point.name in found.best else "hollow"
    )


def note_of(point: Point, found: Front, headline: str) -> list[str]:
    """Return the lines shown under the pointer: name and role, score with its interval, and cost."""
    between = "" if point.low is None or point.high is None else f" [{point.low:.3f}, {point.high:.3f}]"
    return [
        f"{point.name} ({point.role}{', champion' if point.champion else ''})",
        f"{headline} {point.score:.3f}{between}",
        f"{point.cost:.4g} {found.unit}{'' if point.name in found.best else ', dominated'}",
    ]


def names(plot: Plot, found: Front, lines: Sequence[Box]) -> list[Markup]:
    """Write names beside marks: the champion's first, then the teacher's, then those on the front; with more than
    ``CROWD`` models, no other names."""
    told = [
        point
        for point in found.points
        if len(found.points) <= CROWD or point.champion or point.role == "teacher" or point.name in found.best
    ]
    order = sorted(
        told, key=lambda point: (not point.champion, point.role != "teacher", point.name not in found.best, point.cost)
    )
    labels = Labels(
        plot,
        [(plot.x(p.cost) - 6, plot.y(p.score) - 6, plot.x(p.cost) + 6, plot.y(p.score) + 6) for p in found.points],
        lines,
    )
    return [
        labels.place(plot.x(point.cost), plot.y(point.score), point.name, "label strong" if point.champion else "label")
        for point in order
    ]


def interval_strip(rows: Sequence[tuple[str, str, Estimate]]) -> Markup:
    """Draw scores with their intervals in rows on one axis: (name, role, score); undefined ones are left out."""
    stated = [(name, role, number(one.value), number(one.low), number(one.high)) for name, role, one in rows]
    known = [(name, role, value, ends) for name, role, value, *ends in stated if value is not None]
    if not known:
        return Markup("")
    values = [one for _, _, value, ends in known for one in (ends[0], value, ends[1]) if one is not None]
    low, high = padded(values, 0.1)
    place, height = scale(low, high, 84, 252), 20.0 * len(known) + 4
    parts = []
    for row, (name, role, value, (lower, upper)) in enumerate(known):
        y = 14 + 20.0 * row
        parts.append(text(78, y + 4, clipped(name, 12), anchor="end", kind="label"))
        parts.append(line(84, y, 252, y, "grid"))
        if lower is not None and upper is not None:
            parts.append(line(place(lower), y, place(upper), y, f"whisker thick {role}"))
        parts.append(mark(place(value), y, role, f"{name}: {value:.4f}", size=4.5))
    said = "; ".join(f"{name} {value:.3f}" for name, _, value, _ in known)
    return drawing(260, height, said, parts, kind="strip")


def clipped(words: str, most: int) -> str:
    """Return a text, cut to at most ``most`` characters."""
    return words if len(words) <= most else words[: most - 1] + "…"


# --- answers ----------------------------------------------------------------------------------------------------------


def reliability_chart(name: str, analysis: ErrorAnalysis) -> Markup:
    """Draw the reliability diagram: the accuracy of a model by its confidence; below, the number of rows in each
    bin."""
    bins = analysis.bins
    first = min((one.low for one in bins), default=0.0)
    plot = Plot(46, 286, 26, 216, scale(first, 1, 46, 286), scale(0, 1, 216, 26))
    across = labelled(ticks(first, 1, 6))
    parts = [
        axes(plot, [], labelled(ticks(0, 1, 6)), ("", "accuracy")),
        line(plot.left, plot.y(first), plot.right, plot.y(1), "ideal"),
    ]
    parts += [bar(plot, one) for one in bins]
    most = max((one.rows for one in bins), default=1)
    for one in bins:
        tall = 34 * one.rows / most
        parts.append(box(plot.x(one.low) + 1, 262 - tall, plot.x(one.high) - plot.x(one.low) - 2, tall, "count"))
    parts += [
        line(plot.left, 262, plot.right, 262, "axis"),
        text(plot.left - 6, 252, "rows", anchor="end", kind="tick"),
    ]
    parts += [text(plot.x(at), 277, words, anchor="middle", kind="tick") for at, words in across]
    parts.append(text((plot.left + plot.right) / 2, 293, "confidence", anchor="middle", kind="name"))
    parts += [
        box_note(plot, (plot.x(one.low), plot.top, plot.x(one.high), 262), note_of_bin(one)) for one in bins
    ]  # last: notes are above everything
    said = "; ".join(f"{one.rows} rows at confidence {one.certainty:.2f}: accuracy {one.accuracy:.2f}" for one in bins)
    return drawing(300, 300, f"reliability of {name}: {said}", parts, kind="square")


def bar(plot: Plot, one: Bin) -> Markup:
    """Draw one bin: a bar at the height of its accuracy, and a tick at its mean confidence."""
    left, right = plot.x(one.low) + 1, plot.x(one.high) - 1
    return box(left, plot.y(one.accuracy), right - left, plot.bottom - plot.y(one.accuracy), "right") + line(
        left, plot.y(one.certainty), right, plot.y(one.certainty), "certain"
    )


def note_of_bin(one: Bin) -> list[str]:
    """Return the lines shown under the pointer."""
    return [
        f"confidence {one.low:.2f} to {one.high:.2f}",
        f"mean {one.certainty:.3f}, accuracy {one.accuracy:.3f}",
        f"{one.rows:,} rows",
    ]


def scatter_chart(name: str, analysis: ErrorAnalysis) -> Markup:
    """Draw the predictions of a regression model against the true values."""
    points = analysis.points
    if not points:
        return Markup("")
    low, high = padded([value for point in points for value in point], 0.05)
    plot = Plot(46, 286, 26, 250, scale(low, high, 46, 286), scale(low, high, 250, 26))
    where = labelled(ticks(low, high, 6))
    parts = [
        axes(plot, where, where, ("true value", f"prediction of {clipped(name, 24)}")),
        line(plot.left, plot.y(low), plot.right, plot.y(high), "ideal"),
    ]
    parts += [
        Markup('<circle cx="{}" cy="{}" r="2.4" class="dot"/>').format(short(plot.x(true)), short(plot.y(said)))
        for true, said in points
    ]
    return drawing(300, 290, f"{name}: {len(points)} predictions against the true values", parts, kind="square")


# --- dropped layers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DropPoint:
    """The score of a model with dropped layers."""

    drop: int
    value: float
    low: float | None = None
    high: float | None = None
    chosen: bool = False
    """Whether it is the best of its number of layers on the selection rows."""


def drop_chart(
    series: Mapping[str, Sequence[DropPoint]],
    teacher: float | None,
    headline: str,
    within: Sequence[float] = (),
    across: str = "layers dropped",
) -> Markup:
    """Draw score against dropped layers, one line a strategy with intervals, the teacher's line, and a line at each of
    the distances ``within`` below it, in points; ``across`` is the name of the axis."""
    cells = [cell for line_of in series.values() for cell in line_of]
    drops = sorted({cell.drop for cell in cells})
    low, high = padded(
        [value for cell in cells for part in (cell.low, cell.value, cell.high) if (value := number(part)) is not None]
        + ([] if teacher is None else [teacher - points / 100 for points in (0, *within)])
    )
    plot = Plot(52, 334, 30, 230, scale(drops[0] - 0.4, drops[-1] + 0.4, 52, 334), scale(low, high, 230, 30))
    parts = [axes(plot, [(drop, str(drop)) for drop in drops], labelled(ticks(low, high, 6)), (across, headline))]
    if teacher is not None:
        parts += lines_of_teacher(plot, teacher, within)
    for index, (strategy, found) in enumerate(series.items()):
        parts += strategy_line(plot, strategy, found, index, len(series))
    parts += [one for index, row in enumerate(series.items()) for one in strategy_notes(plot, *row, index, len(series))]
    said = [
        f"{name}: " + ", ".join(f"{cell.drop} dropped {cell.value:.3f}" for cell in found)
        for name, found in series.items()
    ]
    return drawing(400, 280 + 18 * math.ceil(len(series) / 3), "; ".join(said), [*parts, *legend(list(series))])


def lines_of_teacher(plot: Plot, teacher: float, within: Sequence[float]) -> list[Markup]:
    """Draw the teacher's score and the lines below it, each with its name at its end."""
    values = {"teacher": teacher} | {f"teacher −{points:g}": teacher - points / 100 for points in within}
    lines = [
        line(plot.left, plot.y(value), plot.right, plot.y(value), "ideal" if name == "teacher" else "within")
        for name, value in values.items()
    ]
    ends = spread_apart(plot, [(plot.y(value) + 4, name) for name, value in values.items()])
    return lines + [text(plot.right + 4, y, name, kind="tick") for y, name in ends]


def strategy_line(plot: Plot, strategy: str, found: Sequence[DropPoint], index: int, count: int) -> list[Markup]:
    """Draw one strategy, a little beside the others so that intervals do not hide each other."""
    shift = 0.36 * ((index + 0.5) / count - 0.5)
    spots = [(plot.x(cell.drop + shift), cell) for cell in found]
    parts = [path([(x, plot.y(cell.value)) for x, cell in spots], f"curve hue{index % 8}")]
    for x, cell in spots:
        low, high = number(cell.low), number(cell.high)
        if low is not None and high is not None:
            parts.append(line(x, plot.y(low), x, plot.y(high), f"whisker hue{index % 8}"))
        title = f"{strategy}, {cell.drop} dropped: {cell.value:.4f}"
        parts.append(
            mark(
                x,
                plot.y(cell.value),
                SHAPES[index % len(SHAPES)],
                title,
                more=f"hue{index % 8}{' chosen' if cell.chosen else ''}",
            )
        )
    return parts


def strategy_notes(plot: Plot, strategy: str, found: Sequence[DropPoint], index: int, count: int) -> list[Markup]:
    """Return the areas that show the figures of one strategy's marks."""
    shift = 0.36 * ((index + 0.5) / count - 0.5)
    return [
        spot_note(
            plot,
            plot.x(cell.drop + shift),
            plot.y(cell.value),
            [f"{strategy}, {cell.drop} dropped", f"{cell.value:.4f} {bounds(cell)}"],
        )
        for cell in found
    ]


SHAPES = ("student", "dropped", "baseline", "export", "teacher")
"""Marks of strategies: only the shapes of these roles are used, not their meaning."""


def legend(strategies: Sequence[str]) -> list[Markup]:
    """Write each strategy's name with its mark below the chart, three in a row."""
    parts = []
    for index, name in enumerate(strategies):
        x, y = 30 + 124 * (index % 3), 284 + 18 * (index // 3)
        parts.append(mark(x, y, SHAPES[index % len(SHAPES)], name, size=4.2, more=f"hue{index % 8}"))
        parts.append(text(x + 10, y + 4, clipped(name, 17), kind="label"))
    return parts
