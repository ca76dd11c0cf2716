"""Language models from a table of documents to a pulled one that continues a text: teacher, a student on its kept
answers, a model with dropped layers, a baseline, gate, registration."""

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
from tests.flows.test_compress import FAST
from tests.task_types.next_words.tables import write_decoder, write_documents, write_questions_about_words

TRAINED: dict[str, Any] = {**FAST, "steps": 60, "learning_rate": 5e-3, "batch_size": 8, "max_length": 32}


EXPORTED: dict[str, Any] = {"exports": {"of": ["half"], "ways": ["dynamic"], "tolerance": 0.2, "min_speedup": 0}}


def values_for(model: Path, table: Path) -> dict[str, Any]:
    """Return a recipe with a student, a model with dropped layers that learns from the teacher, and a baseline."""
    return {
        "name": "words",
        "task": {"name": "words", "kind": "next-words", "metrics": ["word_perplexity", "token_perplexity"]},
        "data": {"source": str(table), "selection_rows": 10, "validation_share": 0.2},
        "teacher": {"model": str(model), **TRAINED, "floor": 1e9},
        "task_distillation": {"prediction": {**TRAINED, "steps": 6, "temperature": 1.0}, "kept_words": 16},
        "students": [
            {"name": "half", "layers": 2, "stages": []},
            {"name": "labels", "layers": 2, "signal": "labels", "role": "baseline"},
        ],
        "layer_dropping": {
            "strategies": ["contribution"],
            "drop": [1],
            "signal": "teacher",
            "token": "mean",
            "temperature": 1.0,
            **TRAINED,
            "steps": 4,
        },
        "scoring": {"resamples": 100, "max_length": 32},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {
            "split": "validation",
            "criteria": [
                {"metric": "word_perplexity", "at_most": 1e12},
                {"metric": "retained", "at_least": 0.01},
                {"metric": "token_bytes", "at_most": 0.5, "of_teacher": True},
            ],
            "register_as": "writer",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


def require_shares(result: dict[str, Any], home: Home, page: str) -> None:
    """What a student retains of its teacher is its teacher's perplexity over its own, wherever it is told."""
    models = {one["name"]: one for one in result["models"]}
    teacher, half = (models[name]["metrics"]["validation"]["word_perplexity"]["value"] for name in ("teacher", "half"))
    share = models["half"]["retained"]["validation"]
    assert share["value"] == pytest.approx(teacher / half) and 0 < share["low"] <= share["value"] <= share["high"]
    said = "Of the teacher: the teacher&#39;s word_perplexity over the model&#39;s, as less of it is better."
    assert said in page and f"{100 * share['value']:.1f} %" in page
    entry = next(one for one in result["registered"] if one["candidate"] == "half")
    assert any(one.startswith("retained ") and one.endswith(": met") for one in entry["reasons"])
    logged = Tracker(home.own_tracking_uri, home.artifacts).client.search_runs(["0", "1", "2"], "tags.role = 'student'")
    assert [one.data.metrics["retained_pct"] for one in logged] == [pytest.approx(100 * share["value"])]


def require_answers_to_questions(result: dict[str, Any], home: Home, page: str, graphs: list[str]) -> None:
    """All models but graphs, and all seeds, answered questions that none has learned; it is told everywhere by their
    own metric, and beside it what guessing scores."""
    models = {one["name"]: one for one in result["models"]}
    judged = {name: one["judged"]["asked"] for name, one in models.items() if name not in graphs}
    assert all(models[name]["judged"] == {} for name in graphs)
    for one in judged.values():
        score = one["metrics"]["accuracy"]
        assert one["headline"] == "accuracy" and one["rows"] == 24 and one["drop"] is one["means"]["drop"] is None
        assert 0 <= score["low"] <= score["value"] <= score["high"] <= 1 and 1 / 3 < one["chance"] < 1 / 2
    assert [len(judged[name]["per_seed"]["accuracy"]) for name in ("teacher", "half", "labels")] == [1, 2, 1]
    teacher, half = (judged[name]["metrics"]["accuracy"]["value"] for name in ("teacher", "half"))
    assert (
        judged["half"]["difference"]["value"] == pytest.approx(half - teacher) and judged["half"]["retained"]["value"]
    )
    assert "<caption>asked (accuracy)</caption>" in page and page.count('<th scope="row">guessing</th>') == 1
    kept = Tracker(home.own_tracking_uri, home.artifacts).client.get_run(result["run"])
    assert "judge/asked/score" in kept.data.metrics and "judge/asked/drop_pts" not in kept.data.metrics
    assert "| asked (accuracy) | teacher |" in kept.data.tags["mlflow.note.content"]


@pytest.mark.parametrize("exported", [{}, pytest.param(EXPORTED, marks=pytest.mark.slow)], ids=["models", "graphs"])
def test_a_language_model_is_distilled_and_continues_a_text(
    prefect_server: None,
    engines_here: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    exported: dict[str, Any],
) -> None:
    home, model = Home(tmp_path / "home").create(), write_decoder(tmp_path / "decoder")
    values = values_for(model, write_documents(tmp_path / "table")) | exported
    values["students"][0]["seeds"] = [0, 1]
    asked = {"source": str(write_questions_about_words(tmp_path / "asked")), "kind": "choices"}
    values["data"]["packed"] = not exported
    values["data"]["judge"] = {"asked": asked | {"text": "question", "pair": "{choices[]}"}}
    recipe = Recipe.model_validate(values)
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    graphs = ["half-onnx", "half-int8"] if exported else []
    assert {*models} == {"teacher", "half", "labels", "contribution-1", *graphs}
    found = {name: one["metrics"]["validation"]["word_perplexity"] for name, one in models.items()}
    assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
    assert found["half"]["value"] < 20  # each number alone has three digits, of which most are chance
    # a token is remembered by keys and values of two heads of 8 in each of the layers, in float32
    assert [models[name]["token_bytes"] for name in ("teacher", "half", *graphs)] == [512, 256, *(256 for _ in graphs)]
    assert all(one["token_ms"] > 0 and one["token_speedup"] > 0 for one in models.values())
    made = [one["name"] for one in result["stages"]]
    assert made.count("pack-rows") == (0 if exported else 1)
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["kept_ids"].dtype == np.int16 and stored["kept_logs"].dtype == np.float16
    assert stored["kept_ids"].shape == (stored["counts"].sum(), 16)
    page = next(home.root.rglob("report.html")).read_text()
    assert "Likelihood of held-out documents" in page and ">None<" not in page
    require_answers_to_questions(result, home, page, graphs)
    require_shares(result, home, page)
    folder = tmp_path / "model"
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "half")
    Tracker(home.own_tracking_uri, home.artifacts).download("writer", str(number), folder)
    one, other = predict_texts(folder, ["the good film 731 was very good .", "good was the . film very 731 good"])
    assert one["token_perplexity"] < other["token_perplexity"]  # type: ignore[operator]
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: text-generation" in card and "| memory of a token | 256 bytes | counted |" in card
    assert "| share of the teacher, validation (the teacher's word_perplexity over the model's, as less of it" in card
    assert "| accuracy, judging set asked, 24 rows" in card and "| accuracy of guessing, judging set asked, 24" in card
    written = list[str]()
    programs = card.split("```python\n")[1:]
    for snippet in programs[: 2 if exported else 1]:  # of the checkpoint, and of its fastest graph
        exec(compile(snippet.split("```")[0].replace("FOLDER", str(folder)), "card", "exec"), {})
        written.append(capsys.readouterr().out.strip())
    assert all(one.startswith("some text") and len(one) > len("some text") for one in written)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"augmentation": {"masked_lm": "teacher"}}, "a replaced word may"),
        ({"task": {"name": "words", "kind": "next-words", "pair": "other"}}, "leave pair out"),
        ({"task": {"name": "words", "kind": "next-words", "metrics": ["accuracy"]}}, "legal are word_perplexity"),
        ({"task": {"name": "words", "kind": "next-words", "group": "page"}}, "remove group"),
        ({"task_distillation": {"prediction": {"patience": {}}}}, "remove patience"),
        ({"task_distillation": {"prediction": {"formula": "paper"}}}, "legal are default, reverse, jensen-shannon"),
        ({"pretraining": {"layers": 2}, "corpus": {"source": "a"}}, "remove the section pretraining"),
        ({"general_distillation": {}, "corpus": {"source": "a"}}, "remove the section general_distillation"),
        (
            {"exports": {"formats": ["onnx", "executorch"]}},
            "no memory, so they write no texts, .* remove executorch",
        ),
        ({"ensemble": {"teachers": [{"model": "another"}]}}, "are not mixed; remove the section ensemble"),
    ],
)
def test_methods_without_sense_are_refused_in_a_sentence(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values_for(tmp_path, tmp_path) | changes)
