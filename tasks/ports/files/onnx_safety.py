"""Checks of the ONNX graphs of a pulled model.

A graph is data, and ONNX Runtime runs only its own operations. There are two exceptions: weights in another file, named
by a path, and operations of a domain that needs a third-party library. Limbeck's own graphs contain neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import RegistryError
from tasks.ports.code.fingerprint import hash_file

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

FOLDER, CARD = "onnx", "onnx.json"
EXPORT_TAGS = {
    "onnx.sha256": f"{FOLDER}/model.onnx",
    "int8.sha256": f"{FOLDER}/model_int8.onnx",
    "int8-table4.sha256": f"{FOLDER}/model_int8_table4.onnx",
    "four-bit.sha256": f"{FOLDER}/model_four_bit.onnx",
    "executorch.sha256": f"{FOLDER}/model.pte",
    "executorch-int8.sha256": f"{FOLDER}/model_int8.pte",
}
"""Tags of a version, and the file of which each is the digest."""
PROGRAM = (".pte", b"ET12")
"""Suffix and identifier of a program of ExecuTorch, which holds its weights and names kernels of the runtime alone."""
DOMAINS = ("", "ai.onnx", "com.microsoft")
"""The domains of ONNX's own operations, and of those that every ONNX Runtime contains."""


def require_plain_graph(path: Path | None, digest: str | None, name: str, whose: str) -> None:
    """Refuse a graph that does not match its digest, has no digest, or refers to anything outside of its file."""
    if digest is None or path is None or hash_file(path, remember=False) != digest:
        raise RegistryError(f"the export {name} of {whose} is not the evaluated one; nothing was written")
    problem = outside_of(path)
    if problem:
        raise RegistryError(f"the export {name} of {whose} {problem}; nothing was written")


def outside_of(path: Path) -> str:
    """Return the problem with a graph that refers to anything outside of its file; empty if there is none."""
    if path.suffix == PROGRAM[0]:
        with path.open("rb") as stream:
            return "" if stream.read(8)[4:] == PROGRAM[1] else "cannot be read as a program of ExecuTorch"
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError:
        return "cannot be read as ONNX"
    if not model.graph.node:  # nearly any bytes can be parsed as an empty message
        return "cannot be read as ONNX"
    foreign = sorted({*domains(model)} - {*DOMAINS})
    if foreign:
        return f"uses operations of {', '.join(foreign)}, which ONNX Runtime does not include"
    elsewhere = [tensor.name for tensor in tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    return f"stores the weights {elsewhere[0]} in another file" if elsewhere else ""


def domains(model: ModelProto) -> Iterator[str]:
    """Yield the domains of all operations, declared or used."""
    yield from (each.domain for each in model.opset_import)
    yield from (function.domain for function in model.functions)
    yield from (node.domain for node in nodes(model))


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield the operations of a graph, of its subgraphs and of its functions."""
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(inner for graph in graphs_in(node) for inner in graph.node)


def graphs_in(node: NodeProto) -> list[GraphProto]:
    """Return the subgraphs of an operation."""
    return [
        graph
        for attribute in node.attribute
        for graph in (attribute.g, *attribute.graphs)
        if graph.node or graph.initializer
    ]


def tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor of a graph and its subgraphs."""
    own = [(node, graphs_in(node)) for node in nodes(model)]
    for graph in (model.graph, *(graph for _, graphs in own for graph in graphs)):
        yield from graph.initializer
        yield from (part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices))
    for node, _ in own:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
