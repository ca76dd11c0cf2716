"""Graphs in int8 with the static ranges of their model: they answer as the model in training, alone and in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers

from tasks.architectures.requirements import SERVED
from tasks.errors import DataError, ModelError
from tasks.exports.jobs import ask_torch
from tasks.exports.trained_ranges import WAYS_OF_RANGES, quantize_with_ranges, ranges_by_weights
from tasks.methods.quantization.learned_ranges import STATED_RANGES
from tasks.recipe.slices import RangesSlice
from tasks.scoring.onnx_models import FILES, OnnxModel, card_of
from tasks.scoring.predict import load
from tasks.training.models.fixed_ranges import FixedRanges, measured_ranges
from tests.exports.test_exports import EXPORT, QUANTIZE, do, write_rows
from tests.exports.trained_answers import write_noisy, write_real_model
from tests.families import write_tiny
from tests.scoring.small import sentences

SEVEN = bool(QUANTIZE["reduce_range"])


def finished(start: Path, format_: str, texts: Sequence[str], folder: Path) -> np.ndarray:
    """Write a model with ranges of its own; return its answers as they are in training. Steps are moved, as a training
    does: some states are beyond the codes."""
    model, tokenizer = load(start, "classification")

    def read() -> None:
        for text in texts[:8]:
            model(**tokenizer([text], return_tensors="pt"))

    ranges = measured_ranges(model, format_, read)
    moved = {name: one._replace(step=one.step * 0.8) for name, one in ranges.items()}
    served = FixedRanges(model, format_, moved, seven_bits=SEVEN)
    ours = ask_torch(model, tokenizer, texts, None, 64, ["logits"])["logits"]
    served.finish()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return ours


def graphed(folder: Path, format_: str, place: Path, texts: Sequence[str]) -> tuple[OnnxModel, np.ndarray]:
    """Write the graph of a folder with its ranges; return it and its answers."""
    full = place / f"{format_}-full" / "output"
    do("export", full, EXPORT | {"max_length": 64}, model=folder, rows=place / "rows")
    ranges, path = ranges_by_weights(load(folder, "classification")[0]), place / f"{format_}.onnx"
    quantize_with_ranges(
        full / FILES["onnx"], path, ranges, reduce_range=SEVEN, four_bit_tables=format_ == "int8-table4"
    )
    graph = OnnxModel(full, graph=path)
    return graph, graph.outputs(texts, None, 64)["logits"]


@pytest.mark.parametrize(
    "family", [name if name == "bert" else pytest.param(name, marks=pytest.mark.slow) for name in SERVED]
)
def test_a_graph_answers_as_its_model_in_training_alone_and_together(family: str, tmp_path: Path) -> None:
    texts, start = sentences(30), write_noisy(family, tmp_path)
    write_rows(tmp_path / "rows", train=20, selection=10, validation=10)
    for format_ in WAYS_OF_RANGES:
        ours = finished(start, format_, texts, tmp_path / format_)
        graph, theirs = graphed(tmp_path / format_, format_, tmp_path, texts)
        gap_N = np.abs(ours - theirs).max(1)
        assert np.median(gap_N) <= 1e-6 and gap_N.max() <= 0.01 and (ours.argmax(1) == theirs.argmax(1)).all()
        together = graph.ask(graph.encode(texts[:8], None, 64))["logits"]
        assert together == pytest.approx(theirs[:8], abs=1e-2 if format_ == "int8-table4" else 1e-5)
        kinds = [node.op_type for node in onnx.load(str(tmp_path / f"{format_}.onnx")).graph.node]
        products = kinds.count("MatMulInteger")
        assert "DynamicQuantizeLinear" not in kinds and kinds.count("QuantizeLinear") == products > 6


@pytest.mark.slow
@pytest.mark.real_data
def test_a_real_model_answers_500_texts_as_its_graph_with_ranges(tmp_path: Path) -> None:
    """As of dynamic ranges (``test_trained_bits.py``): the median is float32's own noise."""
    texts = write_real_model(tmp_path / "model")
    write_rows(tmp_path / "rows", train=20, selection=10, validation=10)
    for format_ in WAYS_OF_RANGES:
        ours = finished(tmp_path / "model", format_, texts, tmp_path / format_)
        _, theirs = graphed(tmp_path / format_, format_, tmp_path, texts)
        gap_N, equal = np.abs(ours - theirs).max(1), (ours.argmax(1) == theirs.argmax(1)).mean()
        print(f"{format_}: median {np.median(gap_N):.2g}, largest {gap_N.max():.2g}, {equal}")
        assert np.median(gap_N) <= 2e-6 and equal >= 0.99 and gap_N.max() <= 0.5


