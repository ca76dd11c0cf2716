"""The Pareto front: by hand, by what it is, and what is left out of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.metrics.metrics import METRICS
from tasks.report.format.pareto import Point, front, fronts
from tasks.report.page.charts import front_chart
from tasks.report.page.page import run_page
from tasks.report.page.picture import pareto_picture
from tasks.results.roles import ROLES
from tasks.results.run import RunResult
from tasks.task_types.types import ERROR_METRICS
from tests.report.figures import row, undefined
from tests.report.figures import written as as_json


def written(**changes: Any) -> RunResult:
    """Return the results of a finished run."""
    return RunResult.model_validate(as_json(**changes))


def point(name: str, cost: float, score: float) -> Point:
    return Point(name, "student", cost, score)


def names(points: list[Point]) -> list[str]:
    return [one.name for one in points]


def test_the_front_by_hand() -> None:
    everyone = [
        point("slow and best", 9, 0.95),
        point("beaten", 8, 0.9),
        point("good", 4, 0.93),
        point("as good, dearer", 5, 0.93),
        point("fast", 1, 0.7),
    ]
    assert names(front(everyone)) == ["fast", "good", "slow and best"]
    assert names(front([point("a", 1, 0.5), point("b", 1, 0.5)])) == ["a", "b"], "twins stay both"
    assert names(front([point("a", 1, 0.9), point("b", 2, 0.1)], less_is_better=True)) == ["a", "b"]


costs = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12)


@given(costs, st.booleans())
def test_nobody_beats_the_front_and_everybody_else_is_beaten_by_it(pairs: list[tuple[int, int]], less: bool) -> None:
    everyone = [point(str(index), cost, score) for index, (cost, score) in enumerate(pairs)]
    best = front(everyone, less_is_better=less)
    sign = -1 if less else 1

    def beats(one: Point, other: Point) -> bool:
        mine, yours = (-one.cost, sign * one.score), (-other.cost, sign * other.score)
        return mine != yours and all(ours >= theirs for ours, theirs in zip(mine, yours, strict=True))

    assert not any(beats(one, other) for one in everyone for other in best)
    assert all(any(beats(one, other) for one in best) for other in everyone if other not in best)


def test_errors_are_the_metrics_of_which_less_is_better() -> None:
    assert {name for name, metric in METRICS.items() if metric.lower_is_better} == ERROR_METRICS


def test_what_is_unknown_is_left_out_by_name_and_never_drawn_at_zero() -> None:
    result = written(
        models=[row("teacher", "teacher"), row("4x312"), undefined("new"), row("odd", latency_ms=float("nan"), bytes=0)]
    )
    latency, size, energy = fronts(result)
    assert latency.left_out == size.left_out == ("new", "odd") and len(latency.points) == 2
    assert energy.points == () and energy.left_out == ("teacher", "4x312", "new", "odd")


def test_energy_is_of_inference_where_it_is_known_and_says_which() -> None:
    cost = {"kwh": {"value": 0.5, "how": "measured", "by": "NVML"}}
    trained = fronts(written(models=[row("teacher", "teacher"), row("4x312", cost=cost)]))[2]
    assert trained.unit == "Wh" and trained.points[0].cost == 500 and "training" in trained.note
    asked = cost | {"joules": {"value": 3.6, "how": "estimated", "by": "median latency"}}
    known = fronts(written(models=[row("teacher", "teacher"), row("4x312", cost=asked)]))[2]
    assert (
        known.unit == "J"
        and known.points[0].cost == 3.6
        and known.left_out == ("teacher",)
        and "estimated" in known.note
    )
    none = {"kwh": {"value": None, "how": "unknown", "by": "not recorded"}}
    assert fronts(written(models=[row("4x312", cost=none)]))[2].points == ()


def test_an_unsteady_speed_is_on_no_front_of_time_and_named() -> None:
    cost = {"joules": {"value": 3.6, "how": "estimated", "by": "latency times a constant"}}
    models = [
        row("teacher", "teacher", cost=cost),
        row("4x312", cost=cost, unsteady="after 40 calls"),
        row("plain", cost=cost),
    ]
    latency, size, energy = fronts(written(models=models))
    assert latency.unsteady == energy.unsteady == ("4x312",) and size.unsteady == () and "a constant" in energy.note
    assert (
        {point.name for point in latency.points} == {"teacher", "plain"}
        and len(size.points) == 3
        and latency.left_out == ()
    )


def test_the_picture_holds_the_charts_of_the_page_and_is_the_same_each_time() -> None:
    """One drawing of each chart: it was written once for the page and once more for files, and the two differed."""
    result = written()
    drawn = pareto_picture(result)
    charts = [str(front_chart(one, result.headline)) for one in fronts(result) if one.points]
    assert charts and all(one in drawn and one in run_page(result) for one in charts)
    assert ET.fromstring(drawn).tag.endswith("svg") and drawn == pareto_picture(result)


def test_the_picture_needs_neither_files_nor_scripts_nor_variables_of_css() -> None:
    """Programs that show SVG, but are no browsers, know no variables: all marks would be black."""
    drawn = pareto_picture(written())
    assert "var(" not in drawn and ROLES["teacher"].colour in drawn
    assert not [word for word in ("<script", "@import", "url(", "href") if word in drawn]
    hostile = pareto_picture(written(recipe="<script>&'"))
    assert "<script" not in hostile and ET.fromstring(hostile) is not None


def test_nothing_known_is_a_picture_that_says_so_and_no_error() -> None:
    title = ET.fromstring(pareto_picture(written(models=[undefined("new")]))).findtext("{*}title") or ""
    assert title.endswith(": no cost of a model is known")
