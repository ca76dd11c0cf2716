"""The plot of a sweep as SVG: score against dropped layers by strategy, with intervals, the teacher's line, and the
lines 1, 2 and 3 points below."""

from __future__ import annotations

import io
from typing import Any

from tasks.results.sweep import SweepResult

SIZE = (8.0, 4.8)
MARKERS = "osD^v<>PX*"
SPREAD = 0.3  # width over which the strategies of one number of layers are spread, so that intervals do not overlap


def sweep_svg(result: SweepResult) -> str:
    """Return the plot; equal results give equal text."""
    import logging

    # it logs its search for fonts, once per machine
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "limbeck", "svg.fonttype": "none"}):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        draw_teacher(axes, result)
        for number, strategy in enumerate(result["strategies"]):
            draw_strategy(axes, result, strategy, number)
        axes.set_xticks(result["drop"])
        axes.set_xlabel(f"layers dropped of {result['layers']}")
        axes.set_ylabel(f"{result['headline']} x 100 on {result['split']}")
        axes.set_title(
            f"{result['recipe']}: {len(result['seeds'])} seeds, {100 * result['confidence']:g} % intervals; ring: "
            f"chosen on the selection rows",
            fontsize=9,
        )
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def draw_teacher(axes: Any, result: SweepResult) -> None:
    """Draw the teacher's score and the lines at the distances of the answer."""
    score = 100 * result["teacher"]["score"]["value"]
    axes.axhline(score, color="black", linewidth=1.2, label="teacher")
    for answer in result["answer"]:
        points = answer["points"]
        axes.axhline(
            score - points, color="grey", linewidth=0.7, linestyle=(0, (2, 1 + points)), label=f"teacher − {points:g}"
        )


def draw_strategy(axes: Any, result: SweepResult, strategy: str, number: int) -> None:
    """Draw one strategy's means with their intervals; cells that dropped out or are undefined are left out."""
    cells = [cell for cell in result["cells"] if cell["strategy"] == strategy and cell["state"] == "scored"]
    if not cells:
        return
    shift = SPREAD * ((number + 0.5) / len(result["strategies"]) - 0.5)
    places = [cell["drop"] + shift for cell in cells]
    scores = [cell["score"] for cell in cells]
    means, lows, highs = (
        [100 * score["value"] for score in scores],
        [100 * score["low"] for score in scores],
        [100 * score["high"] for score in scores],
    )
    reach = [
        [mean - low for mean, low in zip(means, lows, strict=True)],
        [high - mean for mean, high in zip(means, highs, strict=True)],
    ]
    colour, marker = f"C{number % 10}", MARKERS[number % len(MARKERS)]
    axes.errorbar(
        places,
        means,
        yerr=reach,
        color=colour,
        marker=marker,
        markersize=4,
        linewidth=1,
        elinewidth=0.8,
        capsize=2,
        label=strategy,
    )
    best = [(place, mean) for place, mean, cell in zip(places, means, cells, strict=True) if cell["chosen"]]
    if best:
        axes.plot(
            *zip(*best, strict=True),
            linestyle="none",
            marker="o",
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=colour,
        )
