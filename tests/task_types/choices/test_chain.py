"""Choices from a table to a pulled model: teacher, students on its answers and on its layers, a dropped model, a
baseline, exports, gate, registration, and predictions of options."""

from __future__ import annotations

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
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tasks.scoring.predictions import FILE, read_predictions
from tests.flows.test_compress import FAST
from tests.task_types.choices.tables import THINGS, write_questions
from tests.task_types.shown.cards import snippets_of
from tests.task_types.shown.disagreements import shown_disagreement

TRAINED: dict[str, Any] = {**FAST, "steps": 40, "learning_rate": 5e-3, "batch_size": 8, "max_length": 16}
MARGINS = {"formula": "margins"}


def values_for(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe with a student that learns the teacher's answers and its summary tokens."""
    return {
        "name": "questions",
        "task": {"name": "about", "kind": "choices", "text": "context", "pair": "{choices[]}", "truncate": "first"},
        "data": {"source": str(table), "selection_rows": 30, "validation_share": 0.2},
        "teacher": {"model": str(bert), **TRAINED, "floor": 0.0},
        "task_distillation": {"prediction": {**TRAINED, "steps": 8, "patience": {}}},
        "students": [{"name": "half", "layers": 2, "stages": []}],
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "accuracy", "at_least": 0.0}],
            "register_as": "answerer",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


