"""Bad input, as users bring it: one sentence each, and nothing that a later run would take for a result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.run.stopping import RUN_OPTIONS
from tasks.errors import LimbeckError
from tasks.ports.tracking.tracker import Tracker
from tests.flows.test_compress import FAST, executed, recipe_for

SHORT: dict[str, Any] = {
    "general_distillation": None,
    "corpus": None,
    "augmentation": None,
    "layer_dropping": None,
    "students": [{"name": "half", "layers": 2, "stages": []}],
}


@pytest.fixture
def home(tmp_path: Path, prefect_server: None, engines_here: None, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home").create()
    monkeypatch.setenv(
        "MLFLOW_TRACKING_URI", home.own_tracking_uri
    )  # MLflow would write the first test's there, for all of this process
    return home


def refused(home: Home, *, bert: Path, rows: Path, sentence: str, **changes: Any) -> None:
    """Run, expect one sentence, and look for what was left behind."""
    with pytest.raises(LimbeckError, match=sentence) as caught:
        run_recipe(recipe_for(bert, rows, **SHORT | changes), home=home)
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)
    assert "RUNNING" not in {row["status"] for row in Tracker(home.own_tracking_uri, None).runs(10)}
    assert not list(Path(home.store).glob("temporary/*"))


def test_a_text_of_ten_thousand_words_is_cut_and_the_cut_is_reported(
    home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    long = " ".join(["the film was good"] * 2500)
    (tmp_path / "train.csv").write_text(tiny_rows.read_text() + f"{long},positive\n" * 1)
    result = run_recipe(recipe_for(tiny_bert, tmp_path / "train.csv", **SHORT), home=home)
    assert "finetune-teacher" in executed(result)
    assert all(model["truncated"] is not None for model in result["models"])


def test_a_class_that_validation_does_not_know(home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.csv").write_text(tiny_rows.read_text())
    (tmp_path / "rows" / "validation.csv").write_text(
        "text,label\nthe film was good,positive\nthe meal was fine,positive\n"
    )
    refused(home, bert=tiny_bert, rows=tmp_path / "rows", sentence="negative")


def test_a_label_column_that_is_not_there(home: Home, tiny_bert: Path, tiny_rows: Path) -> None:
    task = {"name": "tiny", "text": "text", "label": "lable", "metrics": ["accuracy"]}
    refused(home, bert=tiny_bert, rows=tiny_rows, task=task, sentence="lable.*label")


def test_empty_texts_are_named_by_row(home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path) -> None:
    (tmp_path / "train.csv").write_text(tiny_rows.read_text() + '"  ",positive\n')
    refused(home, bert=tiny_bert, rows=tmp_path / "train.csv", sentence="(?i)empty")


def test_a_student_wider_than_its_teacher(home: Home, tiny_bert: Path, tiny_rows: Path) -> None:
    wide = [{"name": "wide", "layers": 2, "hidden": 64, "heads": 4, "stages": []}]
    refused(home, bert=tiny_bert, rows=tiny_rows, students=wide, sentence="wid")


def test_a_start_with_another_tokenizer(home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny_bert, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["good"], vocabulary["bad"] = vocabulary["bad"], vocabulary["good"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    start = [{"name": "half", "layers": 4, "start": str(other), "stages": ["intermediate"]}]
    refused(home, bert=tiny_bert, rows=tiny_rows, students=start, sentence="tokenizer")


def test_a_pickle_is_no_model(home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path) -> None:
    bad = tmp_path / "pickled"
    shutil.copytree(tiny_bert, bad)
    (bad / "model.safetensors").rename(bad / "pytorch_model.bin")
    refused(home, bert=bad, rows=tiny_rows, teacher={"model": str(bad), "floor": 0.0, **FAST}, sentence="safetensors")
    assert RUN_OPTIONS.get() is None, "whoever runs next in this process has a home of their own"
