"""The table at the end of a run."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tasks.report.format import baseline_comparison, one_class, speeds
from tasks.report.tables import results
from tasks.report.tables.results import COLUMNS
from tests.report.figures import row, typed, undefined


def drawn(models: list[dict[str, Any]], width: int = 110) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(results.results_table(typed(models)))
    return console.export_text()


def results_markdown(models: list[dict[str, Any]]) -> str:
    return results.results_markdown(typed(models))


def baseline_lines(models: list[dict[str, Any]], split: str) -> list[str]:
    return baseline_comparison.baseline_lines(typed(models), split)


def library_lines(models: list[dict[str, Any]]) -> list[str]:
    return speeds.library_lines(typed(models))


MODELS = [
    row("teacher", "teacher", parameters=109_483_778, bytes=437_951_244, flops=22_400_000_000, latency_ms=140.25),
    row("4x312", gate="champion"),
    row("alternate-even-6-seed", "dropped", gate="accepted"),
    row("half-without-teacher", "baseline"),
]


def test_the_table_fits_in_110_columns_and_cuts_nothing() -> None:
    text = drawn(MODELS)
    assert max(len(line) for line in text.splitlines()) <= 110
    assert "…" not in text
    for part in (
        "0.912 [0.900, 0.924]",
        "98.1%",
        "109.48 M",
        "438.0",
        "22.40",
        "140.25",
        "9.4x",
        "champion",
        "baseline",
        "alternate-even",
    ):
        assert part in text, part


def test_several_seeds_show_their_deviation_and_fit_too() -> None:
    spread = {
        "deviation": {"validation": {"accuracy": 0.0042}},
        "means": {"validation": {"metrics": {"accuracy": {"value": 0.905}}}},
    }
    models = [MODELS[0], *(one | spread for one in MODELS[1:])]
    text = drawn(models)
    assert max(len(line) for line in text.splitlines()) <= 110 and "…" not in text
    assert text.count("0.912 [0.900, 0.924] (0.905 ±0.004)") == 3
    assert "| 0.912 [0.900, 0.924] (0.905 ±0.004) |" in results_markdown(models)
    assert "to compare methods; seeds vary a candidate's own training" in results_markdown(
        models
    ) and "comparing" not in results_markdown(MODELS)


def test_an_unsteady_speed_is_shown_with_its_spread_and_called_so() -> None:
    why = "after 40 calls each its median ± 12.0 %, beyond 5 %"
    models = [
        MODELS[0] | {"latency_low_ms": 138.0, "latency_high_ms": 144.0},
        MODELS[1] | {"unsteady": why},
        *MODELS[2:],
    ]
    models[1] |= {
        "latency_low_ms": 3.9,
        "latency_high_ms": 4.84,
        "measured_at": MODELS[1]["measured_at"] | {"engine": "torch fp32 sdpa, oneDNN"},
    }
    text, page = drawn(models), results_markdown(models)
    assert (
        max(len(line) for line in text.splitlines()) <= 110
        and "140.25 ±3%" in text
        and "4.32 ±13%" in text
        and text.count("unsteady") == 1
    )
    assert (
        "The speed of 4x312 is unsteady and not used for decisions: after 40 calls each its median ± 12.0 %, beyond "
        "5 %." in page
    )
    assert library_lines(
        [
            row("a", measured_at={"engine": "torch fp32 sdpa, MKL"}),
            models[1],
            row("c", measured_at={"engine": "onnxruntime int8"}),
        ]
    ) == ["Faster with the fp32 matrix products of oneDNN, and therefore timed with them: 4x312."]


def compared(value: float, low: float, high: float, verdict: str, seeds: tuple[int, int] = (3, 3)) -> dict[str, Any]:
    return {
        "validation": {"value": value, "low": low, "high": high, "p": 0.01, "seeds": list(seeds), "verdict": verdict}
    }


def test_a_comparison_is_a_line_below_and_says_how_far_it_carries() -> None:
    better, noise = compared(0.012, 0.004, 0.02, "better"), compared(-0.001, -0.01, 0.008, "inside the noise", (1, 3))
    models = [
        MODELS[0],
        row("4x312", against={"plain": better}),
        row("4x312-odd", against={"plain": noise}),
        row("plain", "baseline", against={}),
    ]
    lines = baseline_lines(models, "validation")
    assert lines[:2] == [
        "4x312 against plain: +0.012 [+0.004, +0.020], better",
        "4x312-odd against plain: -0.001 [-0.010, +0.008], inside the noise",
    ]
    assert "all 2 comparisons (Holm)" in lines[2] and "Where a side has one seed" in lines[2] and len(lines) == 3
    assert all(f"- {line}" in results_markdown(models) for line in lines)
    assert baseline_lines(models, "holdout") == [] == baseline_lines(MODELS, "validation")


def test_of_models_that_a_recipe_compares_it_is_told_in_what_they_differ() -> None:
    found = compared(0.012, 0.004, 0.02, "better")["validation"] | {"differs": ["feed_forward", "mixer"]}
    model = row("lsra", against={"softmax": {"validation": found}})
    assert baseline_lines([model], "validation")[0].startswith(
        "lsra against softmax (other feed_forward, mixer): +0.012"
    )
    said = baseline_comparison.baseline_sentence(typed([model])[0], "validation")
    assert (
        "that of `softmax` (+0.012 [+0.004, +0.020], 3 seeds against 3), which differs in feed_forward, mixer." in said
    )


def test_the_teacher_is_not_compared_with_itself() -> None:
    line = next(line for line in results_markdown(MODELS).splitlines() if line.startswith("| teacher"))
    assert line.count("—") == 3 and "98.1%" not in line and "x |" not in line


def test_what_is_undefined_is_a_dash() -> None:
    line = results_markdown([MODELS[0], undefined("new")]).splitlines()[3]
    assert line == "| new | student | — | — | — | — | — | — | — | — |"
    assert "None" not in drawn([undefined("new")])


def test_markdown_has_one_line_a_model_and_says_the_conditions() -> None:
    lines = results_markdown(MODELS).splitlines()
    assert len({line.count("|") for line in lines[: len(MODELS) + 2]}) == 1 and lines[0].count("|") == len(COLUMNS) + 1
    assert "batch 1, length 32, 1 thread, torch, eager" in lines[-1]


def test_a_note_has_the_signs_of_its_place() -> None:
    """On the console metrics were written entity\\_f1, as only Markdown needs it."""
    models = [row("int8", "export", note="int8 (dynamic) loses 0.0125 of entity_f1")]
    assert results.notes(typed(models))[0] == "Note: int8 (dynamic) loses 0.0125 of entity_f1."
    assert "entity\\_f1" in results_markdown(models)


def test_what_a_stage_noted_stands_below_the_table_once() -> None:
    models = [
        row("teacher", "teacher"),
        row("top-1", "dropped", note="fewer times"),
        row("top-2", "dropped", note="fewer times"),
    ]
    assert results_markdown(models).count("Note: fewer times.") == 1 and "Note" not in results_markdown(models[:1])


def one_class_lines(**matrices: dict[str, Any]) -> list[str]:
    return one_class.one_class_lines(typed([row(name, inspection=found) for name, found in matrices.items()]))


def test_models_that_give_all_rows_one_class_are_named() -> None:
    constant, able = [[0, 38], [0, 66]], [[30, 8], [2, 64]]
    found = one_class_lines(
        half={"confusion": constant, "nll": 0.66},
        best={"confusion": able, "nll": 0.2},
        quarter={"confusion": constant, "nll": 0.7},
    )
    assert found == [
        "All 104 rows get one class from half, quarter: they tell nothing apart, a score is the share of rows of that "
        "class, and a share of the teacher means nothing."
    ]
    assert "it tells nothing apart" in one_class_lines(half={"confusion": constant, "nll": 0.66})[0]
    models = [row("half", inspection={"confusion": constant, "nll": 0.66})]
    assert "All 104 rows get one class from half" in results_markdown(models)


def test_one_class_among_rows_of_one_class_and_other_matrices_are_no_fault() -> None:
    assert not one_class_lines(half={"confusion": [[0, 0], [0, 66]], "nll": 0.1})
    assert not one_class_lines(tags={"confusion": [[0, 38], [0, 66]], "precision": 0.5}, plain={})
