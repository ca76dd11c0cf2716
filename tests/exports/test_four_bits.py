"""Graphs with weights in four bits: the formats four-bit and int8-table4."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tasks.exports.blockwise import BLOCK_WIDTH, in_blocks, split_gemms
from tasks.exports.package import files_for_a_model
from tasks.ports.files.onnx_safety import EXPORT_TAGS
from tasks.recipe.judging import Exports
from tasks.results.export_formats import BY_DEFAULT, EXPORT_FORMATS, ways_of
from tasks.scoring.onnx_models import FILES, OnnxModel, card_of
from tasks.scoring.predict import predict_texts
from tests.exports.test_exports import EXPORT, QUANTIZE, do, write_rows
from tests.exports.trained_answers import TRAINED, answers_of_both
from tests.forked.strangers import NOTHING_ELSE
from tests.scoring.small import logits_of, sentences, write_classifier

FORMATS_OF_FOUR_BITS: dict[str, list[str]] = {
    "int8-table4": ["dynamic-table4", "static-table4"],
    "four-bit": ["four-bit"],
}
DRAWN = np.random.default_rng(5)


def quantize(place: Path, name: str, output: Path, rows: str = "rows") -> dict[str, Any]:
    """Quantize the graph of a place to a format; return the facts."""
    knobs = QUANTIZE | {"ways": FORMATS_OF_FOUR_BITS[name]}
    return do("quantize-to-four-bits", output, knobs, export=place / "full" / "output", rows=place / rows)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of a width that 32 does not divide, rows, its graph, and that graph in both formats."""
    place = tmp_path_factory.mktemp("four-bits")
    write_classifier(place / "model", hidden_size=40, intermediate_size=72, vocab_size=600)
    write_rows(place / "rows", train=40, selection=30, validation=30)
    do("export", place / "full" / "output", EXPORT, model=place / "model", rows=place / "rows")
    for name in FORMATS_OF_FOUR_BITS:
        quantize(place, name, place / name / "output")
    return place


def graph_in(place: Path, name: str) -> onnx.ModelProto:
    return onnx.load(str(place / name / "output" / FILES["int8"]))


def kinds_of(model: onnx.ModelProto) -> dict[str, int]:
    """Return the number of operations of each kind."""
    kinds = [node.op_type for node in model.graph.node]
    return {kind: kinds.count(kind) for kind in kinds}


def dequantized(model: onnx.ModelProto, table: str) -> np.ndarray:
    """Return a table of four-bit codes as floats, in plain numpy: code times the scale of its block."""
    found = {one.name: one for one in model.graph.initializer}
    codes_VD, scales_VB = (numpy_helper.to_array(found[f"{table}{end}"]) for end in ("_Q4", "_scales"))
    scales_VD = np.repeat(scales_VB, BLOCK_WIDTH, axis=1)[:, : codes_VD.shape[1]]
    return np.asarray(codes_VD.astype(np.float32) * scales_VD)


# --- the operation --------------------------------------------------------------------------------------------------


def looked_up(table_VD: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, onnx.ModelProto]:
    """Return the rows of a table in four bits as ONNX Runtime finds them, and the graph."""
    kind = TensorProto.INT32 if ids.dtype == np.int32 else TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["rows"], name="look-up")],
        "tables",
        [helper.make_tensor_value_info("ids", kind, list(ids.shape))],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, [*ids.shape, table_VD.shape[1]])],
        [numpy_helper.from_array(table_VD, "table")],
    )
    made = in_blocks(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), ("Gather",))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"ids": ids})[0], made


@pytest.mark.parametrize("width", [16, 32, 40, 313, 384])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_table_in_four_bits_is_code_times_scale_at_any_width(width: int, kind: type) -> None:
    """Bit by bit; a row of zeros, as padding's, stays one, and the largest weight of a block is kept."""
    table_VD = DRAWN.standard_normal((21, width)).astype(np.float32)
    table_VD[0] = 0
    ids = np.array([[0, 20, 3, 3], [1, 0, 19, 7]], kind)
    found, made = looked_up(table_VD, ids)
    assert kinds_of(made) == {"GatherBlockQuantized": 1}
    assert np.array_equal(found, dequantized(made, "table")[ids]) and not found[0, 0].any()
    blocks = [slice(start, start + BLOCK_WIDTH) for start in range(0, width, BLOCK_WIDTH)]
    for block in blocks:
        step = np.abs(table_VD[ids][..., block]).max(-1) / 8
        assert (np.abs(found - table_VD[ids])[..., block].max(-1) <= step * 1.001).all()


