"""Post-processing of a traced ONNX graph, without any change of its results: remove data about the tracing machine, and
avoid a slow fusion in ONNX Runtime.

The trace records the source line of every operation, with folder names of the machine that traced it. ONNX Runtime
fuses a residual addition with the following layer norm into one operation that takes four times as long on a CPU as the
two. A ``Sum`` of two inputs computes the same and is not fused.

A weight that several layers share is transposed by each of them in the graph, and only a constant is quantized: the
transposed weight takes its place. Equal tensors, such as copies of weights that layers share, are stored once.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

LARGEST = 2**31 - 2**20
"""Maximum size of one ONNX file, in bytes."""
SMALLEST = 1024
"""Bytes of a tensor from which on equal ones are looked for."""


def tidy(path: Path) -> None:
    """Rewrite a graph's file without data about its origin, with residual additions that ONNX Runtime does not fuse
    with layer norms, and with each weight once, as its products read it."""
    model = onnx.load(str(path), load_external_data=False)
    forget(model)
    part_sums(model.graph)
    transpose_weights(model.graph)
    store_once(model.graph)
    onnx.checker.check_model(model)
    save(model, path)


def forget(model: onnx.ModelProto) -> None:
    """Remove producer names, source lines, and the shapes of intermediate values: quantization would read these shapes,
    and they are not always right."""
    model.ClearField("doc_string")
    model.ClearField("metadata_props")
    for part in (model.graph, *model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    del model.graph.value_info[:]
    model.producer_name, model.producer_version = "limbeck", ""


def part_sums(graph: onnx.GraphProto) -> int:
    """Replace each ``Add`` that feeds a ``LayerNormalization`` by a ``Sum``; return the number of replacements."""
    makers = {output: node for node in graph.node for output in node.output}
    norms = (makers.get(node.input[0]) for node in graph.node if node.op_type == "LayerNormalization")
    sums = [node for node in norms if node is not None and node.op_type == "Add"]
    for node in sums:
        node.op_type = "Sum"
    return len(sums)


def transpose_weights(graph: onnx.GraphProto) -> int:
    """Replace weights that are read only through one and the same ``Transpose`` by the transposed weights; return the
    number of operations that this removes."""
    users = defaultdict[str, list[onnx.NodeProto]](list)
    for node in graph.node:
        for name in node.input:
            users[name].append(node)
    renamed, removed = dict[str, str](), list[onnx.NodeProto]()
    for weight in graph.initializer:
        readers = users[weight.name]
        turns = {turn_of(node, len(weight.dims)) for node in readers}
        if len(turns) != 1 or None in turns:
            continue
        (axes,) = turns
        turned = np.ascontiguousarray(numpy_helper.to_array(weight).transpose(axes))
        weight.CopyFrom(numpy_helper.from_array(turned, weight.name))
        renamed |= {node.output[0]: weight.name for node in readers}
        removed += readers
    for node in removed:
        graph.node.remove(node)
    rename_inputs(graph, renamed)
    return len(removed)


def untie(graph: onnx.GraphProto) -> int:
    """Give each product that reads a table through a ``Transpose``, as a last layer does that is also the
    embeddings, a transposed copy: only a constant is quantized. Returns the number of operations that this removes."""
    weights = {weight.name: weight for weight in graph.initializer}
    removed = list[onnx.NodeProto]()
    for node in graph.node:
        weight = weights.get(node.input[0]) if node.op_type == "Transpose" else None
        axes = None if weight is None else turn_of(node, len(weight.dims))
        if weight is not None and axes is not None:
            turned = np.ascontiguousarray(numpy_helper.to_array(weight).transpose(axes))
            graph.initializer.append(numpy_helper.from_array(turned, node.output[0]))
            removed.append(node)
    for node in removed:
        graph.node.remove(node)
    return len(removed)


def turn_of(node: onnx.NodeProto, axes: int) -> tuple[int, ...] | None:
    """Return the order of axes that a ``Transpose`` gives, the reverse one by default; None for another operation."""
    if node.op_type != "Transpose":
        return None
    stated = next((tuple(one.ints) for one in node.attribute if one.name == "perm"), None)
    return stated or tuple(reversed(range(axes)))


def store_once(graph: onnx.GraphProto) -> int:
    """Store equal tensors once; return how many copies were removed."""
    first, renamed = dict[tuple[object, ...], str](), dict[str, str]()
    copies = list[onnx.TensorProto]()
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor).tobytes()
        if len(values) < SMALLEST:
            continue
        name = first.setdefault((tensor.data_type, tuple(tensor.dims), values), tensor.name)
        if name != tensor.name:
            renamed[tensor.name] = name
            copies.append(tensor)
    for tensor in copies:
        graph.initializer.remove(tensor)
    rename_inputs(graph, renamed)
    return len(copies)


def rename_inputs(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    """Let operations read other values than before."""
    for node in graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = renamed.get(name, name)


def opset_of(path: Path) -> int:
    """Return the version of ONNX's own operations that a graph's file uses."""
    opsets = onnx.load(str(path), load_external_data=False).opset_import
    return next(int(one.version) for one in opsets if one.domain in ("", "ai.onnx"))


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph with deterministic serialization, so that the same model gives the same bytes."""
    path.write_bytes(model.SerializeToString(deterministic=True))
