"""Graphs of an ALBERT whose layers share one of two blocks: a folder has a copy for each layer, a graph has one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from tasks.recipe.students import Shape
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import build_student, load_classifier, save_model
from tests.exports.test_exports import EXPORT, QUANTIZE, do, write_rows
from tests.families import write_tiny
from tests.training.test_families import CPU, TASK

WIDTH, NEURONS, LAYERS = 64, 160, 2


def matrices_in(path: Path) -> Counter[tuple[int, ...]]:
    """Return how many matrices of each size a graph stores, whatever their bits and on which side they stand."""
    stored = [tuple(sorted(one.dims)) for one in onnx.load(str(path)).graph.initializer]
    return Counter(dims for dims in stored if len(dims) == 2 and dims[0] >= WIDTH)


@pytest.mark.slow
@pytest.mark.parametrize("share", ["attention", "ffn"])
def test_a_shared_block_is_stored_once_in_fp32_and_in_int8(share: str, tmp_path: Path) -> None:
    """It was tested of modules, of folders and of the pass over a graph, and of no exported file."""
    sizes = {"hidden_size": WIDTH, "intermediate_size": NEURONS, "num_hidden_layers": LAYERS}
    base = write_tiny("bert", tmp_path / "bert", **sizes)
    shape = Shape(layers=LAYERS, embedding=16, share=share)
    student = build_student("albert", load_classifier(base, TASK, CPU), shape, seed=0)
    save_model(student, load_tokenizer(base), tmp_path / "student")
    rows = write_rows(tmp_path / "rows", train=8, selection=8, validation=8)
    knobs = EXPORT | {"parity_rows": 8}
    full = do("export", tmp_path / "full", knobs, model=tmp_path / "student", rows=rows)
    dynamic = QUANTIZE | {"ways": ["dynamic"]}
    do("quantize", tmp_path / "small", dynamic, export=tmp_path / "full", rows=rows)
    attention, blocks = (1, LAYERS) if share == "attention" else (LAYERS, 1)
    for folder in ("full", "small"):
        (path,) = (tmp_path / folder).glob("*.onnx")
        found = matrices_in(path)
        assert found[(WIDTH, WIDTH)] == 4 * attention + 1, "queries, keys, values, output; the pooler"
        assert found[(WIDTH, NEURONS)] == 2 * blocks
    assert full["equal_answers"] == 1.0