def test_what_is_no_table_of_floats_stays() -> None:
    """Indices, as DeBERTa and XLNet have them, rows of one number, and columns that are picked."""
    tables = {"whole": np.arange(64, dtype=np.int64).reshape(2, 32), "flat": np.ones(64, np.float32)}
    tables["columns"] = np.ones((4, 64), np.float32)
    for name, values in tables.items():
        node = helper.make_node("Gather", [name, "ids"], ["rows"], name="look-up", axis=int(name == "columns"))
        kind = TensorProto.INT64 if name == "whole" else TensorProto.FLOAT
        inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, [1])]
        outputs = [helper.make_tensor_value_info("rows", kind, None)]
        graph = helper.make_graph([node], "tables", inputs, outputs, [numpy_helper.from_array(values, name)])
        assert kinds_of(in_blocks(helper.make_model(graph), ("Gather", "MatMul"))) == {"Gather": 1}


@pytest.mark.parametrize(("turned", "bias"), [(1, True), (0, True), (1, False)])
def test_a_map_with_a_bias_becomes_a_product_and_a_sum(turned: int, bias: bool) -> None:
    weights = DRAWN.standard_normal((48, 40) if turned else (40, 48)).astype(np.float32)
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(weights.ravel()[:48], "bias")]
    names = ["states", "weights", *(["bias"] if bias else [])]
    graph = helper.make_graph(
        [helper.make_node("Gemm", names, ["found"], name="map", transB=turned)],
        "maps",
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, [3, 40])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [3, 48])],
        constants[: len(names) - 1],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    given = {"states": DRAWN.standard_normal((3, 40)).astype(np.float32)}
    before, after = [], []
    for found in (before, after):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, given)[0])
        split_gemms(model.graph)
    assert kinds_of(model) == ({"MatMul": 1, "Add": 1} if bias else {"MatMul": 1})
    assert after[0] == pytest.approx(before[0], abs=1e-5)


# --- graphs ---------------------------------------------------------------------------------------------------------


def test_int8_table4_is_int8_with_its_tables_in_four_bits(place: Path) -> None:
    model, full = graph_in(place, "int8-table4"), onnx.load(str(place / "full" / "output" / FILES["onnx"]))
    kinds = kinds_of(model)
    assert kinds["GatherBlockQuantized"] == 3 and {"MatMulInteger", "QLinearMatMul"} & set(kinds)
    word = "model.bert.embeddings.word_embeddings.weight"
    table_VD = next(numpy_helper.to_array(one) for one in full.graph.initializer if one.name == word)
    found_VD = dequantized(model, word)
    assert found_VD.shape == table_VD.shape and 0 < np.abs(found_VD - table_VD).max() <= np.abs(table_VD).max() / 8
    large = [one for one in model.graph.initializer if np.prod(one.dims) >= 256]
    assert {TensorProto.DataType.Name(one.data_type) for one in large} <= {"INT8", "UINT8", "INT4", "FLOAT"}
    assert all(one.name.endswith("_scales") for one in large if one.data_type == TensorProto.FLOAT)


def test_four_bit_has_all_products_but_the_head_in_four_bits(place: Path) -> None:
    model = graph_in(place, "four-bit")
    kinds = kinds_of(model)
    assert kinds["GatherBlockQuantized"] == 3 and kinds["MatMulNBits"] == 4 * 6 // 2 + 1  # two layers, and the pooler
    left = [one.name for one in model.graph.initializer if one.data_type == TensorProto.FLOAT and len(one.dims) == 2]
    wide = [name for name in left if not name.endswith("_scales")]
    assert len(wide) == 1 and "classifier" in wide[0]


@pytest.mark.parametrize("name", FORMATS_OF_FOUR_BITS)
def test_a_graph_in_four_bits_is_near_its_own_fp32(place: Path, name: str) -> None:
    texts = sentences(60)
    ours_NC, theirs_NC = (logits_of(place / folder / "output", texts, None, 32) for folder in (name, "full"))
    assert 0 < np.abs(ours_NC - theirs_NC).mean() < 0.15 * np.ptp(theirs_NC)
    card = card_of(place / name / "output")
    assert card["engine"] == f"{EXPORT_FORMATS[name].engine} {card[name]['way']}" and "int8" not in card
    assert card["opset"] == 21 and card[name]["way"] in FORMATS_OF_FOUR_BITS[name]


def test_bytes_fall_from_format_to_format(place: Path) -> None:
    sizes = {name: (place / name / "output" / FILES["int8"]).stat().st_size for name in FORMATS_OF_FOUR_BITS}
    do("quantize", place / "int8" / "output", QUANTIZE, export=place / "full" / "output", rows=place / "rows")
    whole = (place / "int8" / "output" / FILES["int8"]).stat().st_size
    table = 600 * 40
    assert whole - sizes["int8-table4"] > 0.3 * table, "half a byte less for every weight, but for scales"
    assert sizes["four-bit"] < 0.4 * (place / "full" / "output" / FILES["onnx"]).stat().st_size


