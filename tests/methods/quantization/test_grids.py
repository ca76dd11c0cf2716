"""Integer grids compared with the shared oracles, the literature's formula, and their properties."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.methods.quantization.grids import (
    SHARING,
    OutputGrid,
    asymmetric,
    fake_symmetric,
    largest_code,
    of_each_block,
    of_each_text,
    step_and_zero,
    step_of_all,
    steps_of_outputs,
    table_in_four_bits,
)
from tests.methods.oracles import EXACT, Oracle, reads

SINGLE = {"rtol": 1e-6, "atol": 1e-6}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the references ---------------------------------------------------------------------------------------------------


@reads("int8_grids", "eight_bits", "seven_bits")
def test_matrices_and_tables_have_the_codes_of_the_graph(oracle: Oracle) -> None:
    expected = oracle.content["expected_tensors"]
    tensors = {name: value.float() if value.is_floating_point() else value for name, value in oracle.tensors.items()}
    weight_OI, table_VD = tensors["in.weight"], tensors["in.embedding"]
    largest = 64 if oracle.knobs.reduce_range else 127
    steps_O1 = steps_of_outputs(weight_OI, largest)
    torch.testing.assert_close(steps_O1[:, 0], tensors[expected["weight_scale"]], **SINGLE)
    codes_OI = (OutputGrid(largest)(weight_OI) / steps_O1).round()
    assert torch.equal(codes_OI.to(torch.int8), tensors[expected["weight_codes"]])
    step, zero = step_and_zero(table_VD.min(), table_VD.max())
    assert float(step) == pytest.approx(oracle.scalars["embedding_scale"], rel=1e-6)
    assert float(zero) == oracle.scalars["embedding_zero_point"]
    rounded_VD = asymmetric(table_VD, table_VD.min(), table_VD.max())
    assert torch.equal((rounded_VD / step + zero).round().to(torch.uint8), tensors[expected["embedding_codes"]])
    torch.testing.assert_close(rounded_VD[tensors["in.ids"]], tensors[expected["x"]], **SINGLE)


@reads("int8_grids", "activation_usual", "activation_all_positive", "activation_one_row_of_two", "activation_zeros")
def test_states_have_the_codes_of_the_graph(oracle: Oracle) -> None:
    states, expected = oracle.tensors[oracle.content["inputs"]["x"]].float(), oracle.content["expected_tensors"]
    step, zero = step_and_zero(states.min(), states.max())
    assert float(step) == pytest.approx(oracle.scalars["scale"], rel=1e-6)
    assert float(zero) == oracle.scalars["zero_point"]
    rounded = asymmetric(states, states.min(), states.max())
    assert torch.equal((rounded / step + zero).round().to(torch.uint8), oracle.tensors[expected["codes"]])
    if len(states) == 1:
        assert torch.equal(of_each_text(states, None), rounded), "a text that is asked alone"


@reads("int8_grids", "linear_dynamic")
def test_a_map_computes_as_the_graph(oracle: Oracle) -> None:
    given = {name: oracle.tensors[place].float() for name, place in oracle.content["inputs"].items()}
    states = asymmetric(given["x"], given["x"].min(), given["x"].max())
    found = F.linear(states, OutputGrid(127)(given["weight"]), given["bias"])
    torch.testing.assert_close(found, oracle.tensors[oracle.content["expected_tensors"]["y"]].float(), **SINGLE)


@reads("q8bert", "dynamic_8bit", "dynamic_4bit", "dynamic_2bit")
def test_symmetric_rounding_and_its_gradient_are_the_references(oracle: Oracle) -> None:
    values, expected = oracle.tensors["in.x"].requires_grad_(), oracle.content["expected_tensors"]
    step = step_of_all(values, oracle.knobs.bits)
    fake = fake_symmetric(values, step, largest_code(oracle.knobs.bits))
    loss = fake.square().sum()
    loss.backward()
    assert float(1 / step) == pytest.approx(oracle.scalars["scale"], rel=1e-9)
    torch.testing.assert_close(fake.detach(), oracle.tensors[expected["fake"]], **EXACT)
    assert float(loss.detach()) == pytest.approx(oracle.loss, rel=1e-9)
    [gradient] = oracle.content["expected_gradients"]["with_respect_to"].values()
    torch.testing.assert_close(values.grad, oracle.tensors[gradient], **EXACT)


@reads("q8bert", "embedding")
def test_rows_of_a_rounded_table_are_the_references(oracle: Oracle) -> None:
    table_VD, expected = oracle.tensors["in.embedding"].requires_grad_(), oracle.content["expected_tensors"]
    rows = fake_symmetric(table_VD, step_of_all(table_VD, 8), 127)[oracle.tensors["in.ids"]]
    loss = rows.square().sum()
    loss.backward()
    torch.testing.assert_close(rows.detach(), oracle.tensors[expected["training"]], **EXACT)
    assert float(loss.detach()) == pytest.approx(oracle.loss, rel=1e-9)
    [gradient] = oracle.content["expected_gradients"]["with_respect_to"].values()
    torch.testing.assert_close(table_VD.grad, oracle.tensors[gradient], **EXACT)


# --- the literature's formula -----------------------------------------------------------------------------------------


def as_written(values: Tensor, bits: int) -> Tensor:
    """Round as a formula does that is often taught: the step is (max - min) / 2^(bits - 1), and the offset is no whole
    number."""
    low, high = values.min(), values.max()
    step = (high - low) / 2 ** (bits - 1)
    return ((values - low) / step).round() * step + low


def test_the_formula_as_it_is_often_written_throws_a_bit_away_and_has_no_zero() -> None:
    values = torch.cat([drawn(20_000), torch.zeros(1)])
    ours, theirs = asymmetric(values, values.min(), values.max()), as_written(values, 8)
    assert len(ours.unique()) > 200 and len(theirs.unique()) <= 129, "half of the codes: one bit"
    errors = [float((one - values).abs().max()) for one in (ours, theirs)]
    assert errors[1] > 1.9 * errors[0], "a step twice as long"
    squares = [float((one - values).square().mean()) for one in (ours, theirs)]
    assert squares[1] == pytest.approx(4 * squares[0], rel=0.1), "four times the noise"
    assert float(ours[-1]) == 0 and float(theirs[-1]) != 0, "padding and masked states are no zeros any more"


# --- properties -------------------------------------------------------------------------------------------------------


def test_neither_neighbours_nor_padding_change_how_a_text_is_rounded() -> None:
    alone, mask_BT = drawn(1, 3, 40), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    padded = torch.cat([alone, 50 * drawn(1, 2, 40, seed=1)], 1)
    together = torch.cat([padded, 9 * drawn(1, 5, 40, seed=2)])
    assert torch.equal(of_each_text(together, mask_BT)[0, :3], of_each_text(alone, None)[0])
    assert torch.equal(of_each_block(together)[0, :3], of_each_block(alone)[0])
    whole = asymmetric(together, together.min(), together.max())
    assert not torch.equal(whole[0, :3], of_each_text(alone, None)[0]), "one range for the call, as a graph has"


@pytest.mark.parametrize("width", [16, 32, 40, 96])
def test_of_a_table_in_four_bits_the_largest_weight_of_a_block_is_kept(width: int) -> None:
    table_VD = drawn(9, width)
    table_VD[0] = 0
    rounded_VD = table_in_four_bits(table_VD)
    assert torch.equal(table_in_four_bits(rounded_VD), rounded_VD) and not rounded_VD[0].any()
    for start in range(0, width, SHARING):
        block, found = table_VD[:, start : start + SHARING], rounded_VD[:, start : start + SHARING]
        at = block.abs().argmax(-1, keepdim=True)
        assert torch.equal(found.gather(-1, at), block.gather(-1, at))
        assert float((found - block).abs().max() / block.abs().max()) <= 1 / 8 + 1e-6


def test_what_is_on_a_grid_stays_where_it_is() -> None:
    weight_OI = OutputGrid(127)(drawn(12, 40))
    torch.testing.assert_close(OutputGrid(127)(weight_OI), weight_OI, rtol=1e-6, atol=0)


def test_gradients_pass_as_if_nothing_were_rounded() -> None:
    for function in (OutputGrid(127), of_each_block, table_in_four_bits, lambda given: of_each_text(given, None)):
        values, upstream = drawn(6, 40).requires_grad_(), drawn(6, 40, seed=1)
        (function(values) * upstream).sum().backward()
        assert torch.equal(values.grad if values.grad is not None else upstream * 0, upstream)
