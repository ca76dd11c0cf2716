"""Graphs of models that are trained for few bits: the codes in them, and answers of every family and of a real model as
in training; those of a tiny model are compared in ``test_four_bits.py``, whose graph is there already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tasks.architectures.requirements import SERVED
from tasks.errors import ModelError
from tasks.exports.trained_bits import codes_and_steps, with_codes
from tasks.methods.quantization.grids import table_in_four_bits
from tasks.methods.quantization.learned_steps import LearnedGrid
from tasks.methods.quantization.ternary import TernaryGrid
from tests.exports.test_exports import EXPORT, do, write_rows
from tests.exports.trained_answers import TRAINED, answers_of_both, write_noisy, write_real_model
from tests.scoring.small import sentences

DRAWN = np.random.default_rng(11)


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codes", ["4", "3", "2", "ternary"])
@pytest.mark.parametrize("width", [40, 96])
def test_the_codes_of_a_trained_grid_are_found_again_bit_by_bit(codes: str, width: int) -> None:
    drawn_OI = torch.from_numpy(DRAWN.standard_normal((50, width)).astype(np.float32))
    drawn_OI[3, :32] = 0
    grid = TernaryGrid() if codes == "ternary" else LearnedGrid(drawn_OI, int(codes))
    weights_OI = grid(drawn_OI).detach().numpy()
    codes_ONW, steps_ON = codes_and_steps(weights_OI)
    bits = 2 if codes == "ternary" else int(codes)
    assert codes_ONW.min() >= -(2 ** (bits - 1)) and codes_ONW.max() <= 2 ** (bits - 1) - 1
    found_OI = (codes_ONW * steps_ON[..., None]).reshape(50, -1)[:, :width]
    assert found_OI == pytest.approx(weights_OI, rel=1e-5, abs=0)


def test_a_tied_map_keeps_the_grid_of_its_table() -> None:
    table_VD = table_in_four_bits(torch.from_numpy(DRAWN.standard_normal((50, 40)).astype(np.float32))).numpy()
    codes_VNW, steps_VN = codes_and_steps(table_VD)
    assert (codes_VNW * steps_VN[..., None]).reshape(50, -1)[:, :40] == pytest.approx(table_VD, rel=1e-5, abs=0)


def test_weights_that_are_multiples_of_no_step_are_refused() -> None:
    drawn_OI = torch.from_numpy(DRAWN.standard_normal((6, 64)).astype(np.float32))
    moved_OI = LearnedGrid(drawn_OI, 4)(drawn_OI).detach().numpy()[:, 16:]  # as where a graph leaves columns out
    with pytest.raises(ModelError, match=r"of 12 blocks of 32 weights of a matrix \[6, 48\] are multiples of no step"):
        codes_and_steps(moved_OI)


@pytest.mark.parametrize(("codes", "bits"), [("4", 4), ("3", 4), ("2", 2), ("ternary", 2)])
def test_a_product_takes_two_bits_where_they_suffice_and_computes_what_it_says(codes: str, bits: int) -> None:
    drawn_OI = torch.from_numpy(DRAWN.standard_normal((64, 72)).astype(np.float32))
    grid = TernaryGrid() if codes == "ternary" else LearnedGrid(drawn_OI, int(codes))
    weights_OI = grid(drawn_OI).detach().numpy()
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["states", "weights"], ["found"], name="map")],
        "maps",
        [helper.make_tensor_value_info("states", TensorProto.FLOAT, [3, 72])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [3, 64])],
        [numpy_helper.from_array(np.ascontiguousarray(weights_OI.T), "weights")],
    )
    made = with_codes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    [node] = made.graph.node
    assert {one.name: one.i for one in node.attribute}["bits"] == bits
    states = np.zeros((3, 72), np.float32)
    states[[0, 1, 2], [5, 40, 71]] = 1.0  # ones are rounded to themselves: the rows of the matrix come out
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"states": states})[0] == pytest.approx(weights_OI.T[[5, 40, 71]], abs=1e-5)


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", SERVED)
def test_every_family_that_is_trained_for_few_bits_answers_as_its_graph(family: str, tmp_path: Path) -> None:
    model = write_noisy(family, tmp_path)
    write_rows(tmp_path / "rows", train=20, selection=10, validation=10)
    full = tmp_path / "full" / "output"
    do("export", full, EXPORT, model=model, rows=tmp_path / "rows")
    for served_as, codes in TRAINED:
        ours, graph, _ = answers_of_both(model, full, sentences(30), served_as, codes)
        gap_N = np.abs(ours - graph).max(1)
        assert np.median(gap_N) <= 1e-5 and (ours.argmax(1) == graph.argmax(1)).all(), (served_as, codes, gap_N.max())


@pytest.mark.slow
@pytest.mark.real_data
def test_a_real_model_answers_500_texts_as_its_graphs_do(tmp_path: Path) -> None:
    """Of a model whose answers are decided, 99 % are equal, and no logit is further off than codes that flip on the way
    move it: some eighth of the distance between its two logits. In int8 the median is float32's own noise; in four-bit
    every block of 32 states has a range, so that codes flip in every text."""
    texts = write_real_model(tmp_path / "model")
    write_rows(tmp_path / "rows", train=20, selection=10, validation=10)
    full = tmp_path / "full" / "output"
    do("export", full, EXPORT | {"max_length": 64}, model=tmp_path / "model", rows=tmp_path / "rows")
    for served_as, codes in TRAINED:
        ours, graph, size = answers_of_both(tmp_path / "model", full, texts, served_as, codes)
        gap_N, equal = np.abs(ours - graph).max(1), (ours.argmax(1) == graph.argmax(1)).mean()
        print(f"{served_as} {codes}: {size:,} bytes, median {np.median(gap_N):.2g}, largest {gap_N.max():.2g}, {equal}")
        median = 0.02 if served_as == "four-bit" else 2e-6
        assert np.median(gap_N) <= median and equal >= 0.99 and gap_N.max() <= 0.5, (served_as, codes)
