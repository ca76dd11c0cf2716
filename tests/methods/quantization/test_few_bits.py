"""Learned steps compared with the shared oracles, ternary weights, and their properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tasks.methods.quantization.grids import as_blocks
from tasks.methods.quantization.learned_steps import LearnedGrid, first_steps, nearest_steps, on_learned_grid
from tasks.methods.quantization.ternary import TernaryGrid, ternary
from tests.methods.oracles import EXACT, Oracle, reads
from tests.methods.quantization.test_grids import drawn


@reads("lsq", "activation_8bit", "activation_4bit", "activation_2bit")
def test_learned_steps_of_states_are_the_references(oracle: Oracle) -> None:
    content, tensors = oracle.content, oracle.tensors
    values = tensors[content["inputs"]["x"]].requires_grad_()
    assert float(first_steps(values.detach().flatten(), oracle.knobs.bits)) == pytest.approx(
        oracle.knobs.step, rel=1e-6
    )
    step = torch.tensor(oracle.knobs.step, dtype=torch.float64, requires_grad=True)
    found = on_learned_grid(values, step, oracle.knobs.bits)
    (found * tensors[content["inputs"]["upstream"]]).sum().backward()
    expected = content["expected_gradients"]
    torch.testing.assert_close(found.detach(), tensors[content["expected_tensors"]["fake"]], **EXACT)
    torch.testing.assert_close(values.grad, tensors[expected["in.x"]], **EXACT)
    assert step.grad is not None and float(step.grad) == pytest.approx(expected["step"], rel=1e-9)


@reads("lsq", "weight_by_row_8bit", "weight_by_row_4bit", "weight_by_row_2bit")
def test_learned_steps_of_rows_are_the_references(oracle: Oracle) -> None:
    content, tensors = oracle.content, oracle.tensors
    weight_OI, steps_O = (tensors[content["inputs"][name]].requires_grad_() for name in ("weight", "step"))
    found = on_learned_grid(weight_OI, steps_O[:, None], oracle.knobs.bits)
    (found * tensors[content["inputs"]["upstream"]]).sum().backward()
    expected = content["expected_gradients"]
    torch.testing.assert_close(found.detach(), tensors[content["expected_tensors"]["fake"]], **EXACT)
    torch.testing.assert_close(weight_OI.grad, tensors[expected["in.weight"]], **EXACT)
    torch.testing.assert_close(steps_O.grad, tensors[expected["step"]], **EXACT)


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("width", [40, 64])
def test_every_block_has_as_many_values_as_its_bits_allow(bits: int, width: int) -> None:
    weight_OI = drawn(10, width)
    grid = LearnedGrid(weight_OI, bits)
    blocks_ONW = as_blocks(grid(weight_OI).detach())
    assert all(len(block.unique()) <= 2**bits for row in blocks_ONW for block in row)
    with torch.no_grad():
        errors = [float((LearnedGrid(weight_OI, each)(weight_OI) - weight_OI).square().mean()) for each in (2, 3, 4)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.05


def test_the_step_of_a_short_last_block_is_that_of_its_own_weights() -> None:
    weight_OI = drawn(4, 40)
    steps_ON = LearnedGrid(weight_OI, 4).step.view(4, 2)
    for place, part in enumerate((weight_OI[:, :32], weight_OI[:, 32:])):
        expected_O = 2 * part.abs().mean(1) / math.sqrt(7)
        torch.testing.assert_close(steps_ON[:, place].detach(), expected_O)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_the_nearest_step_leaves_less_error_than_any_other(bits: int) -> None:
    """Also where a row is on a grid already, is 0, or has one large value; a row may be clipped."""
    rows = drawn(5, 32)
    rows[1] = 0.0
    rows[2] = torch.linspace(1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1, 32).round() * 0.25
    rows[3, 0] = 40.0

    def errors(step: torch.Tensor) -> torch.Tensor:
        return (on_learned_grid(rows, step, bits) - rows).square().sum(-1)

    least = errors(nearest_steps(rows, bits))
    assert least[1] == 0 and float(least[2]) < 1e-10
    whole = rows.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    others = [first_steps(rows, bits), *((whole * share).clamp(min=1e-8) for share in np.linspace(0.05, 1, 20))]
    assert all((least <= errors(one) * 1.01 + 1e-12).all() for one in others[1:])
    if bits < 8:  # of eight bits no number of tries is as fine
        assert (least[[0, 4]] < errors(others[0])[[0, 4]]).all()


def test_steps_are_not_decayed() -> None:
    """The optimizer decays what has more than one axis."""
    assert LearnedGrid(drawn(4, 64), 2).step.ndim == 1


def test_ternary_weights_are_those_of_the_paper() -> None:
    values = drawn(5, 32)
    found = ternary(values).numpy()
    for row, rounded in zip(values.numpy(), found, strict=True):
        above = np.abs(row) > 0.7 * np.mean(np.abs(row))
        scale = np.mean(np.abs(row[above]))
        assert rounded == pytest.approx(np.where(above, np.sign(row) * scale, 0), rel=1e-5)
        assert len(np.unique(rounded)) == 3


def test_the_empty_places_of_a_short_block_count_for_nothing() -> None:
    weight_OI = drawn(3, 40)
    short = torch.cat([ternary(weight_OI[:, :32]), ternary(weight_OI[:, 32:])], 1)
    torch.testing.assert_close(TernaryGrid()(weight_OI), short)
    assert not TernaryGrid()(torch.zeros(2, 40)).any()
