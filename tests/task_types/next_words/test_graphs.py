"""Graphs that continue texts: as likely as in the checkpoint, word by word as at once, and the same words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.catalog import TaskSpec
from tasks.errors import ModelError
from tasks.report.tables.exports_section import snippet
from tasks.scoring.continuing import StepReader, continued_texts
from tasks.scoring.memory import bytes_of_a_token
from tasks.scoring.onnx_models import OnnxModel
from tasks.scoring.predict import predict_texts
from tasks.task_types.stored import STATED
from tasks.training.data.rows import load_tokenizer
from tests.exports.test_exports import do
from tests.forked.strangers import print_of_program
from tests.scoring.small import write_classifier
from tests.task_types.next_words.tables import documents, write_decoder

EXPORT = {"opset": 20, "parity_rows": 6, "max_length": 32, "task_type": "next-words"}
QUANTIZE = {
    "ways": ["dynamic"],
    "calibration_rows": 4,
    "seed": 0,
    "task_type": "next-words",
    "metric": "word_perplexity",
    "max_length": 32,
    "reduce_range": False,
}


def write_rows(folder: Path) -> Path:
    """Write splits of documents, with the counts by which they are judged."""
    folder.mkdir()
    for split, seed in (("train", 0), ("selection", 1)):
        texts = documents(8, seed)
        columns: dict[str, Any] = {"id": range(8), "text": texts, "pair": pa.nulls(8, pa.string())}
        pq.write_table(pa.table({**columns, "label": ["1 1 0.5"] * 8}), folder / f"{split}.parquet")
    return folder


def as_trained(folder: Path) -> None:
    """State of a decoder what a training states: its task type, and a token to pad with."""
    load_tokenizer(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {STATED: "next-words"}))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama whose embeddings are also its last layer, its graph, and that in int8."""
    place = tmp_path_factory.mktemp("writer")
    write_decoder(place / "model", layers=2, tie_word_embeddings=True, initializer_range=0.3)
    as_trained(place / "model")
    write_rows(place / "rows")
    full = do("export", place / "full" / "output", EXPORT, model=place / "model", rows=place / "rows")
    assert full["made"] and full["largest_difference"] < 1e-4 and full["equal_answers"] == 1 and full["rows"] == 6
    small = do("quantize", place / "small" / "output", QUANTIZE, export=place / "full" / "output", rows=place / "rows")
    assert small["made"] and small["loss"] == pytest.approx(small["score"] / small["fp32"]["score"] - 1)
    return place


def test_a_graph_continues_texts_as_its_checkpoint_does(place: Path) -> None:
    texts = ["the good film", "the", "the bad plot 31 was very bad .\nthe fine song"]
    written = continued_texts(place / "model", texts, 12)
    assert written == continued_texts(place / "full/output", texts, 12) and len(set(written)) == 3
    assert len(continued_texts(place / "small/output", texts, 12)) == 3
    with pytest.raises(ModelError, match="more than the 128 that the model reads; ask for fewer new tokens"):
        continued_texts(place / "full/output", texts, 127)
    with pytest.raises(ModelError, match="more than the 128 that the model reads"):
        continued_texts(place / "model", texts, 127)


def likeliest_words(folder: Path, text: str, count: int) -> list[int]:
    """Return the words by which a graph continues a text, without any rule."""
    model, words = OnnxModel(folder), list[int]()
    reader, following = StepReader(model), model.tokenizer.encode(model.frame.begin + text).ids
    for _ in range(count):
        words.append(int(reader.next_word(following).argmax()))
        following = words[-1:]
    return words


