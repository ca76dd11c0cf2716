"""Graphs of models that were trained for four bits or fewer: the weights lie on a grid already, and no library rounds
them a second time.

Every 32 weights of an output are whole multiples of one step (``tasks/methods/quantization``), which is found in them
again; a last map that is also the table of embeddings lies on the table's grid, as in ``blockwise.py``. Matrices of
which all codes lie between -2 and 1 take two bits a weight, others four. Shape letters: O outputs, I inputs, N blocks,
W width of a block.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tasks.errors import ModelError
from tasks.exports.blockwise import (
    BLOCK_WIDTH,
    EIGHT_BIT_ACTIVATIONS,
    PRODUCTS,
    TABLES,
    has_weights,
    in_blocks,
    split_gemms,
)
from tasks.exports.graph import save

CLOSE = 1e-4
"""How far the multiple of a step may be from a whole number, in steps, where floats were rounded."""
OWN_OPERATIONS = "com.microsoft"


def write_trained_bits(source: Path, target: Path) -> None:
    """Write a graph whose products have the codes for which they were trained, and whose tables are in four bits."""
    model = onnx.load(str(source))
    split_gemms(model.graph)
    save(in_blocks(with_codes(model), (TABLES,)), target)


def with_codes(model: ModelProto) -> ModelProto:
    """Replace products with constant weights by products with codes."""
    graph = model.graph
    constants = {one.name: one for one in graph.initializer}
    packed: dict[str, list[TensorProto]] = {}
    nodes = []
    for node in graph.node:
        if node.op_type != PRODUCTS or not has_weights(node, constants):
            nodes.append(node)
            continue
        name = node.input[1]
        weights_IO = numpy_helper.to_array(constants[name])
        codes_ONW, steps_ON = codes_and_steps(weights_IO.T)
        bits = 2 if codes_ONW.min() >= -2 and codes_ONW.max() <= 1 else 4
        packed[name] = [
            numpy_helper.from_array(as_bytes(codes_ONW, bits), f"{name}_codes"),
            numpy_helper.from_array(steps_ON.ravel(), f"{name}_steps"),
        ]
        nodes.append(product_of(node, weights_IO.shape, bits))
    left = [one for one in graph.initializer if one.name not in packed]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*left, *(one for each in packed.values() for one in each)])
    if not any(one.domain == OWN_OPERATIONS for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(OWN_OPERATIONS, 1))
    return model


def product_of(node: NodeProto, shape: tuple[int, ...], bits: int) -> NodeProto:
    """Return the product of states and codes that replaces a product."""
    name = node.input[1]
    return helper.make_node(
        "MatMulNBits",
        [node.input[0], f"{name}_codes", f"{name}_steps"],
        list(node.output),
        name=node.name,
        domain=OWN_OPERATIONS,
        K=shape[0],
        N=shape[1],
        bits=bits,
        block_size=BLOCK_WIDTH,
        accuracy_level=EIGHT_BIT_ACTIVATIONS,
    )


def codes_and_steps(weights_OI: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes [O, N, W] of weights in blocks, and the step [O, N] of each block. Raises ModelError for a block
    that is whole multiples of no step: rounding it here would serve another model than the one that was trained."""
    missing = -weights_OI.shape[1] % BLOCK_WIDTH
    blocks_ONW = np.pad(weights_OI, ((0, 0), (0, missing))).reshape(len(weights_OI), -1, BLOCK_WIDTH)
    places = np.abs(blocks_ONW).argmax(-1)[..., None]
    largest_ON1 = np.take_along_axis(blocks_ONW, places, -1)
    codes_ONW, steps_ON1 = np.zeros_like(blocks_ONW), np.zeros_like(largest_ON1)
    known_ON1 = largest_ON1 == 0
    # A table's grid comes first, whose largest weight has the code -8; of the others the fewest codes last, which stay.
    for own_ON1 in (
        largest_ON1 / np.float32(-8),
        *(np.abs(largest_ON1) / np.float32(count) for count in range(8, 0, -1)),
    ):
        multiples_ONW = in_steps(blocks_ONW, own_ON1)
        whole_ONW = np.rint(multiples_ONW)
        fits_ON1 = ((np.abs(multiples_ONW - whole_ONW) < CLOSE) & (whole_ONW <= 7)).all(-1, keepdims=True)
        codes_ONW = np.where(fits_ON1, whole_ONW, codes_ONW)
        steps_ON1 = np.where(fits_ON1, own_ON1, steps_ON1)
        known_ON1 = known_ON1 | fits_ON1
    if not known_ON1.all():
        raise ModelError(
            f"{int((~known_ON1).sum()):,} of {known_ON1.size:,} blocks of {BLOCK_WIDTH} weights of a matrix "
            f"{list(weights_OI.shape)} are multiples of no step, so that it is not as it was trained for few bits; "
            f"export the folder that this training wrote, unchanged"
        )
    return codes_ONW.astype(np.int8), steps_ON1[..., 0].astype(np.float32)


def in_steps(values: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return values in steps; 0 in a block of zeros."""
    return np.asarray(values / np.where(steps == 0, np.float32(1), steps))


def as_bytes(codes_ONW: np.ndarray, bits: int) -> np.ndarray:
    """Return codes without signs, several to a byte, the first in its lowest bits."""
    unsigned_ONW = (codes_ONW + 2 ** (bits - 1)).astype(np.uint8)
    in_byte = 8 // bits
    parts = [unsigned_ONW[..., place::in_byte] << np.uint8(bits * place) for place in range(in_byte)]
    return np.bitwise_or.reduce(parts)
