"""The overlaps that a plan counts before anything ran: the same as the stages of a run find, or the reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import planned_session
from flows.home import Home
from flows.recipes import planned_rows as planning
from flows.recipes.planned_rows import compared_rows
from tasks.ports.rows.prepared import leakage_of_corpus, prepare_rows, prepare_transfer
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice, TransferSlice
from tasks.report.tables.held_back import held_back_lines
from tasks.results.facts import HeldBackFacts
from tests.flows.test_compress import recipe_for

KEPT_TEXTS = TransferSlice(source="", task_type="classification")
OTHER_TEXTS = KEPT_TEXTS.model_copy(update={"overlaps": "leave-out"})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home").create()
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    return home


def planned(home: Home, recipe: Recipe) -> HeldBackFacts:
    """Return the held-out rows of a plan in a home where nothing ran."""
    return compared_rows(recipe, planned_session(recipe, home))


def with_texts(bert: Path, rows: Path, folder: Path, **changes: Any) -> Recipe:
    """Return a recipe whose transfer text, corpus and judging set share rows with the rows of the task."""
    lines = rows.read_text().splitlines()
    (folder / "mine.txt").write_text("\n".join(line.rpartition(",")[0] for line in lines[1:60]) + "\n")
    (folder / "other.csv").write_text("\n".join([lines[0], *lines[50:80], "nobody has said this,positive"]) + "\n")
    values: dict[str, Any] = {
        "data": {
            "source": str(rows),
            "selection_rows": 20,
            "holdout_rows": 20,
            "judge": {"other": {"source": str(folder / "other.csv")}},
        },
        "transfer": {"source": str(folder / "mine.txt")},
    }
    return recipe_for(bert, rows, **values | changes)


def test_texts_are_compared_as_the_stages_would(home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path) -> None:
    """Before a first run, a plan counted overlaps with the training rows alone, and said nothing of the corpus, which
    held every row that judges."""
    recipe = with_texts(tiny_bert, tiny_rows, tmp_path)
    told = planned(home, recipe)
    prepare_rows(tiny_rows, RowsSlice(**dict(recipe.data), task=recipe.spec), tmp_path / "rows")
    general = leakage_of_corpus(tiny_rows, "text", 2000, tmp_path / "rows")["leaked"]
    own = prepare_transfer(tmp_path / "mine.txt", KEPT_TEXTS, tmp_path / "transfer", tmp_path / "rows")["leaked"]
    assert (told.leaked["general text"], told.leaked["transfer text"]) == (general, own)
    assert {*told.leaked["general text"]} == {"validation", "selection", "holdout"} and told.leaked["training rows"]
    assert sum(told.leaked["general text"].values()) > sum(told.leaked["transfer text"].values()) > 0
    other = told.judging["other"]
    assert other.rows == 31 and other.leaked["general text"] == 30 and 0 < other.leaked["transfer text"] < 30
    assert [*other.leaked] == ["training rows", "transfer text", "general text"] and not told.uncompared
    lines = " ".join(held_back_lines(told))
    assert "Held-out rows that overlap with the general text" in lines and "30 with the general text" in lines


def test_a_plan_leaves_out_the_texts_that_a_run_leaves_out(
    home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    recipe = with_texts(tiny_bert, tiny_rows, tmp_path)
    assert recipe.transfer is not None
    without = recipe.transfer.model_copy(update={"overlaps": "leave-out"})
    told = planned(home, recipe.model_copy(update={"transfer": without}))
    rows, texts, output = tmp_path / "rows", tmp_path / "mine.txt", tmp_path / "transfer"
    prepare_rows(tiny_rows, RowsSlice(**dict(recipe.data), task=recipe.spec), rows)
    said = prepare_transfer(texts, OTHER_TEXTS, output, rows)
    assert told.left_out == {"transfer text": said["left_out"]} and told.leaked["transfer text"] == said["leaked"]
    assert {*told.leaked["transfer text"].values()} == {0}
    assert f"Left out of the transfer text for overlaps with held-out rows: {said['left_out']} text" in " ".join(
        held_back_lines(told)
    )


def test_what_is_too_large_for_a_plan_is_named(
    home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = with_texts(tiny_bert, tiny_rows, tmp_path, corpus={"source": str(tiny_rows), "max_length": 16})
    monkeypatch.setattr(planning, "LARGEST_READ", tiny_rows.stat().st_size - 1)
    monkeypatch.setattr(planning, "LARGEST_TEXT", tiny_rows.stat().st_size - 1)
    unread = planned(home, whole)
    kinds = ["training rows", "judging set other", "transfer text", "general text"]
    assert not unread.is_known and [*unread.uncompared] == kinds
    assert held_back_lines(unread)[3].startswith("Overlaps of the general text are counted by a run, and not before: ")
    assert unread.uncompared["transfer text"] == "the held-out rows are not read"
    monkeypatch.setattr(planning, "LARGEST_READ", tiny_rows.stat().st_size)
    monkeypatch.setattr(planning, "LARGEST_TEXT", tiny_rows.stat().st_size)
    assert not planned(home, whole).uncompared
    long = tmp_path / "long.txt"
    long.write_text(tiny_rows.read_text() * 3)
    large = with_texts(tiny_bert, tiny_rows, tmp_path, corpus={"source": str(long), "max_length": 16})
    told = planned(home, large)
    assert [*told.uncompared] == ["general text"] and "general text" not in told.leaked
    assert told.leaked["transfer text"] and [*told.judging["other"].leaked] == ["training rows", "transfer text"]
    few = recipe_with_words(large, 1000)
    assert planned(home, few).leaked["general text"], "of a large corpus few words are read"


def recipe_with_words(recipe: Recipe, most: int) -> Recipe:
    """Return a recipe that reads at most so many words of its corpus."""
    assert recipe.corpus is not None
    return recipe.model_copy(update={"corpus": recipe.corpus.model_copy(update={"max_tokens": most})})


def test_a_set_for_which_train_is_purged_is_named(home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path) -> None:
    recipe = with_texts(tiny_bert, tiny_rows, tmp_path)
    purging = {"other": recipe.judging_sets["other"].model_copy(update={"overlaps": "purge"})}
    told = planned(home, recipe.model_copy(update={"data": recipe.data.model_copy(update={"judge": purging})}))
    assert told.uncompared == {"judging set other": "train is purged for it first"} and not told.judging
