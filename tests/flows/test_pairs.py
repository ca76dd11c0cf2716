"""Pairs of texts as SuperGLUE has them, from a table to a pulled model: texts rendered from several columns, of which
the passage alone is cut, and answers to one question that are judged together."""

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
from tasks.errors import DataError
from tasks.ports.rows.tables import read_as_written
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tasks.scoring.predictions import FILE, read_predictions
from tests.command_line import plan_recipe
from tests.flows.test_compress import FAST
from tests.tiny import WORDS

pytestmark = pytest.mark.slow
LEARNING = {**FAST, "steps": 60, "learning_rate": 5e-3, "batch_size": 16, "max_length": 20}
TEXT, PAIR = "{passage *start:end*}", "{question} or {answer}"


def write_answers(file: Path, questions: int, first: int) -> Path:
    """Write three answers to each question about a passage that is longer than a model's input; an answer is right
    where it is one of four words."""
    draw = random.Random(first)
    rows = []
    for number in range(first, first + questions):
        passage = " ".join(draw.choices(WORDS, k=20))
        for _ in range(3):
            answer = draw.choice(WORDS[1:9])
            row = {"passage": passage, "start": 0, "end": passage.index(" "), "question": f"was it {number}"}
            right = int(answer in WORDS[1:5])
            rows.append(row | {"answer": answer, "unit": number, "book": number // 2, "label": right})
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def values_for(bert: Path, root: Path) -> dict[str, Any]:
    return {
        "name": "answers",
        "task": {
            "name": "answers",
            "text": TEXT,
            "pair": PAIR,
            "truncate": "first",
            "group": "unit",
            "metrics": ["f1_group_exact", "f1", "group_exact", "accuracy"],
        },
        "data": {
            "source": str(write_answers(root / "rows" / "train.parquet", 90, 0)),
            "group": "book",
            "selection_rows": 24,
            "validation_share": 0.25,
            "judge": {"others": {"source": str(write_answers(root / "others.parquet", 20, 500)), "group": "unit"}},
        },
        "teacher": {"model": str(bert), "floor": 0.0, **LEARNING},
        "task_distillation": {"prediction": LEARNING},
        "students": [
            {"name": "half", "layers": 2, "stages": [], "seeds": [0, 1]},
            {"name": "labels", "layers": 2, "role": "baseline", "signal": "labels"},
        ],
        "layer_dropping": {**FAST, "strategies": ["top"], "drop": [1]},
        "scoring": {"resamples": 100, "max_length": 20, "metrics": ["group_parity"]},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": {
            "of": ["half", "labels", "top-1"],
            "parity_rows": 16,
            "formats": ["onnx", "int8"],
            "tolerance": 1.0,
        },
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "f1_group_exact", "at_least": 0.0}],
            "register_as": "answers",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def recipe(tiny_bert: Path, home: Home) -> Recipe:
    return Recipe.model_validate(values_for(tiny_bert, home.root))


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, recipe: Recipe) -> dict[str, Any]:
    return run_recipe(recipe, home=home)


def test_groups_are_judged_everywhere(result: dict[str, Any], home: Home) -> None:
    models = {model["name"]: model for model in result["models"]}
    assert {*models} >= {"teacher", "half", "labels", "top-1", "half-onnx", "half-int8"}
    teacher = models["teacher"]["metrics"]["validation"]
    assert teacher["f1"]["value"] > 0
    for model in models.values():
        found = model["metrics"]["validation"]
        assert {*found} == {"f1_group_exact", "f1", "group_exact", "accuracy", "group_parity"}
        mean = (found["f1"]["value"] + found["group_exact"]["value"]) / 2
        assert found["f1_group_exact"]["value"] == pytest.approx(mean, abs=1e-9)
        assert found["group_exact"]["low"] <= found["group_exact"]["value"] <= found["group_exact"]["high"]
    assert models["half-onnx"]["export"]["largest_difference"] < 1e-3
    assert {*models["half"]["judged"]["others"]["metrics"]} >= {"group_exact", "group_parity"}
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1


def test_a_pulled_model_cuts_and_renders_as_it_was_judged(result: dict[str, Any], home: Home, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    Tracker(home.own_tracking_uri, home.artifacts).download("answers", "champion", folder)
    assert json.loads((folder / "tokenizer_config.json").read_text())["limbeck_truncation"] == "only_first"
    assert json.loads((folder / "onnx" / "onnx.json").read_text())["truncation"] == "only_first"
    rows = read_as_written(next(home.root.rglob("validation.parquet"))).to_pydict()
    assert all(text.startswith("* ") for text in rows["text"])
    judged = [
        one
        for file in home.root.rglob(FILE)
        if file.parent.name != "evaluation"
        for one in read_predictions(file.parent)
        if len(one.ids) == len(rows["id"]) and one.ids == rows["id"]
    ]
    for place in (folder, folder / "onnx"):
        answers = [int(one["label"]) for one in predict_texts(place, rows["text"], rows["pair"])]
        assert any(answers == one.predictions_N.astype(int).tolist() for one in judged)
        with pytest.raises(DataError, match="from pairs of texts, and one text is given"):
            predict_texts(place, rows["text"])
    card = (folder / "README.md").read_text()
    assert 'truncation="only_first"' in card and 'strategy=card["truncation"]' in card


def test_nothing_runs_again(result: dict[str, Any], recipe: Recipe, home: Home) -> None:
    assert all(row["cache"] == "hit" for row in plan_recipe(recipe, home=home))