# --- the job ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with ranges, one without, rows, and the graph of the first."""
    place = tmp_path_factory.mktemp("ranges")
    finished(write_noisy("bert", place), "int8", sentences(8), place / "ranged")
    write_rows(place / "rows", train=20, selection=10, validation=10)
    do("export", place / "full" / "output", EXPORT, model=place / "ranged", rows=place / "rows")
    return place


def knobs(format_: Any = "int8") -> dict[str, Any]:
    given = RangesSlice(
        task_type="classification", format=format_, metric="accuracy", max_length=32, reduce_range=SEVEN
    )
    return given.model_dump(mode="json")


def write_graph(place: Path, output: Path, format_: str = "int8", **other: Path) -> dict[str, Any]:
    inputs = {"export": place / "full" / "output", "model": place / "ranged", "rows": place / "rows", **other}
    return do("quantize-to-trained-ranges", output, knobs(format_), **inputs)


@pytest.mark.parametrize("format_", WAYS_OF_RANGES)
def test_facts_and_card_say_whose_ranges_a_graph_has(format_: str, place: Path, tmp_path: Path) -> None:
    found, way = write_graph(place, tmp_path / "a", format_), WAYS_OF_RANGES[format_]
    again = write_graph(place, tmp_path / "b", format_)
    assert found["made"] and found["way"] == way and found["calibration_rows"] == 0 and found == again
    card: Any = card_of(tmp_path / "a")
    assert card["engine"] == f"onnxruntime int8 {way}" and card[format_]["way"] == way
    assert found["bytes"] < (place / "full" / "output" / FILES["onnx"]).stat().st_size
    assert set(found["ways"]) == {way} and found["loss"] == found["ways"][way]["loss"]
    assert (tmp_path / "a" / FILES["int8"]).read_bytes() == (tmp_path / "b" / FILES["int8"]).read_bytes()


def test_a_model_without_ranges_or_with_other_weights_is_refused(place: Path, tmp_path: Path) -> None:
    said = r"states no static ranges, .* with ranges: trained, or export it with exports.ways: \[static\]"
    with pytest.raises(ModelError, match=said):
        write_graph(place, tmp_path / "a", model=place / "model")
    model, tokenizer = load(place / "ranged", "classification")
    model.classifier.weight.data += 0.5
    model.save_pretrained(tmp_path / "moved")
    tokenizer.save_pretrained(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"a product of the graph has weights \[\d+, 2\] for which the model states"):
        write_graph(place, tmp_path / "b", model=tmp_path / "moved")
    ranges = getattr(model.config, STATED_RANGES)
    ranges["elsewhere"] = ranges.pop("classifier")
    with pytest.raises(ModelError, match="states a range of elsewhere, and it has no such map"):
        ranges_by_weights(model)


def test_two_ranges_of_equal_weights_are_refused(place: Path) -> None:
    model, _ = load(place / "ranged", "classification")
    name = "bert.encoder.layer.0.attention.self"
    maps = dict(model.named_modules())
    maps[f"{name}.key"].weight.data.copy_(maps[f"{name}.query"].weight.data)
    ranges = getattr(model.config, STATED_RANGES)
    ranges[f"{name}.key"] = list(ranges[f"{name}.query"])
    assert len(ranges_by_weights(model)) == len(ranges) - 1
    ranges[f"{name}.key"] = [ranges[f"{name}.query"][0] * 2, 3]
    with pytest.raises(ModelError, match="has the weights of another map of this model, and another range"):
        ranges_by_weights(model)


def test_a_graph_is_judged_on_held_back_rows(place: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", train=20, selection=0, validation=10)
    with pytest.raises(DataError, match="int8 is evaluated on selection rows, and there are none"):
        write_graph(place, tmp_path / "a", rows=tmp_path / "rows")


def test_a_last_map_that_is_the_table_answers_as_in_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForMaskedLM.from_pretrained(write_tiny("bert", tmp_path / "bert")).eval()
    ids_BT = torch.tensor([[2, 9, 12, 30, 7, 3]])

    def logits() -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT)).logits
        return found

    ranges = measured_ranges(model, "int8", logits)
    served = FixedRanges(model, "int8", ranges)
    before = logits()
    served.finish()
    assert len(ranges_by_weights(model)) == len(ranges), "the last map is found by its table"
    FixedRanges(model, "int8", ranges)
    assert torch.allclose(logits(), before, atol=1e-4)
