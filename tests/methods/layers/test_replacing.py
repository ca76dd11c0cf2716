"""Replacing modules: who stands in for whom, and how likely."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.errors import ModelError
from tasks.methods.layers.theseus import Replaceable, chance, groups


def test_every_layer_of_the_teacher_is_replaced_once() -> None:
    assert groups(6, 12) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert groups(3, 6) == [[0, 1], [2, 3], [4, 5]]
    for students in range(1, 8):
        assert sum(groups(students, 7), []) == list(range(7)) and all(groups(students, 7))
    with pytest.raises(ModelError):
        groups(4, 3)


def test_the_chance_rises_to_one() -> None:
    assert chance(0, 100, first=0.3, share=0.5) == pytest.approx(0.3)
    assert chance(25, 100, first=0.3, share=0.5) == pytest.approx(0.65)
    assert chance(50, 100, first=0.3, share=0.5) == chance(99, 100, first=0.3, share=0.5) == 1.0
    assert chance(1, 100, first=0.5, share=0.0) == 1.0


def test_one_or_the_other_runs() -> None:
    module = Replaceable(nn.Linear(1, 1, bias=False), [nn.Linear(1, 1, bias=False) for _ in range(2)])
    module.successor.weight.data.fill_(5.0)
    for predecessor in module.predecessors:
        predecessor.weight.data.fill_(2.0)
    one = torch.ones(1, 1)
    module.train()
    module.replaced = False
    assert float(module(one).detach()) == 4.0
    module.replaced = True
    assert float(module(one).detach()) == 5.0
    module.replaced = False
    assert float(module.eval()(one).detach()) == 5.0, "a finished student works alone"


def test_predecessors_are_neither_trained_nor_saved() -> None:
    module = Replaceable(nn.Linear(1, 1), [nn.Linear(1, 1)])
    assert {name.split(".")[0] for name in module.state_dict()} == {"successor"} and len(list(module.parameters())) == 2
