"""Translators from a table of sentences to a pulled one that writes: teacher, students of its kept answers, of its
texts and of the true ones, gate, registration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.ports.rows.row_files import read_split
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.recipe import Recipe
from tasks.scoring.predict import predict_texts
from tasks.training.writing.text_blocks import BEAMS_FILE, read_beams
from tests.flows.test_compress import FAST
from tests.task_types.seq2seq.tables import sentences, write_opus_translator, write_sentences, write_translator

TRAINED: dict[str, Any] = {**FAST, "steps": 120, "learning_rate": 3e-3, "batch_size": 16, "max_length": 48}

EXPORTS: dict[str, Any] = {
    "exports": {
        "formats": ["onnx", "int8"],
        "ways": ["dynamic"],
        "of": ["words"],
        "min_speedup": 0,
        "tolerance": 1.0,
    }
}


def values_for(model: Path, table: Path) -> dict[str, Any]:
    """Return a recipe with students of each signal."""
    small = {"layers": 2, "decoder_layers": 1}
    return {
        "name": "translators",
        "task": {"name": "translators", "kind": "seq2seq", "metrics": ["bleu", "chrf"]},
        "data": {"source": str(table), "selection_rows": 10, "validation_share": 0.15, "purge": False},
        "teacher": {"model": str(model), **TRAINED, "floor": -1.0},
        "generation": {"beams": 2, "max_length": 16},
        "task_distillation": {"prediction": {**TRAINED, "steps": 6, "temperature": 1.0}, "kept_words": 8},
        "students": [
            {"name": "words", **small},
            {"name": "texts", **small, "signal": "sequence"},
            {"name": "golds", **small, "signal": "labels", "role": "baseline"},
        ],
        "scoring": {"resamples": 100, "max_length": 48, "flops_length": 8},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 4},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "bleu", "at_least": 0.0}],
            "register_as": "translator",
        },
        "resources": {"cores": 2, "threads_alone": 1},
        "report": {"texts": False},
    }


def plain_bleu(folder: Path, home: Home) -> float:
    """Return the BLEU of the validation rows by transformers alone, which writes as the folder says."""
    from sacrebleu import corpus_bleu
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    stated = json.loads((folder / "generation_config.json").read_text())
    assert (stated["num_beams"], stated["max_new_tokens"]) == (2, 16)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    rows = read_split(next(home.root.rglob("validation.parquet")).parent, "validation")
    given = tokenizer(rows.texts, return_tensors="pt", padding=True)
    written = model.generate(input_ids=given.input_ids, attention_mask=given.attention_mask)
    texts = tokenizer.batch_decode(written, skip_special_tokens=True)
    return float(corpus_bleu([text.strip() for text in texts], [rows.labels]).score) / 100


@pytest.mark.parametrize("exported", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_translator_is_distilled_and_writes(
    exported: bool, prefect_server: None, engines_here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, folder = Home(tmp_path / "home").create(), tmp_path / "translator"
    model = write_opus_translator(folder, layers=3) if exported else write_translator(folder)
    values = values_for(model, write_sentences(tmp_path / "table")) | (EXPORTS if exported else {})
    recipe = Recipe.model_validate(values)
    result = run_recipe(recipe, home=home, json_path=home.root / "out.json")
    models = {one["name"]: one for one in result["models"]}
    graphs = [models.pop(name) for name in ("words-onnx", "words-int8") if exported]
    assert {*models} == {"teacher", "words", "texts", "golds"}
    for graph in graphs:
        assert graph["export"]["published"] and graph["latency_ms"] > 0, graph
        of_graph, own = (one["metrics"]["validation"]["bleu"]["value"] for one in (graph, models["words"]))
        assert of_graph == own or graph["name"].endswith("int8")
    found = {name: one["metrics"]["validation"]["bleu"] for name, one in models.items()}
    assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
    assert found["teacher"]["value"] > (0.2 if exported else 0.5)  # texts of smaller pieces are learned more slowly
    assert all(one["latency_ms"] > 0 for one in models.values())
    assert models["words"]["parameters"] < models["teacher"]["parameters"]
    assert models["words"]["flops"] < models["teacher"]["flops"]
    (file,) = home.root.rglob("answers.safetensors")
    stored = load_file(file)
    assert stored["kept_ids"].shape == (stored["counts"].sum(), 8)
    (written,) = home.root.rglob(BEAMS_FILE)
    assert all(len(texts) == 2 for texts in read_beams(written).values())
    analyses = [file.read_text() for file in home.root.rglob("inspection.json")]
    assert analyses and all("tok:13a|smooth:exp|version:" in text for text in analyses)
    page = next(home.root.rglob("report.html")).read_text()
    assert "Written texts" in page and ">None<" not in page
    kept = json.dumps(result, ensure_ascii=False) + page
    assert "\u2592" in kept and not any(text in kept for text in sentences(160)[1])
    folder = tmp_path / "model"
    number = next(one["version"] for one in result["registered"] if one["candidate"] == "words")
    Tracker(home.own_tracking_uri, home.artifacts).download("translator", str(number), folder)
    assert found["words"]["value"] == pytest.approx(plain_bleu(folder, home), abs=1e-12)
    (one,) = predict_texts(folder, sentences(1)[0])
    assert isinstance(one["written"], str)
    if exported:
        assert [one] == predict_texts(folder, sentences(1)[0], export_format="onnx")
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: text2text-generation" in card
    programs = card.split("```python\n")[1:]
    for snippet in programs[: 2 if exported else 1]:  # of the checkpoint, and of its graph
        capsys.readouterr()
        exec(compile(snippet.split("```")[0].replace("FOLDER", str(folder)), "card", "exec"), {})
        assert capsys.readouterr().out.strip(), snippet
