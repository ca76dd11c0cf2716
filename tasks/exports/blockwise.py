"""Weights in four bits: every 32 weights share one scale, so that an outlier coarsens its own block alone.

Source: Dettmers and Zettlemoyer 2022, "The case for 4-bit Precision: k-bit Inference Scaling Laws", arXiv:2212.09720.
Blocks lie along the inputs of a product and along the width of an embedding table; the last block of a row may be
shorter. The largest weight of a block is kept but for rounding, codes are -8 to 7. ONNX Runtime unpacks the rows of a
table that a text needs (``GatherBlockQuantized``), and multiplies by codes and by activations in eight bits with a
scale for each token's block (``MatMulNBits``): other texts of a batch do not matter.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tasks.exports.graph import save

BLOCK_WIDTH = 32
"""Weights that share a scale."""
EIGHT_BIT_ACTIVATIONS = 4
"""ONNX Runtime's level of accuracy that multiplies integers."""
TABLES, PRODUCTS = "Gather", "MatMul"


def write_four_bits(source: Path, target: Path) -> None:
    """Write a graph with its products and embedding tables in four bits. The head, narrower than a block, stays in
    float32: it has next to no bytes."""
    model = onnx.load(str(source))
    split_gemms(model.graph)
    save(in_blocks(model, (PRODUCTS, TABLES)), target)


def write_four_bit_tables(source: Path, target: Path) -> None:
    """Write a graph with its embedding tables alone in four bits, as the source of a further quantization: the types
    of the looked-up rows are stated, because ONNX's inference of types does not know the operation."""
    model = in_blocks(onnx.load(str(source)), (TABLES,))
    rows = [node.output[0] for node in model.graph.node if node.op_type == "GatherBlockQuantized"]
    model.graph.value_info.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in rows)
    save(model, target)


def in_blocks(model: ModelProto, kinds: tuple[str, ...]) -> ModelProto:
    """Return a graph whose constant weights of these operations are in four bits."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    constants = {one.name: one for one in model.graph.initializer}
    others = [node.name for node in model.graph.node if node.op_type in kinds and not has_weights(node, constants)]
    quantizer = MatMulNBitsQuantizer(
        model,
        bits=4,
        block_size=BLOCK_WIDTH,
        is_symmetric=True,
        accuracy_level=EIGHT_BIT_ACTIVATIONS,
        nodes_to_exclude=others,
        op_types_to_quantize=kinds,
        quant_axes=((PRODUCTS, 0), (TABLES, 1)),
    )
    with np.errstate(invalid="ignore"):  # a block of zeros, such as padding's row, has the scale 0
        quantizer.process()
    made: ModelProto = quantizer.model.model
    once = {one.name: one for one in made.graph.initializer}  # weights of several operations were written repeatedly
    del made.graph.initializer[:]
    made.graph.initializer.extend(once.values())
    return made


def has_weights(node: NodeProto, constants: dict[str, TensorProto]) -> bool:
    """Return whether an operation reads a constant matrix of floats: for a product as its second input, at least a
    block wide; for a look-up as its table, by rows."""
    weights = constants.get(node.input[0 if node.op_type == TABLES else 1])
    if weights is None or weights.data_type != TensorProto.FLOAT or len(weights.dims) != 2:
        return False
    if node.op_type == TABLES:
        return all(one.i == 0 for one in node.attribute if one.name == "axis")
    return weights.dims[1] >= BLOCK_WIDTH


def split_gemms(graph: GraphProto) -> None:
    """Replace each ``Gemm`` with constant weights by a ``MatMul`` and an ``Add``: only products are quantized."""
    constants = {one.name: one for one in graph.initializer}
    nodes = [part for node in graph.node for part in split_gemm(node, constants, graph)]
    del graph.node[:]
    graph.node.extend(nodes)


def split_gemm(node: NodeProto, constants: dict[str, TensorProto], graph: GraphProto) -> list[NodeProto]:
    """Return the operations that replace one; itself, if it is no plain ``Gemm``."""
    values = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    plain = values.get("alpha", 1.0) == values.get("beta", 1.0) == 1.0 and not values.get("transA", 0)
    if node.op_type != "Gemm" or not plain or node.input[1] not in constants:
        return [node]
    weights, name = node.input[1], node.name
    if values.get("transB", 0):
        weights = f"{node.input[1]}_transposed"
        if weights not in constants:
            turned = np.ascontiguousarray(numpy_helper.to_array(constants[node.input[1]]).T)
            constants[weights] = numpy_helper.from_array(turned, weights)
            graph.initializer.append(constants[weights])
    product = f"{node.output[0]}_product" if len(node.input) > 2 else node.output[0]
    parts = [helper.make_node(PRODUCTS, [node.input[0], weights], [product], name=f"{name}_product")]
    if len(node.input) > 2:
        parts.append(helper.make_node("Add", [product, node.input[2]], [node.output[0]], name=f"{name}_sum"))
    return parts
