"""Post-processing of a traced ONNX graph, without any change of its results: remove data about the tracing machine, and
avoid a slow fusion in ONNX Runtime.

The trace records the source line of every operation, with folder names of the machine that traced it. ONNX Runtime
fuses a residual addition with the following layer norm into one operation that takes four times as long on a CPU as the
two. A ``Sum`` of two inputs computes the same and is not fused.
"""

from __future__ import annotations

from pathlib import Path

import onnx

LARGEST = 2**31 - 2**20
"""Maximum size of one ONNX file, in bytes."""


def tidy(path: Path) -> None:
    """Rewrite a graph's file without data about its origin, and with residual additions that ONNX Runtime does not fuse
    with layer norms."""
    model = onnx.load(str(path), load_external_data=False)
    forget(model)
    part_sums(model.graph)
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


def opset_of(path: Path) -> int:
    """Return the version of ONNX's own operations that a graph's file uses."""
    opsets = onnx.load(str(path), load_external_data=False).opset_import
    return next(int(one.version) for one in opsets if one.domain in ("", "ai.onnx"))


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph with deterministic serialization, so that the same model gives the same bytes."""
    path.write_bytes(model.SerializeToString(deterministic=True))