@pytest.mark.parametrize(
    "setting",
    [
        "repetition_penalty",
        "no_repeat_ngram_size",
        "suppress_tokens",
        "eos_token_id",
        "forced_eos_token_id",
        "min_new_tokens",
        "min_length",
    ],
)
def test_a_graph_follows_the_settings_of_its_checkpoint(setting: str, place: Path, tmp_path: Path) -> None:
    """Each changes the text, in the graph as in the checkpoint, and in the program on the card, which runs without our
    code; models that chat state several ends, and often a penalty."""
    texts, model = ["the good film", "the", "a bad plot"], shutil.copytree(place / "model", tmp_path / "model")
    words = likeliest_words(place / "full/output", texts[0], 4)
    lengths = {"min_new_tokens": 5, "min_length": 5 + len(load_tokenizer(model)(texts[0])["input_ids"])}
    value = {
        **lengths,
        "repetition_penalty": 1.4,
        "no_repeat_ngram_size": 1,
        "suppress_tokens": words[:1],
        "eos_token_id": [0, words[3]],
        "forced_eos_token_id": words[0] + 1,
    }[setting]
    stated = json.loads((model / "generation_config.json").read_text())
    ends = {"eos_token_id": [0, words[1]]} if setting in lengths else {}  # a text that would end at once
    (model / "generation_config.json").write_text(json.dumps({**stated, **ends, setting: value}))
    facts = do("export", tmp_path / "full" / "output", EXPORT, model=model, rows=place / "rows")
    assert facts["made"], facts
    written = continued_texts(model, texts, 20)
    assert written == continued_texts(tmp_path / "full/output", texts, 20)
    assert written != continued_texts(place / "model", texts, 20)
    (tmp_path / "full/output").rename(tmp_path / "onnx")
    shutil.copy(tmp_path / "onnx/tokenizer.json", tmp_path)
    program = snippet(TaskSpec(name="texts", kind="next-words"), "model.onnx").replace("FOLDER", str(tmp_path))
    assert print_of_program(program.replace("some text", texts[0]), tmp_path) == texts[0] + written[0]


def test_a_text_is_as_likely_in_a_graph(place: Path) -> None:
    texts = documents(3, 5)  # several windows each
    ours, theirs = (predict_texts(place / folder, texts, max_length=32) for folder in ("full/output", "model"))
    for one, other in zip(ours, theirs, strict=True):
        assert one["tokens"] == other["tokens"] and one["log_likelihood"] == pytest.approx(other["log_likelihood"])


def test_what_was_read_is_remembered_by_token(place: Path) -> None:
    """Two layers with two heads of 8 for keys and as many for values; a text in parts is the text at once."""
    model = OnnxModel(place / "full/output")
    assert bytes_of_a_token(model.memory) == 2 * 2 * 2 * 8 * 4
    ids = model.encode(["the good film was very"], None, 32)["input_ids"][0].tolist()
    parts, whole = StepReader(model), StepReader(model)
    parts.next_word(ids[:3])
    assert parts.memory["past_1_value"].shape == (1, 2, 3, 8)
    ours_V, theirs_V = parts.next_word(ids[3:]), whole.next_word(ids)
    assert ours_V == pytest.approx(theirs_V, abs=1e-5)
    assert np.abs(StepReader(model).next_word(ids[3:]) - theirs_V).max() > 0.1  # it is the memory that makes them equal


def test_the_last_layer_is_in_int8_though_it_is_also_the_table(place: Path) -> None:
    graph = onnx.load(place / "small/output/model_int8.onnx").graph
    large = {weight.name for weight in graph.initializer if len(weight.raw_data) > 5000}
    products = [node for node in graph.node if node.op_type == "MatMulInteger" and large & set(node.input)]
    assert len(large) == 2 and len(products) == 1


def test_other_models_continue_no_texts(tmp_path: Path) -> None:
    write_classifier(tmp_path / "model")
    with pytest.raises(ModelError, match="of type classification continues no texts; leave --new-tokens out"):
        continued_texts(tmp_path / "model", ["a"], 3)


def test_a_memory_of_a_window_is_refused_in_a_sentence(tmp_path: Path) -> None:
    write_decoder(tmp_path / "model", "mistral", layers=1, sliding_window=8)
    as_trained(tmp_path / "model")
    write_rows(tmp_path / "rows")
    facts = do("export", tmp_path / "full" / "output", EXPORT, model=tmp_path / "model", rows=tmp_path / "rows")
    assert not facts["made"] and "a model of type mistral remembers other things" in facts["because"]
