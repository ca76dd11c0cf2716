"""The whole chain over a bucket: what one host made, another host with nothing of its own finds, and moves no artifact
to know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.errors import StoreError
from tests.command_line import plan_recipe
from tests.databases import is_unused
from tests.flows.test_compress import executed, recipe_for
from tests.s3_server import BUCKET, S3Server


@pytest.fixture
def here(tmp_path: Path, engines_here: None, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "here").create()
    monkeypatch.setenv("LIMBECK_STORE", f"s3://{BUCKET}/{tmp_path.name}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.own_tracking_uri)
    monkeypatch.setenv("LIMBECK_DISPATCH", "none")  # another test may deploy a pool on this server meanwhile
    return home


def test_another_host_finds_everything(
    prefect_server: None, here: Home, tmp_path: Path, sharded_bert: Path, tiny_rows: Path
) -> None:
    """The teacher comes in several files, as large ones do."""
    changes: dict[str, Any] = {"general_distillation": None, "corpus": None, "augmentation": None}
    recipe = recipe_for(sharded_bert, tiny_rows, **changes)
    first = run_recipe(recipe, home=here)
    assert not (here.root / "store").exists()

    there = Home(tmp_path / "there").create()
    assert {row["cache"] for row in plan_recipe(recipe, home=there)} == {"hit"}
    second = run_recipe(recipe, home=there)
    assert executed(second) == set() and second["models"] == first["models"]
    assert not any(entry["new"] for entry in second["registered"])
    fetched = {path.name for path in (there.cache / "objects").glob("*/*/*")}
    assert fetched <= {"inspection.json", "texts.json"}, (
        "a run that is all hits fetches what its page shows, and nothing else"
    )

    changed = recipe_for(sharded_bert, tiny_rows, **changes, scoring={"resamples": 150, "max_length": 16})
    assert {"score-model"} <= executed(run_recipe(changed, home=there)) <= {"score-model", "inspect-answers"}


def test_a_store_that_is_not_there_stops_the_run_first(
    prefect_server: None, here: Home, monkeypatch: pytest.MonkeyPatch, tiny_bert: Path, tiny_rows: Path
) -> None:
    monkeypatch.setenv("LIMBECK_STORE", "s3://nobody-made-this")
    with pytest.raises(StoreError, match="there is no such bucket"):
        run_recipe(recipe_for(tiny_bert, tiny_rows), home=here)
    assert is_unused(Path(here.own_tracking_uri.removeprefix("sqlite:///"))), "no MLflow run was opened"
