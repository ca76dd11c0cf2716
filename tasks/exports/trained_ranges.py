"""Graphs in int8 whose static ranges were trained: they stand in the config of the model, and nothing is calibrated.

ONNX Runtime quantizes the weights as for dynamic ranges; then each product reads what a range of the model rounds
instead of what a range of the call does. Its result stays in float32, as in training
(``tasks/training/models/fixed_ranges.py``). A product belongs to the linear map whose weights it has.
Shape letters: O outputs, I inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, helper, numpy_helper

from tasks.errors import ModelError
from tasks.exports.graph import forget, save
from tasks.exports.quantizing import constant_weights, dynamic, dynamic_table4, quietly

WAYS_OF_RANGES = {"int8": "static-trained", "int8-table4": "static-trained-table4"}
"""The mode of each format that has static ranges of a model."""

RangesOfWeights = Mapping[bytes, tuple[float, int]]
"""Step and zero point by the weights [I, O] of a map."""


def ranges_by_weights(model: Any) -> RangesOfWeights:
    """Return the ranges that a model's config states. Raises ModelError for a model without, or without its maps, or
    with two ranges for the same weights."""
    from tasks.methods.quantization.learned_ranges import STATED_RANGES

    stated = getattr(model.config, STATED_RANGES, None)
    if not stated:
        raise ModelError(
            "the config of this model states no static ranges, because it was not trained with any; make it by "
            "quantization with ranges: trained, or export it with exports.ways: [static], which calibrates"
        )
    maps, found = dict(model.named_modules()), dict[bytes, tuple[float, int]]()
    for name, (step, zero) in stated.items():
        if name not in maps:
            raise ModelError(
                f"the config of this model states a range of {name}, and it has no such map; export the folder that "
                f"the training wrote, unchanged"
            )
        one = (float(step), int(zero))
        if found.setdefault(key_of_weights(maps[name].weight.detach().numpy().T), one) != one:
            raise ModelError(
                f"{name} has the weights of another map of this model, and another range, so that its graph stores "
                f"both once and cannot tell them apart; make it with ranges: dynamic"
            )
    return found


def key_of_weights(weights_IO: np.ndarray) -> bytes:
    """Return what weights are found by."""
    return repr(weights_IO.shape).encode() + np.ascontiguousarray(weights_IO).tobytes()


def quantize_with_ranges(
    source: Path, target: Path, ranges: RangesOfWeights, *, reduce_range: bool, four_bit_tables: bool
) -> None:
    """Write a quantized graph whose products read states on the ranges of a model."""
    quantize = dynamic_table4 if four_bit_tables else dynamic
    with quietly(), constant_weights(source, target) as prepared:
        ranges_of = dict(ranges_of_products(onnx.load(str(prepared)).graph, ranges))
        quantize(prepared, target, reduce_range=reduce_range, feeds=lambda: iter(()))
    model = onnx.load(str(target))
    fix_ranges(model.graph, ranges_of)
    forget(model)
    onnx.checker.check_model(model)
    save(model, target)


def ranges_of_products(graph: GraphProto, ranges: RangesOfWeights) -> Iterator[tuple[str, tuple[float, int]]]:
    """Yield the name of the weights of each product, and its range. Raises ModelError for one without."""
    constants = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in constants:
            continue
        weights = numpy_helper.to_array(constants[node.input[1]])
        turned = any(one.name == "transB" and one.i for one in node.attribute)
        weights_IO = weights.T if turned else weights
        key = key_of_weights(weights_IO)
        if key not in ranges:
            raise ModelError(
                f"a product of the graph has weights {list(weights_IO.shape)} for which the model states no range; "
                f"export the folder that the training wrote, unchanged"
            )
        yield node.input[1], ranges[key]


def fix_ranges(graph: GraphProto, ranges_of: Mapping[str, tuple[float, int]]) -> None:
    """Replace ranges of each call by those of the products, whose weights are known by their names."""
    found = {node.output[0]: node for node in graph.node if node.op_type == "DynamicQuantizeLinear"}
    nodes = list[NodeProto]()
    scales = dict[tuple[str, str], str]()
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            continue
        if node.op_type == "MatMulInteger":
            name = weights_read(node)
            asked = found[node.input[0]]
            own = f"{name}_read_{len(scales)}"
            nodes.append(rounding_node(graph, asked.input[0], own, *ranges_of[name]))
            scales[asked.output[1], f"{name}_scale"] = f"{own}_step"
            node.input[0], node.input[2] = f"{own}_codes", f"{own}_zero"
        nodes.append(node)
    for node in nodes:
        both = tuple(node.input)
        if node.op_type == "Mul" and len(both) == 2:
            step = scales.get((both[0], name_before_transposing(both[1])))
            if step is not None:
                node.input[0] = step
    del graph.node[:]
    graph.node.extend(nodes)


def name_before_transposing(name: str) -> str:
    """Return a name without the sign of a transposed copy."""
    return name.replace("_Transposed", "")


def weights_read(product: NodeProto) -> str:
    """Return the name that the weights of an integer product had in float32."""
    return name_before_transposing(product.input[1].removesuffix("_quantized"))


def rounding_node(graph: GraphProto, states: str, own: str, step: float, zero: int) -> NodeProto:
    """Return the operation that rounds states to a range, whose step and zero point it adds to the graph."""
    graph.initializer.append(numpy_helper.from_array(np.array(step, np.float32), f"{own}_step"))
    graph.initializer.append(numpy_helper.from_array(np.array(zero, np.uint8), f"{own}_zero"))
    return helper.make_node("QuantizeLinear", [states, f"{own}_step", f"{own}_zero"], [f"{own}_codes"], name=own)
