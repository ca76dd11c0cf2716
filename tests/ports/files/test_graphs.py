"""Graphs that come in with a pulled model: nothing in them reaches outside of their file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tasks.errors import RegistryError
from tasks.ports.files.onnx_safety import outside_of, require_plain_graph
from tasks.ports.tracking.download import require_judged_exports


def write_graph(
    path: Path, nodes: list[Any], *, weights: TensorProto | None = None, domains: tuple[str, ...] = ("",)
) -> Path:
    """Write a small graph."""
    weights = weights or numpy_helper.from_array(np.ones(4, dtype=np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], initializer=[weights])
    onnx.save(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid(domain, 20 if domain == "" else 1) for domain in domains]
        ),
        str(path),
    )
    return path


ADD = helper.make_node("Add", ["x", "w"], ["y"])


def test_a_plain_graph_may_come_in(tmp_path: Path) -> None:
    path = write_graph(tmp_path / "model.onnx", [ADD], domains=("", "com.microsoft"))
    assert outside_of(path) == ""
    require_plain_graph(path, sha256(path.read_bytes()).hexdigest(), path.name, "it")


def test_operations_of_somebody_s_library_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("Run", ["x"], ["y"], domain="evil.example")
    assert "uses operations of evil.example" in outside_of(
        write_graph(tmp_path / "a.onnx", [node], domains=("", "evil.example"))
    )
    assert "uses operations of evil.example" in outside_of(
        write_graph(tmp_path / "b.onnx", [node])
    )  # used, though not declared


def test_so_are_those_that_a_branch_or_a_function_hides(tmp_path: Path) -> None:
    inner = helper.make_graph([helper.make_node("Run", ["x"], ["z"], domain="evil.example")], "inner", [], [])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    assert "evil.example" in outside_of(write_graph(tmp_path / "a.onnx", [branch]))
    path = write_graph(tmp_path / "b.onnx", [ADD])
    model = onnx.load(str(path))
    model.functions.append(
        helper.make_function(
            "own", "F", ["x"], ["z"], [helper.make_node("Run", ["x"], ["z"], domain="evil.example")], []
        )
    )
    onnx.save(model, str(path))
    assert "evil.example" in outside_of(path)


def test_weights_in_another_file_are_refused(tmp_path: Path) -> None:
    """The path in a graph is read by whoever loads it: ``/etc/passwd`` would do."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="/etc/passwd")
    path = write_graph(tmp_path / "a.onnx", [ADD], weights=weights)
    assert outside_of(path) == "stores the weights w in another file"
    with pytest.raises(
        RegistryError, match=r"the export a.onnx of it stores the weights w in another file; nothing was written"
    ):
        require_plain_graph(path, sha256(path.read_bytes()).hexdigest(), path.name, "it")
    hidden = helper.make_node("Constant", [], ["c"], value=weights)
    assert "in another file" in outside_of(write_graph(tmp_path / "b.onnx", [hidden, ADD]))


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"import os")
    assert outside_of(tmp_path / "model.onnx") == "cannot be read as ONNX"


@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_a_graph_that_nobody_judged_is_refused(tmp_path: Path, digest: str | None) -> None:
    path = write_graph(tmp_path / "model.onnx", [ADD])
    with pytest.raises(RegistryError, match="is not the evaluated one"):
        require_plain_graph(path, digest, path.name, "it")


def test_a_graph_that_is_missing_is_refused() -> None:
    with pytest.raises(RegistryError, match="is not the evaluated one"):
        require_plain_graph(None, "0" * 64, "onnx/model.onnx", "it")


def test_a_graph_of_another_name_is_refused(tmp_path: Path) -> None:
    """Nobody judged it, whatever a version's tags say of the others."""
    path = write_graph(tmp_path / "other.onnx", [ADD])
    with pytest.raises(RegistryError, match="the export onnx/other.onnx of m version 1 is not the evaluated one"):
        require_judged_exports({"onnx/other.onnx": path}, SimpleNamespace(name="m", version="1", tags={}))
