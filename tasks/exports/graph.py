"""What is changed in a graph after it was traced: nothing that it computes, only what it says of this machine and what
keeps ONNX Runtime slow.

A trace carries the source line of every operation, with the folders of the machine that traced it. And ONNX Runtime
joins a residual sum with the norm after it to one operation that takes four times as long on a CPU as the two: a
``Sum`` of two is the same sum, and is left alone.
"""

from __future__ import annotations

from pathlib import Path

import onnx

LARGEST = 2**31 - 2**20
"""Bytes that one ONNX file can hold."""


def tidy(path: Path) -> None:
    """Rewrite a graph's file: without notes of where it comes from, its residual sums kept apart from the norms."""
    model = onnx.load(str(path), load_external_data=False)
    forget(model)
    part_sums(model.graph)
    onnx.checker.check_model(model)
    save(model, path)


def forget(model: onnx.ModelProto) -> None:
    """Strike out names of producers, source lines, and shapes of inner values, which quantization would read and which
    are not always right."""
    model.ClearField("doc_string")
    model.ClearField("metadata_props")
    for part in (model.graph, *model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    del model.graph.value_info[:]
    model.producer_name, model.producer_version = "limbeck", ""


def part_sums(graph: onnx.GraphProto) -> int:
    """Turn each ``Add`` that a norm reads into a ``Sum``; return how many there were."""
    makers = {output: node for node in graph.node for output in node.output}
    norms = (makers.get(node.input[0]) for node in graph.node if node.op_type == "LayerNormalization")
    sums = [node for node in norms if node is not None and node.op_type == "Add"]
    for node in sums:
        node.op_type = "Sum"
    return len(sums)


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph with its operations' names made plain, so that the same model gives the same bytes."""
    path.write_bytes(model.SerializeToString(deterministic=True))
