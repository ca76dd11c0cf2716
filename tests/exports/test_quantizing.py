"""Ranges of a graph that is quantized statically: those of the sample, or without its outliers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from flows.branches.export import fits_seven_bits
from tasks.exports.quantizing import quantize_by
from tasks.recipe.judging import Exports
from tasks.recipe.slices import QuantizeSlice
from tasks.scoring.onnx_models import open_session

WIDTH, ROWS = 64, 40
DRAW = np.random.default_rng(0)
WEIGHTS_DD = (DRAW.standard_normal((WIDTH, WIDTH)) / 8).astype(np.float32)
STATES_ND = DRAW.standard_normal((ROWS, WIDTH)).astype(np.float32)
OUTLIER = 500.0


def graph_in(folder: Path) -> Path:
    """Write a graph of one product."""
    node = helper.make_node("MatMul", ["x", "weights"], ["y"])
    given, made = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, WIDTH]) for name in "xy")
    graph = helper.make_graph([node], "one", [given], [made], [numpy_helper.from_array(WEIGHTS_DD, "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "x.onnx")
    return folder / "x.onnx"


def sample() -> Iterator[Mapping[str, np.ndarray]]:
    """Yield rows one at a time; one number of all is far from the others."""
    for row in range(ROWS):
        states_1D = STATES_ND[row : row + 1].copy()
        states_1D[0, 0] = OUTLIER if row == 7 else states_1D[0, 0]
        yield {"x": states_1D}


def largest_error(folder: Path, way: str, percentile: float | None) -> float:
    """Return how far a quantized graph is off on states without outliers."""
    target = folder / f"{way}-{percentile}.onnx"
    quantize_by(
        way, graph_in(folder), target, reduce_range=fits_seven_bits(Exports()), feeds=sample, percentile=percentile
    )
    (found_ND,) = open_session(target, 1).run(None, {"x": STATES_ND})
    return float(np.abs(found_ND - STATES_ND @ WEIGHTS_DD).max())


def test_an_outlier_takes_the_codes_of_all_other_states_unless_it_is_clipped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The range of one outlier left two codes for all other states."""
    whole, clipped = (largest_error(tmp_path, "static", percentile) for percentile in (None, 99.9))
    assert clipped < whole / 4, (whole, clipped)
    assert capfd.readouterr().out == "", "the library prints each histogram"


def test_dynamic_has_no_range_to_clip(tmp_path: Path) -> None:
    assert largest_error(tmp_path, "dynamic", 99.9) == largest_error(tmp_path, "dynamic", None)


def test_a_percentile_is_in_the_key_only_where_it_is_given() -> None:
    given = {"task_type": "classification", "metric": "accuracy"}
    assert "clip_percentile" not in QuantizeSlice(**given).key_values()
    assert QuantizeSlice(**given, clip_percentile=99.9).key_values()["clip_percentile"] == 99.9
    with pytest.raises(ValueError, match="less than 100"):
        Exports(clip_percentile=100)
