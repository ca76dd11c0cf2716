"""Graphs of models that read and write: as near as their checkpoints, read word by word, and what they write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from flows.branches.export import fits_seven_bits
from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.exports.jobs import export, quantize
from tasks.exports.package import copy_beside
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.distillation import Generation
from tasks.recipe.judging import Exports
from tasks.recipe.slices import ExportSlice, QuantizeSlice, RowsSlice
from tasks.report.tables.exports_section import snippet
from tasks.scoring.onnx_models import OnnxModel
from tasks.scoring.predict import outputs_of, predict_texts
from tasks.scoring.speed.speed import opened
from tasks.scoring.writing.graph_writer import GraphWriter
from tasks.task_types.stored import STATED
from tests.forked.strangers import print_of_program
from tests.task_types.seq2seq.tables import (
    sentences,
    write_opus_translator,
    write_sentences,
    write_translator,
)

SOURCES = sentences(6)[0]
GENERATION = Generation(beams=3, length_penalty=1.5, max_length=12)
FULL = ExportSlice(task_type="seq2seq", max_length=32)
SMALL = QuantizeSlice(
    task_type="seq2seq",
    max_length=32,
    metric="chrf",
    ways=("dynamic", "static"),
    generation=GENERATION,
    reduce_range=fits_seven_bits(Exports()),
)


def job(folder: Path, knobs: Any, **inputs: Path) -> Job:
    """A job that writes a folder of its own."""
    folder.mkdir()
    order = {"job": "test", "knobs": knobs.model_dump(mode="json"), "output": str(folder), "checkpoints": str(folder)}
    return Job({**order, "inputs": {name: str(one) for name, one in inputs.items()}}, silent=True)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences, some of them held back."""
    folder = tmp_path_factory.mktemp("rows")
    knobs = RowsSlice(task=TaskSpec(name="texts", kind="seq2seq"), selection_rows=4, purge=False)
    prepare_rows(write_sentences(folder / "table", 40), knobs, folder / "rows")
    return folder / "rows"


