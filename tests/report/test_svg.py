"""Scales and ticks: round figures, within bounds, and never an endless loop or a division by zero."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.report.format.chains import chains
from tasks.report.format.pareto import Front, Point
from tasks.report.page.charts import DropPoint, axis_of, drop_chart, front_chart, reliability_chart
from tasks.report.page.curves import curve_chart, spread
from tasks.report.page.lineage_chart import levels_of, without_shortcuts
from tasks.report.page.svg import (
    Labels,
    Plot,
    boxes_of_stairs,
    labelled,
    log_ticks,
    mark,
    overlap,
    padded,
    scale,
    text,
    ticks,
)
from tasks.report.page.waterfall import size_chart
from tasks.results.error_analysis import ErrorAnalysis
from tasks.results.run import RunResult
from tests.report.figures import written
from tests.report.test_page import LOOK
from tests.report.test_steps import CHAIN

figures = st.floats(-1e6, 1e6, allow_nan=False)


@given(figures, figures)
def test_ticks_are_few_ordered_and_within_bounds(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    found = ticks(low, high)
    room = 1e-6 * max(1.0, abs(low), abs(high))
    assert (
        1 <= len(found) <= 5 and found == sorted(found) and all(low - room <= value <= high + room for value in found)
    )


@given(st.floats(1e-6, 1e6), st.floats(1.5, 1e6))
def test_logarithmic_ticks_too(low: float, times: float) -> None:
    found = log_ticks(low, low * times)
    assert (
        1 <= len(found) <= 7
        and found == sorted(found)
        and all(low * 0.999 <= value <= low * times * 1.001 for value in found)
    )


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.98, 1.0, ["0.980", "0.985", "0.990", "0.995", "1.000"]), (0, 100, ["0", "25", "50", "75", "100"])],
)
def test_ticks_have_the_digits_that_they_need(low: float, high: float, expected: list[str]) -> None:
    assert [words for _, words in labelled(ticks(low, high))] == expected


@given(st.lists(figures, min_size=1, max_size=5))
def test_equal_values_get_room(values: list[float]) -> None:
    low, high = padded(values)
    assert low < min(values) and high > max(values)
    assert scale(low, high, 0, 100)(low) == 0 and scale(3, 3, 0, 100)(3) == 0


def test_texts_are_escaped() -> None:
    assert "<b>" not in text(0, 0, "<b>&\"'") and "<b>" not in mark(0, 0, "student", "<b>")


@given(st.lists(st.tuples(st.floats(0, 300), st.floats(0, 200)), max_size=20))
def test_names_hide_neither_marks_nor_each_other(spots: list[tuple[float, float]]) -> None:
    marks = [(x - 5, y - 5, x + 5, y + 5) for x, y in spots]
    labels = Labels(Plot(0, 300, 0, 200, float, float), list(marks))
    for x, y in spots:
        labels.place(x, y, "a name")
    placed = labels.taken[len(marks) :]
    assert not any(overlap(one, other) for index, one in enumerate(placed) for other in [*placed[:index], *marks])


def test_names_stand_apart_from_the_front_where_there_is_room_and_lead_to_their_marks() -> None:
    """Ten students of nearly one cost and score hid the champion's name, or its name hid the front."""
    crowd = [Point(f"student-{n}", "student", 10 + n / 10, 0.85 + n / 1000, 0.83, 0.87) for n in range(10)]
    best = Point("soft-targets-from-teacher", "student", 9.9, 0.86, 0.84, 0.88, champion=True)
    teacher = Point("teacher", "teacher", 70.0, 0.9, 0.88, 0.92)
    found = Front("latency", "ms", (*crowd, best, teacher), frozenset({best.name, "teacher"}), ())
    drawn = ET.fromstring(front_chart(found, "accuracy"))
    names = {one.text: one for one in drawn.iter("text") if "label" in one.get("class", "")}
    assert {best.name, "teacher"} <= set(names)
    stairs = boxes_of_stairs([(60.0, 100.0), (200.0, 60.0), (300.0, 40.0)])
    labels = Labels(Plot(0, 340, 0, 200, float, float), [(55, 95, 65, 105), (55, 105, 65, 125)], stairs)
    labels.place(60, 100, "a name")
    assert not any(overlap(labels.taken[-1], other) for other in [*labels.taken[:-1], *stairs])