def test_texts_of_a_batch_do_not_matter_to_four_bits(place: Path) -> None:
    """Activations have a scale for each token's block; int8 graphs have one for the whole call."""
    texts = ["good film was", "bad bad film"]
    apart = {}
    for name in FORMATS_OF_FOUR_BITS:
        model = OnnxModel(place / name / "output")
        together = model.ask(model.encode(texts, None, 32))["logits"][0]
        apart[name] = float(np.abs(together - model.ask(model.encode(texts[:1], None, 32))["logits"][0]).max())
    assert apart["four-bit"] < 1e-5


@pytest.mark.parametrize(("served_as", "codes"), TRAINED)
def test_a_model_that_is_trained_for_few_bits_answers_as_its_graph_will(
    place: Path, served_as: str, codes: str
) -> None:
    texts, full = sentences(25), place / "full" / "output"
    ours, graph, _ = answers_of_both(place / "model", full, texts, served_as, codes)
    gap_N = np.abs(ours - graph).max(1)
    assert np.median(gap_N) <= 1e-5 and (ours.argmax(1) == graph.argmax(1)).all(), gap_N.max()
    plain = OnnxModel(full).outputs(texts, None, 64)["logits"]
    assert np.median(np.abs(plain - graph).max(1)) > 100 * np.median(gap_N), "and not as the one in full precision"


def test_the_same_graph_gives_the_same_bytes_and_leaves_no_file(place: Path, tmp_path: Path) -> None:
    for name in FORMATS_OF_FOUR_BITS:
        again = quantize(place, name, tmp_path / name / "output")
        assert (tmp_path / name / "output" / FILES["int8"]).read_bytes() == graph_file(place, name).read_bytes()
        assert not list((tmp_path / name).rglob("*.tables.onnx")) and again["made"]


def graph_file(place: Path, name: str) -> Path:
    return place / name / "output" / FILES["int8"]


def test_a_failure_of_the_library_is_noted_in_the_format_s_name(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **knobs: Any) -> None:
        raise ValueError("no such kernel")

    monkeypatch.setattr("tasks.exports.quantizing.write_four_bits", fail)
    found = quantize(place, "four-bit", tmp_path / "output")
    assert found == {"made": False, "because": "no four-bit quantization worked: four-bit: ValueError: no such kernel"}
    assert card_of(tmp_path / "output")["because"] == found["because"]


PLAIN = """
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
ids = numpy.array([[2, 7, 9, 3]])
given = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
given = {each.name: given[each.name] for each in session.get_inputs()}
print(session.run(None, given)[0].tolist())
"""
"""A program that asks a graph, behind ``NOTHING_ELSE``."""


@pytest.mark.parametrize("name", FORMATS_OF_FOUR_BITS)
def test_a_graph_runs_in_plain_onnxruntime(place: Path, name: str) -> None:
    path = graph_file(place, name)
    done = subprocess.run([sys.executable, "-I", "-c", NOTHING_ELSE + PLAIN, str(path)], capture_output=True, text=True)
    ids = np.array([[2, 7, 9, 3]])
    model = OnnxModel(place / name / "output")
    given = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    given = {each: given[each] for each in model.card["inputs"]}
    assert done.stdout.strip() == str(model.ask(given)["logits"].tolist()), done.stderr


def test_all_formats_share_a_card_and_predictions_use_the_fastest(place: Path, tmp_path: Path) -> None:
    folders = {"onnx": place / "full" / "output"} | {
        name: place / name / "output" for name in ("int8-table4", "four-bit")
    }
    published = tmp_path / "onnx"
    published.mkdir()
    for name, path in files_for_a_model(folders, tmp_path / "work").items():
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer.json").write_bytes((place / "model" / "tokenizer.json").read_bytes())
    assert {path.name for path in published.iterdir()} == {
        "model.onnx",
        "model_int8_table4.onnx",
        "model_four_bit.onnx",
        "onnx.json",
    }
    for name in ("int8-table4", "four-bit", "onnx"):
        texts = ["good film", "bad"]
        own = folders[name] / (FILES["onnx"] if name == "onnx" else FILES["int8"])
        alone = OnnxModel(folders[name], graph=own).outputs(texts, None, 32)["logits"]
        shares = np.exp(alone) / np.exp(alone).sum(-1, keepdims=True)
        found = predict_texts(published, texts)
        assert [one["score"] for one in found] == pytest.approx(shares.max(-1).tolist(), abs=1e-4)
        (published / EXPORT_FORMATS[name].file).unlink()


def test_every_format_has_a_file_and_a_tag() -> None:
    files = {name: one.file for name, one in EXPORT_FORMATS.items()}
    assert {f"{name}.sha256": f"onnx/{file}" for name, file in files.items()} == EXPORT_TAGS
    (named, _) = get_args(Exports.model_fields["formats"].annotation)
    assert set(get_args(named)) == set(files) == set(BY_DEFAULT) and len(set(files.values())) == len(files)
    assert ways_of("four-bit", ("dynamic", "static")) == ("four-bit",)
    assert ways_of("int8-table4", ("static",)) == ("static-table4",)
