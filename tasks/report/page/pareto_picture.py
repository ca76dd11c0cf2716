"""The page's Pareto charts as image files, for display in MLflow and Prefect."""

from __future__ import annotations

import io
from typing import Any

from tasks.report.format.pareto import Front, Point, fronts
from tasks.report.page.svg import LEADER_FROM, Labels, Plot, boxes_of_stairs, log_ticks, tick_label
from tasks.results.roles import role_of
from tasks.results.run import RunResult

SIDES = {"start": "left", "middle": "center", "end": "right"}


def pareto_pictures(result: RunResult) -> dict[str, bytes]:
    """Return ``pareto.png`` and ``pareto.svg``: all fronts with known figures, side by side; equal results give equal
    bytes."""
    import logging

    # it logs its search for fonts, once per machine
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = [one for one in fronts(result) if one.points]
    with rc_context({"svg.hashsalt": "limbeck", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.8 * max(1, len(found)), 4.2))
        figure.subplots_adjust(left=0.62 / (4.8 * max(1, len(found))), right=0.985, bottom=0.13, top=0.9, wspace=0.2)
        for number, one in enumerate(found, start=1):
            draw(figure.add_subplot(1, len(found), number), one, result.headline)
        figure.suptitle(f"{result.recipe}: {result.headline} on {result.split}; line: Pareto front, ring: champion")
        return {"pareto.png": saved(figure, "png"), "pareto.svg": saved(figure, "svg")}


def saved(figure: Any, form: str) -> bytes:
    """Return a figure as a file's bytes, without metadata that would differ each time (date, software)."""
    stream = io.BytesIO()
    figure.savefig(
        stream, format=form, dpi=110, metadata={"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    )
    return stream.getvalue()


def draw(axes: Any, found: Front, headline: str) -> None:
    """Draw one front."""
    best = sorted((point for point in found.points if point.name in found.best), key=lambda point: point.cost)
    axes.step(
        [point.cost for point in best],
        [point.score for point in best],
        where="post",
        color="#0b6b66",
        alpha=0.6,
        linewidth=2.2,
    )
    for point in found.points:
        spot(axes, point, point.name in found.best)
    if max(point.cost for point in found.points) > 6 * min(point.cost for point in found.points):
        axes.set_xscale("log")
    axes.margins(0.18, 0.12)
    if axes.get_xscale() == "log":  # matplotlib's own labels of powers run into each other
        places = log_ticks(*axes.get_xlim())
        axes.set_xticks(places, [tick_label(at) for at in places])
        axes.set_xticks([], minor=True)
    axes.set_xlabel(f"{found.title}, {found.unit}{' (' + found.note + ')' if found.note else ''}", fontsize=8)
    axes.set_ylabel(headline)
    axes.spines[["top", "right"]].set_visible(False)
    name_all(axes, found)


def name_all(axes: Any, found: Front) -> None:
    """Write names where they cover nothing: the champion's first, then the teacher's, then those on the front."""
    axes.autoscale_view()
    points = 72 / axes.figure.dpi  # positions of names are in points from the left and from the top

    def where(across: float, up: float) -> tuple[float, float]:
        x, y = axes.transData.transform((across, up))
        return x * points, -y * points

    edges = axes.get_window_extent().extents * points
    plot = Plot(edges[0], edges[2], -edges[3], -edges[1], float, float)
    spots = [where(point.cost, point.score) for point in found.points]
    best = [
        where(one.cost, one.score) for one in sorted(found.points, key=lambda one: one.cost) if one.name in found.best
    ]
    labels = Labels(plot, [(x - 6, y - 6, x + 6, y + 6) for x, y in spots], boxes_of_stairs(best))
    order = sorted(
        zip(found.points, spots, strict=True),
        key=lambda one: (not one[0].champion, one[0].role != "teacher", one[0].name not in found.best),
    )
    for point, (x, y) in order:
        beside = labels.find(x, y, point.name)
        if beside:
            place: dict[str, object] = {
                "xytext": (beside[0], -beside[1]),
                "textcoords": "offset points",
                "ha": SIDES[beside[2]],
            }
            leads: dict[str, object] = {"arrowprops": {"arrowstyle": "-", "color": "#59616b", "linewidth": 0.6}}
            place |= leads if abs(beside[1]) > LEADER_FROM else {}
            ground = {
                "facecolor": "white",
                "edgecolor": "none",
                "pad": 0.4,
                "alpha": 0.85,
            }  # the front may pass behind a name
            axes.annotate(
                point.name,
                (point.cost, point.score),
                **place,
                bbox=ground,
                fontsize=8,
                fontweight="bold" if point.champion else "normal",
            )


def spot(axes: Any, point: Point, best: bool) -> None:
    """Draw one model."""
    role = role_of(point.role)
    if point.low is not None and point.high is not None:
        axes.plot([point.cost, point.cost], [point.low, point.high], color=role.colour, linewidth=1, alpha=0.5)
    if point.champion:
        axes.plot(point.cost, point.score, marker="o", markersize=14, markerfacecolor="none", markeredgecolor="black")
    axes.plot(
        point.cost,
        point.score,
        marker=role.marker,
        color=role.colour,
        markerfacecolor=role.colour if best else "white",
        markersize=6,
    )
