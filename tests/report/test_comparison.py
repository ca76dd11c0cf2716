"""Runs side by side, and the leaderboard of a task."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from tasks.report.comparison import ComparedRun, ComparisonTable, comparisons
from tasks.report.page.page import compare_page
from tasks.report.tables.leaderboard import boards, leaderboard_table
from tasks.results.run import RunResult
from tests.report.figures import row, written
from tests.report.test_page import COST, HOSTILE, Read


def run(name: str, knobs: dict[str, str], models: list[dict[str, Any]], **changes: Any) -> ComparedRun:
    ledger = {"total": COST, "saved": {}}
    result = written(name, models=models) | {"ledger": ledger} | changes
    return ComparedRun(name, "2026-11-23 10:00", knobs, RunResult.model_validate(result))


OLD = run("old", {"teacher.epochs": "3", "seed": "0"}, [row("teacher", "teacher"), row("4x312", gate="champion")])
NEW = run(
    "new", {"teacher.epochs": "5", "seed": "0", "students.2.layers": "2"}, [row("teacher", "teacher"), row("2x128")]
)


def tables(*runs: ComparedRun) -> dict[str, ComparisonTable]:
    return {table.title: table for table in comparisons(runs)}


def test_only_knobs_that_differ_are_listed_and_what_a_run_does_not_state_is_a_dash() -> None:
    found = tables(OLD, NEW)["Knobs that differ"]
    assert found.rows == (("teacher.epochs", ("3", "5")), ("students.2.layers", ("—", "2")))
    assert found.note.startswith("1 stated knobs are equal.")


def test_every_model_of_either_run_has_its_figures_side_by_side() -> None:
    found = tables(OLD, NEW)
    assert dict(found["Score, with its interval"].rows)["4x312"] == ("0.912 [0.900, 0.924]", "—")
    assert dict(found["Gate"].rows) == {"teacher": ("—", "—"), "4x312": ("champion", "—"), "2x128": ("—", "—")}
    assert dict(found["Weights, MB"].rows)["2x128"] == ("—", "57.4")


def test_costs_are_listed_where_they_are_known() -> None:
    rows = dict(tables(OLD, NEW)["Costs"].rows)
    assert (
        rows["spent, $"] == ("~0.42", "~0.42") and "spent, $ spot" not in rows and "saved by the cache, $" not in rows
    )


@pytest.mark.parametrize("change", [{"split": "holdout"}, {"headline": "f1"}, {"rows": {"validation": 10}}])
def test_scores_on_other_rows_are_called_not_comparable(change: dict[str, Any]) -> None:
    other = run("other", {}, [row("teacher", "teacher")], **change)
    assert "not comparable" in tables(OLD, other)["Score, with its interval"].note
    assert tables(OLD, NEW)["Score, with its interval"].note == ""


def test_the_page_of_a_comparison_has_every_table_and_escapes_words() -> None:
    page = compare_page([OLD, run("bad", {"name": HOSTILE}, [row(HOSTILE)])])
    read = Read(page)
    assert "2 runs side by side" in read.text and "Knobs that differ" in read.text and "<script>" not in page
    assert {name for name, _ in read.tags}.isdisjoint({"img", "script", "link"})


def entry(name: str, score: float | None, *, run: str = "r1", data: str = "d" * 36, **tags: str) -> dict[str, Any]:
    known = {"candidate": name, "headline": "accuracy", "split": "validation", "checkpoint.sha256": name, **tags}
    return {"run": run, "data": data, "tags": known, "metrics": {} if score is None else {"score": score}}


def test_the_best_comes_first_and_a_checkpoint_that_several_runs_scored_counts_once() -> None:
    [(place, found)] = boards(
        [entry("a", 0.8, run="new"), entry("b", 0.9), entry("c", None), entry("a", 0.7, run="old")]
    ).items()
    assert place == ("accuracy", "validation", "d" * 36)
    assert [(one["tags"]["candidate"], one["run"]) for one in found] == [("b", "r1"), ("a", "new"), ("c", "r1")]
    console = Console(width=160, record=True, quiet=False)
    with console.capture() as caught:
        console.print(leaderboard_table(place, found, 2))
    text = caught.get()
    assert "accuracy on validation, data dddddddd: 2 of 3" in text and " c " not in text


def test_names_are_not_broken_at_120_columns_and_what_all_have_in_common_is_said_once() -> None:
    """``half-without-teacher`` took two lines beside seven columns of the same recipe and teacher."""
    tags = {"teacher": "bert-base-uncased", "recipe": "reviews-of-my-shop", "gate": "accepted", "role": "baseline"}
    names = ("half-without-teacher", "a-third-of-the-layers-in-int8")
    [(place, found)] = boards([entry(name, 0.8, **tags) for name in names]).items()
    console = Console(width=120, record=True, quiet=False)
    with console.capture() as caught:
        console.print(leaderboard_table(place, found, 9))
    text = caught.get()
    assert all(name in text for name in names) and text.count("bert-base-uncased") == text.count("reviews-of") == 1
    found[0]["tags"]["teacher"] = "another"
    with console.capture() as caught:
        console.print(leaderboard_table(place, found, 9))
    assert all(name in caught.get() for name in names)


def test_errors_are_sorted_the_other_way_and_other_rows_have_a_board_of_their_own() -> None:
    found = boards([entry("a", 0.8, headline="mse"), entry("b", 0.1, headline="mse"), entry("c", 0.5, data="e")])
    assert [one["tags"]["candidate"] for one in found["mse", "validation", "d" * 36]] == ["b", "a"]
    assert len(found) == 2
