"""Entities from a table to a pulled model: teacher, students on its answers and on its layers, a baseline, exports,
gate, registration, and predictions with places in the text."""

from __future__ import annotations

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
from tests.forked.strangers import ask_stranger
from tests.task_types.shown.cards import snippets_of
from tests.task_types.tokens.tables import write_tagged

TRAINED: dict[str, Any] = {**FAST, "steps": 60, "learning_rate": 5e-3, "batch_size": 16, "max_length": 12}
"""Twelve tokens: longer sentences are read in windows."""


def values_for(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe of stages that ask the type: students on answers and on layers, and a baseline."""
    return {
        "name": "entities",
        "task": {"name": "works", "kind": "tokens", "metrics": ["entity_f1", "entity_precision", "entity_recall"]},
        "data": {"source": str(table), "selection_rows": 30, "validation_share": 0.2},
        "teacher": {"model": str(bert), **TRAINED},
        "task_distillation": {"intermediate": {**TRAINED, "steps": 2}, "prediction": {**TRAINED, "steps": 12}},
        "students": [
            {"name": "half", "layers": 2, "seeds": [0, 1], "stages": []},
            {"name": "inner", "layers": 2, "stages": ["intermediate"]},
            {"name": "labels", "layers": 2, "signal": "labels", "role": "baseline"},
        ],
        "scoring": {"resamples": 100, "max_length": 12},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": {"of": ["half"], "parity_rows": 16, "tolerance": 1.0},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "entity_f1", "at_least": 0.0}],
            "register_as": "entity-finder",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path) -> dict[str, Any]:
    """One run of every stage."""
    recipe = Recipe.model_validate(values_for(tiny_bert, write_tagged(home.root / "table")))
    return run_recipe(recipe, home=home, json_path=home.root / "out.json")


def test_every_model_is_scored_by_entities(result: dict[str, Any]) -> None:
    scores = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert {*scores} == {"teacher", "half", "inner", "labels", "half-onnx", "half-int8"}
    assert scores["teacher"]["entity_f1"]["value"] > 0.8  # the tags are learned
    for metrics in scores.values():
        assert {*metrics} == {"entity_f1", "entity_precision", "entity_recall"}
        assert metrics["entity_f1"]["low"] <= metrics["entity_f1"]["value"] <= metrics["entity_f1"]["high"]
    assert scores["half-onnx"]["entity_f1"]["value"] == pytest.approx(scores["half"]["entity_f1"]["value"])
    graph = next(model for model in result["models"] if model["name"] == "half-onnx")
    assert graph["export"]["largest_difference"] < 1e-3


def test_the_teacher_answers_once_for_all_students(result: dict[str, Any], home: Home) -> None:
    assert [stage["name"] for stage in result["stages"]].count("answer-rows") == 1
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["logits"].shape == (stored["counts"].sum(), 5) and len(stored["counts"]) == len(stored["ids"])


def test_predictions_are_stored_by_word(result: dict[str, Any], home: Home) -> None:
    folders = {file.parent for file in home.root.rglob(FILE) if file.parent.name != "evaluation"}
    found = [one for folder in folders for one in read_predictions(folder)]
    assert found
    for one in found:
        counts = [len(str(tags).split()) for tags in one.predictions_N]
        assert counts == [len(logits) for logits in one.outputs["logits"]] and max(counts) > 9


def test_the_page_tells_entities_by_type_and_shows_disagreements(result: dict[str, Any], home: Home) -> None:
    page = next(home.root.rglob("report.html")).read_text()
    assert "F1 of FOOD" in page and "sentences with an illegal sequence of tags" in page and ">None<" not in page
    apart = next(one["inspection"]["apart"] for one in result["models"] if one["name"] == "half")
    assert apart["counts"]["rows"] == 60
    # its students find the teacher's very entities; how others are shown: tests/task_types/test_views.py
    assert not apart["counts"]["differ"] and "Different entities" not in page


def test_a_pulled_model_and_its_graphs_find_entities_in_written_text(
    result: dict[str, Any], home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    Tracker(home.own_tracking_uri, home.artifacts).download("entity-finder", "champion", folder)
    text = "It was a  meal, truly good."
    answers = [predict_texts(place, [text]) for place in (folder, folder / "onnx")]
    for (answer,) in answers:
        for entity in answer["entities"]:
            assert {*entity} == {"start", "end", "text", "type", "score"}
            assert text[entity["start"] : entity["end"]] == entity["text"] and 0 < entity["score"] <= 1
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card
    # the checkpoint's tells words, that of the fastest graph the places of pieces and their tags
    for snippet, told in zip(snippets_of(folder, 2), ("some", "0 1 "), strict=True):
        done = ask_stranger(snippet, folder=tmp_path)
        assert done.returncode == 0, snippet + done.stderr[-2000:]
        assert told in done.stdout, snippet


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"augmentation": {"masked_lm": "teacher"}}, "a replaced word may have another tag"),
        ({"task": {"name": "works", "kind": "tokens", "pair": "other"}}, "leave pair out"),
        ({"task": {"name": "works", "kind": "tokens", "metrics": ["accuracy"]}}, "legal are entity_f1"),
        ({"task_distillation": {"prediction": {"patience": {}}}}, "remove patience"),
    ],
)
def test_what_needs_one_answer_a_row_is_refused_in_a_sentence(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values_for(tmp_path, tmp_path) | changes)


def test_resampled_rows_are_sentences() -> None:
    from tasks.metrics.of_entities import ENTITY_F1
    from tasks.scoring.quality.resampling import resampled

    """Two sentences, of which one is right and one has each of its four entities wrong: a resample has the right one
    twice, the wrong one twice, or both, and no other share of the entities (1 of 5: F1 0.2)."""
    truth_N = np.asarray(["1 0", "1 0 1 0 1 0 1"])
    found_N = np.asarray(["1 0", "3 0 3 0 3 0 3"])
    found_R = resampled(ENTITY_F1, found_N[None], truth_N, 200, 0)
    assert found_R.shape == (1, 200) and {*np.round(found_R.ravel(), 9).tolist()} == {0.0, 0.2, 1.0}
    assert ENTITY_F1(found_N, truth_N) == pytest.approx(0.2)