@pytest.fixture(scope="module")
def exported(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path, Any]]:
    """Returns a translator of a family, its graph and the facts of its export, which is done once."""

    @cache
    def export_family(family: str) -> tuple[Path, Path, Any]:
        place = tmp_path_factory.mktemp(family)
        folder = write_translator(place / "model", family, layers=1)
        if family == "marian":  # with larger weights its texts depend on their sources
            weights = {name: 2 * value for name, value in load_file(folder / "model.safetensors").items()}
            save_file(weights, folder / "model.safetensors", {"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, STATED: "seq2seq"}))
        return folder, place / "graph", export(job(place / "graph", FULL, model=folder, rows=rows))

    return export_family


@pytest.mark.parametrize(
    "family", ["t5", pytest.param("bart", marks=pytest.mark.slow), pytest.param("marian", marks=pytest.mark.slow)]
)
def test_a_graph_writes_what_its_checkpoint_writes(
    family: str, exported: Callable[[str], tuple[Path, Path, Any]], rows: Path, tmp_path: Path
) -> None:
    """One file reads the source and writes every word, alone or in several beams; the same in int8."""
    (folder, graph, facts), small = exported(family), tmp_path / "small"
    assert facts["made"] and facts["equal_answers"] == 1.0 and 0 < facts["largest_difference"] < 1e-4, facts
    assert facts["rows"] == 4
    ours, theirs = (
        outputs_of(one, SOURCES, None, 32, task_type="seq2seq", generation=GENERATION)["written"]
        for one in (graph, folder)
    )
    assert np.array_equal(ours, theirs) and len(set(theirs)) > 1, (ours, theirs)
    by_card = [one["written"] for one in predict_texts(graph, SOURCES)]
    assert by_card == [one["written"] for one in predict_texts(folder, SOURCES)]

    facts = quantize(job(small, SMALL, export=graph, rows=rows))
    assert facts["made"] and {*facts["ways"]} == {"dynamic", "static"}, facts
    assert all("because" not in way and 0 < way["largest_difference"] < 1 for way in facts["ways"].values()), facts
    assert (small / "model_int8.onnx").stat().st_size < 0.6 * (graph / "model.onnx").stat().st_size
    ids = np.full((2, 5), 7)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    timed = opened(graph, 1, "seq2seq").call(inputs)()
    assert timed.shape == (2,)


RULES: dict[str, Any] = {"first": 70, "last": 76, "no_repeat": 2, "repetition_penalty": 3.0}
NO_RULE = {"never": [], "first": None, "last": None, "no_repeat": 0, "repetition_penalty": 1.0}


@pytest.mark.parametrize("names", [*([name] for name in NO_RULE), [*NO_RULE]], ids="+".join)
def test_the_program_on_a_card_follows_every_rule(
    names: list[str], exported: Callable[[str], tuple[Path, Path, Any]], tmp_path: Path
) -> None:
    """In a process without our code it writes what ``limbeck predict`` does, which is another text without the rules
    that are named."""
    _, graph, _ = exported("t5")
    card, written = json.loads((graph / "onnx.json").read_text()), dict[str, str]()
    likeliest = int(
        GraphWriter(model := OnnxModel(graph), model.encode(SOURCES[:1], None, 32)).next_words([0]).argmax()
    )
    rules = {name: value for name, value in {**RULES, "never": [likeliest]}.items() if name in names}
    for way, changes in (("with", rules), ("without", {})):
        shutil.copytree(graph, tmp_path / way / "onnx")
        changed = card | {"writing": card["writing"] | NO_RULE | {"most": 9} | changes}
        (tmp_path / way / "onnx/onnx.json").write_text(json.dumps(changed))
        shutil.copy(graph / "tokenizer.json", tmp_path / way)
        (written[way],) = (one["written"] for one in predict_texts(tmp_path / way / "onnx", SOURCES[:1]))
    assert written["with"] != written["without"]
    program = snippet(TaskSpec(name="texts", kind="seq2seq"), "model.onnx").replace("FOLDER", str(tmp_path / "with"))
    assert print_of_program(program.replace('"some text"', json.dumps(SOURCES[0])), tmp_path) == written["with"]


def test_what_a_graph_cannot_follow_is_told_and_no_error(rows: Path, tmp_path: Path) -> None:
    folder = write_translator(tmp_path / "model", "t5", layers=1)
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "encoder_repetition_penalty": 1.3}))
    facts = export(job(tmp_path / "graph", FULL, model=folder, rows=rows))
    assert facts == {"made": False, "because": facts["because"]} and "encoder_repetition_penalty" in facts["because"]
    assert not (tmp_path / "graph" / "model.onnx").exists()


def test_pieces_of_two_languages_are_one_tokenizer(tmp_path: Path) -> None:
    """A Marian translator of the hub has no ``tokenizer.json``; the one that is made of its files reads the
    source language alike, also signs that it has not, and writes both."""
    from transformers import AutoTokenizer

    folder = write_opus_translator(tmp_path / "opus")
    (tmp_path / "export").mkdir()
    copy_beside(folder, tmp_path / "export")
    theirs, ours = AutoTokenizer.from_pretrained(folder), Tokenizer.from_file(str(tmp_path / "export/tokenizer.json"))
    assert not theirs.is_fast
    further = [">>en<< Film gut", "", "  Film   gut ", "xyz ß 漢字 😀 film", "a\nb\tc"]
    for text in [*sentences(40, seed=5)[0], *further]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    for text in sentences(40, seed=5)[1]:
        ids = theirs(text_target=text)["input_ids"]
        own = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids).strip() == own.strip()


def test_pieces_without_likelihoods_are_refused(tmp_path: Path) -> None:
    folder = write_opus_translator(tmp_path / "opus")
    ids = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps({piece: 2 * number for piece, number in ids.items()}))
    with pytest.raises(ModelError, match="pieces of another kind than Marian's, and no tokenizer.json is made"):
        copy_beside(folder, tmp_path)
