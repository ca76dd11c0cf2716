"""Learned ranges of states: the reference's numbers where zero is in the middle, the paper's formulae elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tasks.methods.quantization.learned_ranges import measured_range, on_learned_range
from tests.methods.oracles import EXACT, Oracle, reads

DRAWN = np.random.default_rng(28)


@reads("lsq", "activation_8bit")
def test_a_range_with_zero_in_the_middle_is_the_reference_s(oracle: Oracle) -> None:
    """The reference is in float64, and states are rounded in float32, as graphs do: its values lie on no border."""
    content, tensors = oracle.content, oracle.tensors
    values = tensors[content["inputs"]["x"]].float().requires_grad_()
    step = torch.tensor([oracle.knobs.step], requires_grad=True)
    found = on_learned_range(values, step, 128)
    (found * tensors[content["inputs"]["upstream"]].float()).sum().backward()
    expected, wanted = content["expected_gradients"], tensors[content["expected_tensors"]["fake"]].float()
    torch.testing.assert_close(found.detach(), wanted, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(values.grad, tensors[expected["in.x"]].float(), **EXACT)
    assert step.grad is not None and float(step.grad) == pytest.approx(expected["step"], rel=1e-4)


@pytest.mark.parametrize("zero", [0, 4, 128, 200, 255])
def test_a_range_beside_zero_follows_the_paper_s_equations(zero: int) -> None:
    values_N, upstream_N = (DRAWN.standard_normal(400).astype(np.float32) for _ in range(2))
    step = np.float32(0.007)
    low, high = -zero, 255 - zero
    codes_N = np.rint(values_N / step)
    inside_N = (codes_N >= low) & (codes_N <= high)
    moved_N = np.where(inside_N, codes_N - values_N / step, np.clip(codes_N, low, high))
    given = torch.from_numpy(values_N).requires_grad_()
    learns = torch.tensor([step], requires_grad=True)
    found = on_learned_range(given, learns, zero)
    (found * torch.from_numpy(upstream_N)).sum().backward()
    assert found.detach().numpy() == pytest.approx(np.clip(codes_N, low, high) * step, abs=1e-7)
    assert given.grad is not None and (given.grad.numpy() == upstream_N * inside_N).all()
    scale = 1 / math.sqrt(400 * max(high, 1))
    assert learns.grad is not None
    assert float(learns.grad) == pytest.approx(float((upstream_N * moved_N).sum()) * scale, rel=1e-3)


@pytest.mark.parametrize(("low", "high", "zero"), [(-1.02, 1.0, 129), (0.0, 3.0, 0), (-0.17, 6.0, 7), (2.0, 5.0, 0)])
def test_a_measured_range_uses_all_codes_and_holds_zero(low: float, high: float, zero: int) -> None:
    found = measured_range(torch.tensor(low), torch.tensor(high))
    assert found.zero == zero
    assert found.step * 255 == pytest.approx(max(high, 0) - min(low, 0), rel=1e-5)
    ends = on_learned_range(torch.tensor([low, 0.0, high]), torch.tensor([found.step]), found.zero)
    assert ends.tolist() == pytest.approx([low, 0, high], abs=found.step) and ends[1] == 0


def test_a_smaller_error_is_found_by_training_the_step() -> None:
    """A few outliers set the measured range; the step that learns gives them up."""
    values = torch.from_numpy(DRAWN.standard_normal(4000).astype(np.float32))
    values[:2] = 300.0
    start = measured_range(values.min(), values.max())
    step = torch.tensor([start.step], requires_grad=True)

    def error() -> torch.Tensor:
        return (on_learned_range(values, step, start.zero) - values)[2:].square().mean()

    before, optimizer = error().item(), torch.optim.Adam([step], lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        error().backward()
        optimizer.step()
    assert error().item() < before / 2
