"""Masks of weights compared with the shared oracles, and their properties."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from tasks.methods.pruning.weight_masks import WeightMask, cubic, largest, masks_of, pressure, share_above
from tests.methods.oracles import EXACT, Oracle, reads

KEPT = [f"{name}_keep_{share}" for share in (1.0, 0.5, 0.15, 0.03, 0.0) for name in ("topk", "magnitude")]
MASKED = ("masked_linear_topK", "masked_linear_magnitude", "masked_linear_sigmoid_threshold")


@reads("pruning", *KEPT)
def test_the_largest_scores_are_the_references(oracle: Oracle) -> None:
    content, tensors = oracle.content, oracle.tensors
    [place] = content["inputs"].values()
    scores = tensors[place].abs() if oracle.name.startswith("magnitude") else tensors[place]
    [mask] = masks_of([scores], oracle.knobs.keep_fraction, "matrix")
    assert torch.equal(mask.double(), tensors[content["expected_tensors"]["mask"]])


@reads("pruning", *MASKED)
def test_a_masked_map_and_its_gradients_are_the_references(oracle: Oracle) -> None:
    content, tensors = oracle.content, oracle.tensors
    inputs = {name: tensors[place] for name, place in content["inputs"].items()}
    linear = nn.Linear(24, 12).double()
    linear.weight.data, linear.bias.data = inputs["weight"].clone(), inputs["bias"].clone()
    given_BI, scores = inputs["input"].requires_grad_(), inputs.get("scores", inputs["weight"].abs())
    mask = WeightMask(linear.weight.detach(), inputs.get("scores"))
    threshold = oracle.knobs.threshold
    sigmoid = "sigmoid" in oracle.name
    mask.mask.copy_(scores.sigmoid() > threshold if sigmoid else masks_of([scores], threshold, "matrix")[0])
    parametrize.register_parametrization(linear, "weight", mask)
    output = linear(given_BI)
    loss = (output * inputs["upstream"]).sum()
    loss.backward()
    torch.testing.assert_close(output, tensors[content["expected_tensors"]["output"]], **EXACT)
    assert float(loss) == pytest.approx(oracle.loss, rel=1e-9)
    found = {"weight": linear.parametrizations.weight.original.grad, "bias": linear.bias.grad, "input": given_BI.grad}
    found |= {} if mask.scores is None else {"scores": mask.scores.grad}
    expected = content["expected_gradients"]["with_respect_to"]
    assert {f"in.{name}" for name in found} == set(expected)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, tensors[expected[f"in.{name}"]], **EXACT)


@reads("pruning", "keep_schedule")
def test_the_cubic_ramp_is_the_references(oracle: Oracle) -> None:
    for setting in oracle.content["settings"]:
        warm = setting["warmup_steps"]
        begin, end = setting["initial_warmup"] * warm, setting["total_steps"] - setting["final_warmup"] * warm
        for value in setting["values"]:
            ends = setting["initial_threshold"], setting["final_threshold"]
            assert cubic(value["step"], begin, end, *ends) == pytest.approx(value["threshold"], rel=1e-12)


@reads("movement_regulariser", "l1")
def test_the_pressure_of_soft_movement_is_the_references(oracle: Oracle) -> None:
    tensors, content = oracle.tensors, oracle.content
    scores = {place: tensors[place].requires_grad_() for place in content["inputs"]["scores"]}
    loss = pressure(list(scores.values()))
    loss.backward()
    assert float(loss) == pytest.approx(oracle.loss, rel=1e-9)
    for place, gradient in content["expected_gradients"].items():
        torch.testing.assert_close(scores[place].grad, tensors[gradient], **EXACT)


@reads("movement_regulariser", "threshold_schedule")
def test_the_threshold_of_soft_movement_rises_as_the_references(oracle: Oracle) -> None:
    knobs, content = oracle.knobs, oracle.content
    begin = knobs.initial_warmup * knobs.warmup_steps
    end = knobs.total_step - knobs.final_warmup * knobs.warmup_steps
    for step, threshold, weight in content["expected"]["step, threshold, weight"]:
        assert cubic(step, begin, end, 0.0, 0.1) == pytest.approx(threshold, abs=1e-12)
        assert 400 * cubic(step, begin, end, 0.0, 1.0) == pytest.approx(weight, abs=1e-9)


def test_a_ramp_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="from step 10 to step 10 has no length"):
        cubic(3, 10, 10, 1.0, 0.1)


def test_equal_scores_do_not_let_more_weights_stay_than_asked_for() -> None:
    first, second = largest([torch.zeros(2, 3), torch.tensor([[0.0, 1.0]])], 3)
    assert first.tolist() == [[True, True, False], [False, False, False]] and second.tolist() == [[False, True]]


def test_a_transposed_tensor_of_scores_has_the_same_mask() -> None:
    scores = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(largest([scores.T], 9)[0], largest([scores.T.contiguous()], 9)[0])
    assert torch.equal(largest([scores.T], 9)[0].T, largest([scores], 9)[0])


def test_over_all_matrices_a_weak_one_loses_more() -> None:
    weak, strong = torch.full((4, 4), 0.1), torch.full((4, 4), 1.0)
    assert [int(mask.sum()) for mask in masks_of([weak, strong], 0.5, "global")] == [0, 16]
    assert [int(mask.sum()) for mask in masks_of([weak, strong], 0.5, "matrix")] == [8, 8]


def test_the_share_above_a_threshold_counts_sigmoids() -> None:
    scores = [torch.tensor([-10.0, -2.0]), torch.tensor([0.0, 5.0])]
    assert share_above(scores, 0.1) == 0.75 and share_above(scores, 0.0) == 1.0