def values_of_all(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe of all stages that ask the type: also a student on layers, a dropped and two pruned models, a
    baseline, and graphs."""
    values = values_for(bert, table)
    inner = {"name": "inner", "layers": 2, "stages": ["intermediate"]}
    baseline = {"name": "labels", "layers": 2, "signal": "labels", "role": "baseline"}
    pruned = {"from": "teacher", "by": "neuron-pruning", "importance": "taylor", "rows": 40, "keep": 0.5}
    narrow = {"from": "teacher", "by": "width-pruning", "importance": "taylor", "rows": 40, "keep": 0.5}
    return values | {
        "task_distillation": {**values["task_distillation"], "intermediate": {**TRAINED, "steps": 2}},
        "students": [{**values["students"][0], "seeds": [0, 1]}, inner, baseline],
        "candidates": [{"name": "fewer", **pruned}, {"name": "narrow", **narrow}],
        "layer_dropping": {"strategies": ["contribution"], "drop": [2], **TRAINED, "steps": 2},
        "exports": {"of": ["half"], "parity_rows": 16, "tolerance": 1.0},
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path) -> dict[str, Any]:
    """One run of a student."""
    recipe = Recipe.model_validate(values_for(tiny_bert, write_questions(home.root / "table")))
    return run_recipe(recipe, home=home, json_path=home.root / "out.json")


def test_every_model_is_scored_by_questions(result: dict[str, Any]) -> None:
    scores = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert {*scores} == {"teacher", "half"}
    assert scores["teacher"]["accuracy"]["value"] > 0.5  # guessing is right in about a third
    for metrics in scores.values():
        assert metrics["accuracy"]["low"] <= metrics["accuracy"]["value"] <= metrics["accuracy"]["high"]


def test_the_teacher_scores_every_option_once(result: dict[str, Any], home: Home) -> None:
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["logits"].shape == (stored["counts"].sum(), 1) and len(stored["counts"]) == len(stored["ids"])
    assert {*stored["counts"].tolist()} == {2, 3, 4}


def test_predictions_are_stored_by_question(result: dict[str, Any], home: Home) -> None:
    folders = {file.parent for file in home.root.rglob(FILE) if file.parent.name != "evaluation"}
    found = [one for folder in folders for one in read_predictions(folder)]
    assert found
    for one in found:
        counts = [len(scores) for scores in one.outputs["logits"]]
        assert [int(str(choice).split("/")[1]) for choice in one.predictions_N] == counts


def test_the_page_shows_disagreements_with_the_texts_of_options(result: dict[str, Any], home: Home) -> None:
    page = next(home.root.rglob("report.html")).read_text()
    assert "Calibration of choices" in page and ">None<" not in page
    apart = next(one["inspection"]["apart"] for one in result["models"] if one["name"] == "half")
    assert apart["counts"]["rows"] == 60
    shown = shown_disagreement(result, home, "different options, the student")
    count = shown["label"].split("/")[1]
    assert any(f"of {count}: {thing} " in page for thing in THINGS)


def test_a_pulled_model_chooses_an_option(
    result: dict[str, Any], home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    Tracker(home.own_tracking_uri, home.artifacts).download("answerer", "champion", folder)
    (found,) = predict_texts(folder, ["the song was good"], ["a film\na song\na book"])
    scores = np.asarray(found["scores"], dtype=float)
    assert len(scores) == 3 and scores.sum() == pytest.approx(1) and found["choice"] == int(scores.argmax())
    assert found["option"] == ["a film", "a song", "a book"][int(scores.argmax())]
    assert "pipeline_tag: multiple-choice" in (folder / "README.md").read_text()
    (snippet,) = snippets_of(folder, 1)
    exec(compile(snippet, "card", "exec"), {})  # the whole of it in a clean process: below
    assert "option [0." in capsys.readouterr().out


@pytest.mark.slow
def test_every_method_works_on_options(
    prefect_server: None, engines_here: None, tiny_bert: Path, tmp_path: Path
) -> None:
    """Students on layers, dropped and pruned models, a baseline, graphs; snippets run without our code."""
    home = Home(tmp_path / "home").create()
    recipe = Recipe.model_validate(values_of_all(tiny_bert, write_questions(home.root / "table")))
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    named = {"teacher", "half", "inner", "labels", "contribution-2", "fewer", "narrow", "half-onnx", "half-int8"}
    assert {*models} == named
    accuracy = {name: one["metrics"]["validation"]["accuracy"]["value"] for name, one in models.items()}
    assert accuracy["half-onnx"] == pytest.approx(accuracy["half"])
    assert models["half-onnx"]["export"]["largest_difference"] < 1e-3
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1  # for three students, two seeds
    folder = tmp_path / "model"
    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "half")
    tracker.download("answerer", str(number), folder)
    asked = (["the song was good"], ["a film\na song\na book"])
    (ours,), (graphs,) = (
        predict_texts(place, *asked, export_format=one) for place, one in ((folder, None), (folder, "onnx"))
    )
    assert graphs["scores"] == pytest.approx(ours["scores"], abs=1e-3)
    for snippet in snippets_of(folder, 2):
        command = [sys.executable, "-I", "-c", snippet]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "option" in done.stdout, snippet + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"augmentation": {"masked_lm": "teacher"}}, "may change which option or text is right"),
        ({"task": {"name": "about", "kind": "choices"}}, "task.pair names no column"),
        ({"ensemble": {"teachers": [{"model": "other"}], "combine": "certainty"}}, "use combine: weights"),
        (
            {"candidates": [{"name": "a", "by": "quantization", "from": "teacher", "prediction": MARGINS}]},
            "formula is 'margins', and about is of type choices; legal are default, paper",
        ),
        ({"task": {"name": "about", "kind": "choices", "pair": "{a}", "metrics": ["f1"]}}, "legal are accuracy"),
        ({"task": {"name": "about", "kind": "choices", "pair": "{a}", "group": "b"}}, "remove group"),
        ({"task": {"name": "about", "kind": "choices", "pair": "{a[]} {b[]}"}}, "has several texts in two places"),
        ({"task": {"name": "about", "kind": "choices", "pair": "{a | }"}}, "names no column beside a bar"),
        ({"task": {"name": "about", "kind": "choices", "pair": "{a}", "labels": ["A", "B"]}}, "leave labels out"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values_for(tmp_path, tmp_path) | changes)
