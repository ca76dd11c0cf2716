"""Texts beside the task's rows reach all that learn from them: a corpus in a column of another name, and the user's own
text, from which dropped models learn the teacher's answers as students do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.rows.table_files import write_table
from tasks.recipe.recipe import Recipe
from tests.command_line import plan_recipe
from tests.flows.test_compress import FAST

WORDS = "the a film meal book plot song was is very good bad great dull fine".split()


def texts(count: int, start: int) -> list[str]:
    """Return sentences of which none contains another."""
    return [f"number {start + each} the {WORDS[2 + each % 5]} was {WORDS[10 + each % 5]}" for each in range(count)]


def test_dropped_models_learn_from_the_users_text_and_a_corpus_has_its_own_column(
    prefect_server: None, engines_here: None, tmp_path: Path, tiny_rows: Path
) -> None:
    home = Home(tmp_path / "home").create()
    write_table(tmp_path / "corpus" / "train.parquet", {"body": texts(60, 0), "text": [""] * 60})
    write_table(tmp_path / "own" / "train.parquet", {"text": texts(24, 500)})
    values: dict[str, Any] = {
        "name": "texts",
        "task": {"name": "tiny", "text": "text", "metrics": ["accuracy"]},
        "data": {"source": str(tiny_rows), "selection_rows": 20, "holdout_rows": 20},
        "corpus": {"source": str(tmp_path / "corpus"), "text": "body", "max_tokens": 2000},
        "pretraining": {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "vocabulary": 120, **FAST},
        "teacher": {"floor": 0.0, **FAST},
        "transfer": {"source": str(tmp_path / "own"), "alone": True},
        "layer_dropping": {"strategies": ["top"], "drop": [1], "signal": "teacher", **FAST},
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.02, "length": 8},
        "gate": {"split": "holdout", "criteria": [{"metric": "accuracy", "at_least": 0.0}]},
        "resources": {"cores": 2, "threads_alone": 1},
    }
    recipe = Recipe.model_validate(values)
    (dropped,) = (row for row in plan_recipe(recipe, home=home) if str(row["stage"]).startswith("drop-layers"))
    assert "transfer" in str(dropped)
    result = run_recipe(recipe, home=home)
    assert {one["name"] for one in result["models"]} == {"teacher", "top-1"}
