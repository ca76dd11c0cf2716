"""Answers in passages from a table to a pulled model: teacher, students on its answers and on its layers, a dropped
model, a baseline, exports, gate, registration, and answers with their places in the passage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import load_file

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.inference.inputs import text_inputs
from flows.inference.predictions import predicted
from tasks.errors import DataError
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tasks.scoring.predictions import FILE, read_predictions
from tests.flows.test_compress import FAST
from tests.forked.strangers import ask_stranger
from tests.task_types.shown.cards import snippets_of
from tests.task_types.spans.tables import asked, write_asked

TRAINED: dict[str, Any] = {**FAST, "steps": 60, "learning_rate": 5e-3, "batch_size": 16, "max_length": 20}
"""Twenty tokens: longer passages are read in windows."""
TRIMMED = {"name": "a", "by": "vocabulary-trimming", "from": "teacher"}


def values_for(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe with a student that learns the teacher's answers, and its graphs."""
    return {
        "name": "answers",
        "task": {"name": "asked", "kind": "spans", "pair": "context", "metrics": ["squad_f1", "squad_exact"]},
        "data": {"source": str(table), "selection_rows": 30, "validation_share": 0.2},
        "teacher": {"model": str(bert), **TRAINED, "floor": 0.0},
        "task_distillation": {"prediction": {**TRAINED, "steps": 8}},
        "students": [{"name": "half", "layers": 2, "stages": []}],
        "scoring": {"resamples": 100, "max_length": 20},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": {"of": ["half"], "parity_rows": 16, "tolerance": 1.0},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "squad_f1", "at_least": 0.0}],
            "register_as": "answer-finder",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


def values_of_all(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe of all stages that ask the type: also a student on layers, a dropped model, and a baseline."""
    values = values_for(bert, table)
    inner = {"name": "inner", "layers": 2, "stages": ["intermediate"]}
    baseline = {"name": "labels", "layers": 2, "signal": "labels", "role": "baseline"}
    return values | {
        "task_distillation": {**values["task_distillation"], "intermediate": {**TRAINED, "steps": 2}},
        "students": [{**values["students"][0], "seeds": [0, 1]}, inner, baseline],
        "layer_dropping": {**TRAINED, "steps": 2, "strategies": ["top"], "drop": [1]},
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path) -> dict[str, Any]:
    """One run of a student."""
    recipe = Recipe.model_validate(values_for(tiny_bert, write_asked(home.root / "table")))
    return run_recipe(recipe, home=home, json_path=home.root / "out.json")


def test_every_model_is_scored_by_answers(result: dict[str, Any]) -> None:
    scores = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert {*scores} == {"teacher", "half", "half-onnx", "half-int8"}
    for metrics in scores.values():
        assert {*metrics} == {"squad_f1", "squad_exact"}
        assert metrics["squad_f1"]["low"] <= metrics["squad_f1"]["value"] <= metrics["squad_f1"]["high"]
    assert scores["teacher"]["squad_f1"]["value"] > 0.3
    assert scores["half-onnx"]["squad_f1"]["value"] == pytest.approx(scores["half"]["squad_f1"]["value"])
    graph = next(model for model in result["models"] if model["name"] == "half-onnx")
    assert graph["export"]["largest_difference"] < 1e-3


def test_the_teacher_answers_once_in_windows(result: dict[str, Any], home: Home) -> None:
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["start_logits"].shape == stored["end_logits"].shape == (stored["counts"].sum(),)
    assert len(stored["counts"]) == len(stored["ids"])


def test_no_stored_prediction_has_a_word_of_a_passage(result: dict[str, Any], home: Home) -> None:
    folders = {file.parent for file in home.root.rglob(FILE) if file.parent.name != "evaluation"}
    found = [one for folder in folders for one in read_predictions(folder)]
    assert found
    for one in found:
        assert {*one.outputs} == {"answer", "candidates"}
        assert not {"good", "bad", "fine", "poor"} & {word for answer in one.predictions_N for word in answer.split()}


def test_the_page_tells_answers_and_shows_disagreements(result: dict[str, Any], home: Home) -> None:
    page = next(home.root.rglob("report.html")).read_text()
    assert "F1 of questions that have an answer" in page and ">None<" not in page
    apart = next(one["inspection"]["apart"] for one in result["models"] if one["name"] == "half")
    assert apart["counts"]["rows"] == 60
    # its student finds the teacher's very answers; how others are shown: tests/task_types/test_views.py
    assert not apart["counts"]["differ"] and "Different answers, the student" not in page


def test_a_pulled_model_and_its_graphs_answer_with_places(result: dict[str, Any], home: Home, tmp_path: Path) -> None:
    """The programs on the card run in a process without our code."""
    folder = tmp_path / "model"
    Tracker(home.own_tracking_uri, home.artifacts).download("answer-finder", "champion", folder)
    assert "limbeck_null_threshold" in json.loads((folder / "config.json").read_text())
    columns = asked(6, seed=3)
    answers = [predict_texts(place, columns["question"], columns["context"]) for place in (folder, folder / "onnx")]
    for found in answers:
        for one, context in zip(found, columns["context"], strict=True):
            assert {*one} == {"answer", "start", "end", "score", "no_answer", "others"}
            assert one["answer"] == ("" if one["start"] < 0 else context[one["start"] : one["end"]])
    with pytest.raises(DataError, match="reads two texts, question and context, and one is given"):
        predict_texts(folder, ["film it"])
    assert "pipeline_tag: question-answering" in (folder / "README.md").read_text()
    for snippet in snippets_of(folder, 2):  # of the checkpoint, and of its fastest graph
        done = ask_stranger(snippet, folder=tmp_path)
        assert done.returncode == 0 and done.stdout.strip(), snippet + done.stderr[-2000:]


@pytest.mark.slow
def test_every_method_works_on_passages(
    prefect_server: None, engines_here: None, tiny_bert: Path, tmp_path: Path
) -> None:
    """Students on answers by two seeds and on layers, a dropped model, a baseline; the card's programs run without our
    code."""
    home = Home(tmp_path / "home").create()
    recipe = Recipe.model_validate(values_of_all(tiny_bert, write_asked(home.root / "table")))
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one["metrics"]["validation"]["squad_f1"] for one in result["models"]}
    assert {*models} == {"teacher", "half", "inner", "labels", "top-1", "half-onnx", "half-int8"}
    assert all(one["low"] <= one["value"] <= one["high"] for one in models.values())
    assert models["half-onnx"]["value"] == pytest.approx(models["half"]["value"])
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1  # for two students, two seeds
    folder = tmp_path / "model"
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "half")
    Tracker(home.own_tracking_uri, home.artifacts).download("answer-finder", str(number), folder)
    for snippet in snippets_of(folder, 2):
        command = [sys.executable, "-I", "-c", snippet]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout.strip(), snippet + done.stderr[-2000:]


def test_rows_of_a_file_are_answered(result: dict[str, Any], home: Home, tmp_path: Path) -> None:
    folder, columns = tmp_path / "model", asked(3, seed=4)
    Tracker(home.own_tracking_uri, home.artifacts).download("answer-finder", "champion", folder)
    rows = zip(columns["question"], columns["context"], strict=True)
    lines = "".join(json.dumps({"question": question, "context": context}) + "\n" for question, context in rows)
    (tmp_path / "rows.jsonl").write_text(lines)
    inputs = text_inputs(str(tmp_path / "rows.jsonl"), stdin=sys.stdin)
    table = predicted(folder, inputs)
    assert {"answer", "start", "end", "no_answer"} <= {*table.column_names} and table.num_rows == 6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"augmentation": {"masked_lm": "teacher"}}, "a replaced word may have another tag, or be the answer"),
        ({"task": {"name": "asked", "kind": "spans", "pair": None}}, "task.pair names no column, and asked needs"),
        ({"task": {"name": "asked", "kind": "spans", "pair": "context", "metrics": ["accuracy"]}}, "are squad_f1"),
        ({"task_distillation": {"prediction": {"patience": {}}}}, "remove patience"),
        (
            {"candidates": [TRIMMED, {"name": "b", "by": "weight-pruning", "from": "a", "signal": "teacher"}]},
            "b is made from a, whose tokenizer is not its teacher's, so their answers to pieces cannot be compared",
        ),
        ({"ensemble": {"teachers": [{"model": "other"}]}}, "whose answers are not mixed; remove the section ensemble"),
    ],
)
def test_what_does_not_fit_answers_is_refused_in_a_sentence(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values_for(tmp_path, tmp_path) | changes)


def test_resampled_rows_are_whole_passages() -> None:
    from tasks.metrics.of_answers import SQUAD_F1, coded_answer
    from tasks.scoring.quality.resampling import resampled

    right, wrong = coded_answer(0, 4, "good"), coded_answer(0, 4, "poor")
    truth_N, found_N = np.asarray([right] * 6), np.asarray([right] * 3 + [wrong] * 3)
    by_passage = resampled(SQUAD_F1, found_N[None], truth_N, 50, 0, np.asarray([0, 0, 0, 1, 1, 1]))
    assert {*by_passage.ravel().tolist()} <= {0.0, 0.5, 1.0}
