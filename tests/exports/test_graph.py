"""Weights that layers share stand once in a graph, as the products read them, and int8 reaches them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from flows.branches.export import fits_seven_bits
from tasks.exports.graph import store_once, tidy, transpose_weights
from tasks.exports.quantizing import quantize_by
from tasks.recipe.judging import Exports

WIDTH, TURNS = 64, 3


def turns_of(path: Path, *, copies: bool) -> dict[str, np.ndarray]:
    """Write a graph that multiplies by a transposed weight in each turn, as one tensor or as equal copies; return an
    input."""
    random = np.random.default_rng(0)
    weight_KD = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8
    nodes, stored = [], []
    for turn in range(TURNS):
        name = f"weight_{turn if copies else 0}"
        if copies or not turn:
            stored.append(numpy_helper.from_array(weight_KD, name))
        nodes += [
            helper.make_node("Transpose", [name], [f"turned_{turn}"], perm=[1, 0]),
            helper.make_node("MatMul", [f"x_{turn}", f"turned_{turn}"], [f"x_{turn + 1}"]),
        ]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", WIDTH]) for name in ("x_0", f"x_{TURNS}")
    ]
    graph = helper.make_graph(nodes, "turns", ends[:1], ends[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))
    return {"x_0": random.standard_normal((2, WIDTH)).astype(np.float32)}


def answers(path: Path, given: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(str(path)).run(None, given)[0])


def test_a_shared_weight_is_stored_once_and_quantized(tmp_path: Path) -> None:
    """Behind a transpose, int8 left it in fp32: the file stayed four times as large."""
    for copies in (False, True):
        path, small = tmp_path / f"{copies}.onnx", tmp_path / f"{copies}.int8.onnx"
        given = turns_of(path, copies=copies)
        before = answers(path, given)
        tidy(path)
        np.testing.assert_allclose(answers(path, given), before, rtol=1e-5, atol=1e-6)
        graph = onnx.load(str(path)).graph
        assert len(graph.initializer) == 1 and {node.op_type for node in graph.node} == {"MatMul"}
        assert path.stat().st_size < 4 * WIDTH * WIDTH + 1024
        quantize_by("dynamic", path, small, reduce_range=fits_seven_bits(Exports()), feeds=lambda: iter(()))
        stored = onnx.load(str(small)).graph.initializer
        assert sum(numpy_helper.to_array(one).nbytes for one in stored) < 1.3 * WIDTH * WIDTH
        assert np.abs(answers(small, given) - before).max() < 0.1 * np.abs(before).max()


def test_a_weight_that_is_also_read_as_it_stands_keeps_its_transpose(tmp_path: Path) -> None:
    """A tied table would otherwise be stored twice. Different weights are no copies."""
    given = turns_of(tmp_path / "m.onnx", copies=False)
    model = onnx.load(str(tmp_path / "m.onnx"))
    model.graph.node[3].input[1] = "weight_0"
    other = numpy_helper.to_array(model.graph.initializer[0]) + 1
    model.graph.initializer.append(numpy_helper.from_array(other, "other"))
    assert given and transpose_weights(model.graph) == 0 and store_once(model.graph) == 0
