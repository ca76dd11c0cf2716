"""Charts of trainings: one figure over the steps, a line for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from markupsafe import Markup

from tasks.report.format.pareto import number
from tasks.report.page.hover import band_note
from tasks.report.page.svg import Plot, axes, drawing, labelled, mark, padded, path, scale, spread_apart, text, ticks

AnyPoint = TypeVar("AnyPoint")
MOST_ENDS, MOST_NOTES = 5, 20
"""Values at the ends of the lines of a chart, and steps whose values are shown under the pointer."""


def curve_chart(title: str, lines: Mapping[str, Sequence[Sequence[float]]], name: str, *, noted: bool = True) -> Markup:
    """Draw one figure over the steps, a line for each seed; the last value of each line is written at its end.

    ``noted``: values appear under the pointer, too; for the charts of many candidates they would make a page large.
    """
    known = {
        seed: [(step, value) for step, value in points if number(value) is not None] for seed, points in lines.items()
    }
    known = {seed: points for seed, points in known.items() if points}
    if not known:
        return Markup("")
    steps, values = ([point[part] for points in known.values() for point in points] for part in (0, 1))
    last, (low, high) = max(steps), padded(values)
    plot = Plot(46, 250, 26, 116, scale(0, last or 1, 46, 250), scale(low, high, 116, 26))
    parts = [axes(plot, labelled(ticks(0, last, 4)), labelled(ticks(low, high, 4)), ("steps", name))]
    for points in known.values():
        parts.append(path([(plot.x(step), plot.y(value)) for step, value in points], "curve"))
        if len(points) <= 12:
            parts += [
                mark(plot.x(step), plot.y(value), "student", f"step {step:g}: {value:.4g}", size=2.6)
                for step, value in points
            ]
    ends = {seed: points[-1][1] for seed, points in known.items()}
    parts += [text(255, y + 4, words, kind="label") for y, words in ends_of_lines(plot, ends)]
    parts += step_notes(plot, known) if noted else []
    at_end = ", ".join(f"{end:.3g}" for end in ends.values())
    return drawing(300, 150, f"{title}: {name} over steps, at the end {at_end}", parts)


def ends_of_lines(plot: Plot, ends: Mapping[str, float]) -> list[tuple[float, str]]:
    """Return the heights and the texts at the ends of lines, apart from each other; many lines get their least and
    their greatest value."""
    named = {f"{value:.3g}" + (f" s{seed}" if len(ends) > 1 and seed else ""): value for seed, value in ends.items()}
    if len(named) > MOST_ENDS:
        named = {f"{value:.3g}": value for value in (max(ends.values()), min(ends.values()))}
    return spread_apart(plot, [(plot.y(value), words) for words, value in named.items()])


def step_notes(plot: Plot, lines: Mapping[str, Sequence[Sequence[float]]]) -> list[Markup]:
    """Return the areas that show the values of all lines at a step, for at most ``MOST_NOTES`` steps."""
    steps = spread(sorted({step for points in lines.values() for step, _ in points}), MOST_NOTES)
    width = (plot.right - plot.left) / max(1, len(steps))
    values = {seed: {point[0]: point[1] for point in points} for seed, points in lines.items()}
    return [
        band_note(
            plot,
            plot.x(step),
            width,
            [f"step {step:g}"]
            + [f"{f'seed {seed}: ' if seed else ''}{at[step]:.4g}" for seed, at in values.items() if step in at],
        )
        for step in steps
    ]


def spread(points: Sequence[AnyPoint], most: int) -> list[AnyPoint]:
    """Return at most ``most`` evenly spaced points of a line, including the first and the last."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(number * step)] for number in range(most)]
