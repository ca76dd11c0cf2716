"""A task with several labels a row, from a table to a pulled model: a teacher, students of several seeds, thresholds,
exports, the page, and predictions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tests.command_line import Command, plan_recipe
from tests.flows.test_compress import FAST, executed
from tests.forked.strangers import ask_stranger
from tests.task_types.shown.cards import snippets_of
from tests.task_types.shown.disagreements import shown_disagreement
from tests.tiny import WORDS

NAMES = sorted(WORDS[:3])
LEARNING = {**FAST, "steps": 80, "learning_rate": 5e-3, "batch_size": 16}


def write_table(folder: Path) -> Path:
    """Write texts, each labelled with those of three words that it contains."""
    draw = random.Random(0)
    texts = sorted({" ".join(draw.choices(WORDS, k=draw.randint(3, 8))) for _ in range(320)})
    sets = [[name for name in NAMES if name in text.split()] for text in texts]
    pq.write_table(pa.table({"text": texts, "topics": sets}), folder / "train.parquet")
    return folder / "train.parquet"


def recipe_for(bert: Path, table: Path, **changes: Any) -> Recipe:
    """Return a recipe of every stage that asks the task type."""
    values: dict[str, Any] = {
        "name": "topics",
        "task": {
            "name": "topics",
            "kind": "multi-label",
            "label": "topics",
            "metrics": ["micro_f1", "label_macro_f1", "subset_accuracy"],
        },
        "data": {"source": str(table), "selection_rows": 30, "validation_share": 0.2},
        "teacher": {"model": str(bert), "floor": 0.0, **LEARNING},
        "task_distillation": {"intermediate": FAST, "prediction": LEARNING},
        "students": [
            {"name": "half", "layers": 2, "stages": [], "seeds": [0, 1]},
            {"name": "inner", "layers": 2},
            {"name": "labels", "role": "baseline", "layers": 2, "stages": [], "signal": "labels"},
        ],
        "layer_dropping": {**FAST, "strategies": ["top"], "drop": [1]},
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": {"parity_rows": 16, "formats": ["onnx", "int8"], "of": ["half"], "tolerance": 1.0},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "parameters", "at_most": 1e9}],
            "register_as": "topics",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }
    return Recipe.model_validate(values | changes)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def table(home: Home) -> Path:
    return write_table(home.root)


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, table: Path) -> dict[str, Any]:
    return run_recipe(recipe_for(tiny_bert, table), home=home)


def test_teacher_and_students_learn_the_labels(result: dict[str, Any]) -> None:
    models = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert {"teacher", "half", "inner", "labels", "top-1"} < set(models)
    assert models["teacher"]["micro_f1"]["value"] > 0.6
    for figures in models.values():
        assert set(figures) == {"micro_f1", "label_macro_f1", "subset_accuracy"}
        assert figures["micro_f1"]["low"] <= figures["micro_f1"]["value"] <= figures["micro_f1"]["high"]
    exported, checkpoint = (
        next(figures["micro_f1"]["value"] for name, figures in models.items() if name == wanted)
        for wanted in ("half-onnx", "half")
    )
    assert exported == pytest.approx(checkpoint)


def test_the_teacher_is_asked_once_for_all_students(result: dict[str, Any]) -> None:
    asked = [stage for stage in result["stages"] if stage["name"] == "answer-rows"]
    assert len(asked) == 1


def test_every_scored_model_has_its_own_thresholds_and_students_learn_without_them(result: dict[str, Any]) -> None:
    tuned = sorted(stage["label"] for stage in result["stages"] if stage["name"] == "tune-thresholds")
    assert tuned == ["half s0", "half s1", "inner", "labels", "teacher", "top-1"]


def test_a_change_of_a_threshold_makes_no_training_again(
    result: dict[str, Any], home: Home, tiny_bert: Path, table: Path
) -> None:
    assert executed(run_recipe(recipe_for(tiny_bert, table), home=home)) == set()
    rows = plan_recipe(recipe_for(tiny_bert, table, scoring={"resamples": 100, "max_length": 15}), home=home)
    missed = {row["stage"].partition("/")[0] for row in rows if row["cache"] == "miss"}
    assert "tune-thresholds" in missed and not missed & {"finetune-teacher", "answer-rows", "distill-predictions"}


def test_the_page_shows_labels_by_name(result: dict[str, Any], home: Home) -> None:
    page = next(home.root.rglob("report.html")).read_text()
    assert "Missed and wrong labels" in page and "wrong decisions on single labels" in page
    assert all(name in page for name in NAMES)
    shown_disagreement(result, home, "Sets that differ in a label of which both are sure")


def test_a_pulled_model_and_its_export_predict_labels_with_scores(
    result: dict[str, Any], home: Home, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    pulled = command("pull", "topics@champion", str(tmp_path / "model"))
    assert pulled.status == 0, pulled.error
    card = (tmp_path / "model" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "thresholds are in the bias" in card
    (tmp_path / "texts.txt").write_text(f"{NAMES[0]} {NAMES[1]}\n{NAMES[2]}\n")
    found = []
    for folder in (tmp_path / "model", tmp_path / "model" / "onnx"):
        done = command("predict", str(folder), str(tmp_path / "texts.txt"))
        assert done.status == 0, done.error
        found.append([json.loads(line) for line in done.output.splitlines()])
        assert set(found[-1][0]) >= {"labels", *(f"score_{name}" for name in NAMES)}
    table = command(
        "predict", str(tmp_path / "model"), str(tmp_path / "texts.txt"), "--output", str(tmp_path / "t.csv")
    )
    assert table.status == 0 and '"labels"' in (tmp_path / "t.csv").read_text().splitlines()[0]
    texts = (tmp_path / "texts.txt").read_text().splitlines()
    graphs = predict_texts(tmp_path / "model", texts, export_format="onnx")
    assert [one["labels"] for one in graphs] == [one["labels"] for one in found[0]]
    for one, other in zip(graphs, found[0], strict=True):
        assert all(one[f"score_{name}"] == pytest.approx(other[f"score_{name}"], abs=1e-3) for name in NAMES)
    for snippet in snippets_of(tmp_path / "model", 2):
        done = ask_stranger(snippet, folder=tmp_path)
        assert done.returncode == 0 and done.stdout.strip(), snippet + done.stderr[-2000:]