def test_errors_that_differ_widely_stand_on_a_logarithmic_axis() -> None:
    """A dropped model of perplexity 588 laid all others on one line."""
    points = tuple(
        Point(name, "student", cost, score)
        for name, cost, score in (("half", 2.0, 11.3), ("teacher", 3.0, 16.7), ("cut", 2.5, 588.0))
    )
    found = Front("size", "MB", points, frozenset({"half"}), ())
    as_error, as_score = (ET.fromstring(front_chart(found, name)) for name in ("word_perplexity", "accuracy"))
    titles = [{text.text for text in drawn.iter("text")} for drawn in (as_error, as_score)]
    assert (
        "word_perplexity, logarithmic" in titles[0] and "accuracy" in titles[1] and "size, MB" in titles[0] & titles[1]
    )
    assert {"10", "100"} <= titles[0], "its ticks are figures, not their logarithms"
    close, wide = (axis_of([one.score for one in points], 230, 30, linear=linear) for linear in (True, False))
    assert abs(close.place(11.3) - close.place(16.7)) < 3 < 15 < abs(wide.place(11.3) - wide.place(16.7))


def test_values_are_shown_under_the_pointer_by_the_style_sheet_alone() -> None:
    one = Point("small", "student", 3.0, 0.9, 0.88, 0.92)
    drawn = ET.fromstring(front_chart(Front("latency", "ms", (one,), frozenset({"small"}), ()), "accuracy"))
    [spot] = [group for group in drawn.iter("g") if group.get("class") == "spot"]
    assert said_by(spot) == ["small (student)", "accuracy 0.900 [0.880, 0.920]", "3 ms"]
    right = max(float(text.get("x", 0)) + 6.3 * len(text.text or "") for text in spot.iter("text"))
    assert right <= 360, "the note ends inside of the drawing"


def test_bars_and_steps_show_their_figures_like_marks_do() -> None:
    """They had a tooltip of the browser alone, which comes late, and on a phone never."""
    look = ErrorAnalysis.model_validate(LOOK)
    noted = [said_by(spot) for spot in spots(reliability_chart("small", look))]
    assert noted[0] == ["confidence 0.80 to 0.90", "mean 0.850, accuracy 0.800", "20 rows"] and len(noted) == 2
    [chain, *_] = chains(RunResult.model_validate(written(models=CHAIN)).models)
    noted = [said_by(spot) for spot in spots(size_chart(chain))]
    assert noted[0] == ["teacher", "400.0"] and noted[1][1] == "260.0, −35 %" and len(noted) == len(chain.steps)


def spots(drawn: str) -> list[ET.Element]:
    return [group for group in ET.fromstring(drawn).iter("g") if group.get("class") == "spot"]


def said_by(spot: ET.Element) -> list[str]:
    return [str(text.text) for text in spot.iter("text")]


def test_every_seed_of_a_curve_has_its_last_value_apart_from_the_others() -> None:
    lines = {"0": [[1, 0.9], [9, 0.5]], "1": [[1, 0.9], [9, 0.501]], "2": [[1, 0.9], [9, 0.3]]}
    drawn = ET.fromstring(curve_chart("distill", lines, "loss"))
    ends = [one for one in drawn.iter("text") if one.get("class") == "label"]
    assert [one.text for one in ends] == ["0.501 s1", "0.5 s0", "0.3 s2"]
    heights = [float(one.get("y", 0)) for one in ends]
    assert all(lower - upper >= 11 for upper, lower in zip(heights, heights[1:], strict=False))
    many = {str(seed): [[1, 0.9], [9, seed / 10]] for seed in range(8)}
    ends = [
        one for one in ET.fromstring(curve_chart("distill", many, "loss")).iter("text") if one.get("class") == "label"
    ]
    assert [one.text for one in ends] == ["0.7", "0"], "of many seeds, the greatest and the least"


def test_a_front_of_one_model_and_a_chart_of_one_number_can_be_drawn() -> None:
    alone = Point("only", "student", 3.0, 0.9)
    ET.fromstring(front_chart(Front("latency", "ms", (alone,), frozenset({"only"}), ()), "accuracy"))
    ET.fromstring(drop_chart({"top": [DropPoint(1, 0.9)]}, None, "accuracy"))


def test_levels_and_shortcuts_by_hand() -> None:
    edges = [("data", "rows"), ("rows", "teacher"), ("teacher", "student"), ("rows", "student"), ("data", "student")]
    assert without_shortcuts(edges) == edges[:3]
    assert levels_of(["student", "teacher", "rows", "data"], edges) == {
        "data": 0,
        "rows": 1,
        "teacher": 2,
        "student": 3,
    }


def test_long_curves_keep_their_ends() -> None:
    kept = spread(list(range(1000)), 60)
    assert len(kept) == 60 and kept[0] == 0 and kept[-1] == 999 and spread([1, 2], 60) == [1, 2]
