"""Encoders that find hidden words, from a table of documents to a pulled one: teacher, a student on its kept answers, a
model with dropped layers, a baseline, gate, registration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from safetensors.numpy import load_file

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tests.flows.test_compress import FAST
from tests.forked.strangers import print_of_program
from tests.task_types.masked_words.tables import write_documents, write_encoder

TRAINED: dict[str, Any] = {**FAST, "steps": 60, "learning_rate": 5e-3, "batch_size": 8, "max_length": 32}
EXPORTED: dict[str, Any] = {"exports": {"of": ["half"], "ways": ["dynamic"], "tolerance": 0.2, "min_speedup": 0}}


def values_for(model: Path, table: Path) -> dict[str, Any]:
    """Return a recipe with a student, a model with dropped layers that learns from the teacher, and a baseline."""
    return {
        "name": "hidden",
        "task": {"name": "hidden", "kind": "masked-words"},
        "data": {"source": str(table), "selection_rows": 10, "validation_share": 0.2},
        "teacher": {"model": str(model), **TRAINED, "floor": 1e9},
        "task_distillation": {"prediction": {**TRAINED, "steps": 6, "temperature": 1.0}, "kept_words": 16},
        "students": [
            {"name": "half", "layers": 2, "stages": []},
            {"name": "labels", "layers": 2, "signal": "labels", "role": "baseline"},
        ],
        "layer_dropping": {
            "strategies": ["top"],
            "drop": [1],
            "signal": "teacher",
            "temperature": 1.0,
            **TRAINED,
            "steps": 4,
        },
        "scoring": {"resamples": 100, "max_length": 32},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "masked_perplexity", "at_most": 1e12}],
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


@pytest.mark.parametrize("exported", [{}, pytest.param(EXPORTED, marks=pytest.mark.slow)], ids=["models", "graphs"])
def test_an_encoder_is_distilled_and_finds_hidden_words(
    prefect_server: None,
    engines_here: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    exported: dict[str, Any],
) -> None:
    home, model = Home(tmp_path / "home").create(), write_encoder(tmp_path / "encoder")
    values = values_for(model, write_documents(tmp_path / "table")) | exported
    values["gate"]["register_as"] = name = "finder-of-graphs" if exported else "finder"
    recipe = Recipe.model_validate(values)
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    graphs = ["half-onnx", "half-int8"] if exported else []
    assert {*models} == {"teacher", "half", "labels", "top-1", *graphs}
    found = {name: one["metrics"]["validation"]["masked_perplexity"] for name, one in models.items()}
    assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
    assert found["teacher"]["value"] < 40  # of some 90 pieces; the digits of numbers are chance
    if exported:
        assert found["half-onnx"]["value"] == pytest.approx(found["half"]["value"], rel=1e-4)
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["kept_ids"].shape == (stored["counts"].sum(), 16)
    page = next(home.root.rglob("report.html")).read_text()
    assert "Hidden words of held-out documents" in page and ">None<" not in page
    folder = tmp_path / "model"
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "half")
    Tracker(home.own_tracking_uri, home.artifacts).download(name, str(number), folder)
    (one,) = predict_texts(folder, ["the good film 731 was very good ."])
    assert one["hidden_tokens"] >= 1 and one["masked_perplexity"] > 1  # type: ignore[operator]
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card
    written = list[str]()
    programs = card.split("```python\n")[1:]
    for snippet in programs[: 2 if exported else 1]:  # of the checkpoint, and of its fastest graph
        exec(compile(snippet.split("```")[0].replace("FOLDER", str(folder)), "card", "exec"), {})
        written.append(capsys.readouterr().out.strip())
    assert all(written)
    if exported:
        assert 0 < float(written[1]) < 1
        alone = programs[1].split("```")[0].replace("FOLDER", str(folder))
        assert print_of_program(alone, tmp_path) == written[1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"augmentation": {"masked_lm": "teacher"}}, "a replaced word may"),
        ({"task": {"name": "a", "kind": "masked-words", "pair": "other"}}, "leave pair out"),
        ({"task": {"name": "a", "kind": "masked-words", "metrics": ["accuracy"]}}, "legal are masked_perplexity"),
        ({"task_distillation": {"prediction": {"patience": {}}}}, "remove patience"),
        ({"task_distillation": {"prediction": {"formula": "paper"}}}, "legal are default, reverse, jensen-shannon"),
        ({"general_distillation": {}, "corpus": {"source": "a"}}, "type masked-words; remove the section general_dist"),
        ({"ensemble": {"teachers": [{"model": "another"}]}}, "are not mixed; remove the section ensemble"),
        (
            {"gate": {"split": "validation", "criteria": [{"metric": "token_ms", "at_most": 1}]}},
            "unknown metric 'token_ms'",
        ),
    ],
)
def test_methods_without_sense_are_refused_in_a_sentence(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values_for(tmp_path, tmp_path) | changes)
