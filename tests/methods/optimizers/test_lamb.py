"""LAMB compared with the shared oracles, and the rules for shared and clipped gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.methods.optimizers.lamb import Lamb
from tests.methods.oracles import EXACT, Oracle, reads

NAMES = ("LayerNorm/gamma", "embeddings/table", "layer/bias", "layer/kernel", "zero/kernel")


@reads("lamb", "albert_defaults", "no_exclusions", "no_decay", "adapt_all_but_norms")
def test_three_steps_are_the_references(oracle: Oracle) -> None:
    knobs, given = oracle.knobs, oracle.tensors
    weights = {name: nn.Parameter(given[f"in.{name}"]) for name in NAMES}

    def out(name: str, left: list[str] | None) -> bool:
        return any(part in name for part in left or ())

    groups: list[dict[str, Any]] = [
        {
            "params": [weight],
            "weight_decay": 0.0 if out(name, knobs.left_out_of_decay) else knobs.weight_decay,
            "adapted": not out(name, knobs.left_out_of_layer_adaptation),
        }
        for name, weight in weights.items()
    ]
    optimizer = Lamb(groups, lr=knobs.learning_rate, betas=tuple(knobs.betas), eps=knobs.epsilon)
    for step in range(3):
        for name, weight in weights.items():
            weight.grad = given[f"in.grad{step}.{name}"]
        optimizer.step()
        for name, weight in weights.items():
            torch.testing.assert_close(weight.detach(), given[f"out.{oracle.name}.step{step}.{name}"], **EXACT)


def test_gradients_are_divided_before_the_moments_see_them() -> None:
    found = []
    for scale in (None, torch.tensor(4.0)):
        weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
        weight.grad = torch.tensor([[0.5, -0.25]]) * (1 if scale is None else scale)
        optimizer = Lamb([{"params": [weight]}], lr=0.1)
        optimizer.grad_scale = scale
        optimizer.step()
        found.append(weight.detach().clone())
    torch.testing.assert_close(found[0], found[1])


def test_a_module_in_two_places_has_one_ratio() -> None:
    inner = nn.Linear(3, 3, bias=False)
    outer = nn.Sequential(inner, inner)
    optimizer = Lamb([{"params": list(outer.parameters()), "weight_decay": 0.0}], lr=0.5)
    before = inner.weight.detach().clone()
    outer(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert len(optimizer.state) == 1
    assert float((inner.weight.detach() - before).norm()) == pytest.approx(0.5 * float(before.norm()), rel=1e-5)
