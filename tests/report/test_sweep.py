"""What a sweep says: the table, the sentences, the plot."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from typing import Any

from rich.console import Console

from tasks.report.page.page import sweep_chart
from tasks.report.page.picture import sweep_picture
from tasks.report.tables.results import DASH
from tasks.report.tables.sweep import HALVED, answer_lines, notes, similarity_table, sweep_markdown, sweep_table, title
from tasks.scoring.quality.layers_needed import chosen_by_drop, layers_needed

STRATEGIES = ["top", "bottom", "alternate-odd", "alternate-even", "symmetric", "contribution", "greedy"]


def scored(
    strategy: str, drop: int, difference: float, reach: float = 0.4, *, selection: float = 0.9, seeds: int = 3
) -> dict[str, Any]:
    """Return a cell that was scored; differences are in points."""
    value, low, high = (0.92 + (difference + step) / 100 for step in (0, -reach, reach))
    return {
        "strategy": strategy,
        "drop": drop,
        "layers": 6 - drop,
        "state": "scored",
        "seeds": list(range(seeds)),
        "score": {"value": value, "low": low, "high": high},
        "deviation": 0.002 if seeds > 1 else None,
        "selection_score": selection,
        "difference": {"value": value - 0.92, "low": low - 0.92, "high": high - 0.92},
    }


def result(cells: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Return a sweep's result with its answer; what is not among the cells is undefined."""
    drops = sorted({cell["drop"] for cell in cells})
    chosen = [(cell["drop"], cell["strategy"]) for cell in chosen_by_drop(cells).values()]
    there = {(cell["strategy"], cell["drop"]) for cell in cells}
    gone = [
        {"strategy": s, "drop": k, "layers": 6 - k, "state": "undefined"}
        for s in STRATEGIES
        for k in drops
        if (s, k) not in there
    ]
    return {
        "recipe": "depth",
        "headline": "accuracy",
        "split": "holdout",
        "rows": 5000,
        "confidence": 0.95,
        "layers": 6,
        "strategies": STRATEGIES,
        "drop": drops,
        "seeds": [0, 1, 2],
        "teacher": {"score": {"value": 0.92, "low": 0.91, "high": 0.93}},
        "cells": [{**cell, "chosen": (cell["drop"], cell["strategy"]) in chosen} for cell in [*cells, *gone]],
        "answer": layers_needed(cells),
        "similarity": [{"layer": "embeddings", "cka": 1.0, "cosine": 0.999}, {"layer": 0, "cka": 0.5, "cosine": 0.25}],
    } | changes


OUT = {"strategy": "bottom", "drop": 2, "layers": 4, "state": "dropped out", "rung_score": 0.777}
WHOLE = result(
    [
        scored("top", 1, -0.2),
        scored("bottom", 1, -0.5, selection=0.8),
        scored("symmetric", 2, -0.9),
        OUT,
        scored("greedy", 3, -5.0),
    ]
)


def drawn(table: Any, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_the_table_of_all_strategies_fits_in_120_columns_and_cuts_nothing() -> None:
    text = drawn(
        sweep_table(result([scored(strategy, drop, -10.0 - drop) for strategy in STRATEGIES for drop in range(1, 6)]))
    )
    assert max(len(line) for line in text.splitlines()) <= 120
    assert "…" not in text and text.count("±") == 35


def test_the_chosen_is_marked_and_what_dropped_out_shows_no_figure() -> None:
    text = drawn(sweep_table(WHOLE))
    assert "91.8 ± 0.2*" in text and "91.5 ± 0.2 " in text and "out" in text and DASH in text
    assert "77.7" not in text + sweep_markdown(WHOLE) and HALVED in notes(WHOLE)
    assert HALVED not in notes(result([scored("top", 1, -0.2)]))
    assert (
        title(WHOLE) == "accuracy x 100 on 5,000 holdout rows, mean of 3 seeds ± deviation; teacher 92.0 [91.0, 93.0]"
    )


def test_the_sentences_tell_interval_and_mean_apart() -> None:
    assert answer_lines(WHOLE) == [
        "Within 1 point of the teacher: 1 of 6 layers can be dropped (top: -0.20 points [-0.60, +0.20]); "
        "by the mean alone 2 of 6 layers (symmetric: -0.90 points [-1.30, -0.50]), which the interval "
        "does not confirm.",
        "Within 2 points of the teacher: 2 of 6 layers can be dropped (symmetric: -0.90 points [-1.30, -0.50]).",
        "Within 3 points of the teacher: 2 of 6 layers can be dropped (symmetric: -0.90 points [-1.30, -0.50]).",
    ]


def test_nothing_near_enough_is_said_with_what_the_least_costs() -> None:
    assert answer_lines(result([scored("top", 1, -8.0)]))[2] == (
        "Within 3 points of the teacher: none of the tried numbers of layers, and dropping 1 is top: -8.00 points "
        "[-8.40, -7.60]."
    )


def test_the_end_of_what_was_tried_is_not_taken_for_the_end() -> None:
    assert answer_lines(result([scored("top", 1, 0.0)]))[0].endswith(
        "(top: +0.00 points [-0.40, +0.40]), the largest number that was tried."
    )


def test_luck_is_named() -> None:
    one = answer_lines(result([scored("top", 1, 0.0, seeds=1)], seeds=[0]))
    assert (
        "no number of layers is confirmed; by the mean alone 1 of 6" in one[0]
        and "One seed gives no estimate of the noise of training" in one[-1]
    )
    jump = answer_lines(result([scored("top", 1, 0.0), scored("top", 2, -1.5), scored("top", 3, 0.0)]))
    assert "Dropping 3 would be confirmed alone, but a smaller number is not." in jump[0]


def test_similarity_has_a_line_for_each_layer() -> None:
    text = drawn(similarity_table(WHOLE))
    assert "embeddings" in text and "0.500" in text and "0.250" in text
    assert "| 0 | 0.500 | 0.250 |" in sweep_markdown(WHOLE)


def test_markdown_has_the_answer_and_one_row_for_each_number_of_layers() -> None:
    lines = sweep_markdown(WHOLE).splitlines()
    assert sum(line.startswith("- Within") for line in lines) == 3
    assert [line.count("|") for line in lines if line.startswith(("| dropped", "| 1 of", "| 2 of", "| 3 of"))] == [
        len(STRATEGIES) + 2
    ] * 4


def test_the_plot_is_svg_with_teacher_lines_and_strategies_and_the_same_each_time() -> None:
    text = sweep_picture(WHOLE)
    assert ET.fromstring(text).tag.endswith("svg") and text == sweep_picture(WHOLE)
    assert str(sweep_chart(WHOLE)) in text, "the chart of the page, drawn once"
    for words in ("teacher", "teacher −1", "teacher −3", "symmetric", "greedy", "layers dropped of 6"):
        assert f">{words}<" in text, words
    assert ">contribution<" not in text, "a strategy without any figure has no line"
