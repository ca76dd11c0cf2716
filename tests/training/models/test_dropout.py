"""Cheap masks drop what torch's would drop: the right share, each unit for itself, and the mean stays."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss, mean_of
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.dropout import MASKS, Dropout, Masks, cheap_masks


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_and_the_mean(share: float, dtype: torch.dtype) -> None:
    masks = Masks()
    masks.start(1, 2)
    drawn = masks.draw(torch.empty(1000, 1001, dtype=dtype), share)
    assert drawn.dtype == dtype and drawn.shape == (1000, 1001)
    assert float((drawn == 0).float().mean()) == pytest.approx(share, abs=0.002)
    assert float(drawn.float().mean()) == pytest.approx(1, abs=0.005)
    assert float((drawn == 0).float().mean(0).std()) == pytest.approx((share * (1 - share) / 1000) ** 0.5, rel=0.2), (
        "units fall independently"
    )


def test_a_step_draws_what_it_drew_before() -> None:
    masks, like = Masks(), torch.empty(4, 50)
    draws = []
    for names in ((0, 7, 0), (0, 8, 0), (0, 7, 1), (0, 7, 0)):
        masks.start(*names)
        draws.append((masks.draw(like, 0.5), masks.draw(like, 0.5)))
    assert all(torch.equal(first, again) for first, again in zip(draws[0], draws[3], strict=True))
    assert (
        not torch.equal(draws[0][0], draws[0][1])
        and not torch.equal(draws[0][0], draws[1][0])
        and not torch.equal(draws[0][0], draws[2][0])
    )


def test_gradients_pass_where_units_were_kept() -> None:
    MASKS.start(0)
    values = torch.ones(2, 30, requires_grad=True)
    out = Dropout(0.3)(values)
    out.sum().backward()
    assert (
        torch.equal(out.detach(), values.grad) and (out == 0).any() and torch.equal(Dropout(0.3).eval()(values), values)
    )


def test_every_step_of_a_training_draws_anew(tmp_path: Path) -> None:
    modules = nn.Sequential(nn.Linear(1, 200), nn.Dropout(0.5))
    seen: list[torch.Tensor] = []

    def loss(indices: Indices) -> Loss:
        out = modules(torch.ones(1, 1))
        seen.append(out == 0)
        return mean_of(out.sum(), 1)

    text = Encoded(np.zeros(1), np.zeros(1), np.arange(2))
    knobs = SimpleNamespace(
        steps=6,
        seed=0,
        learning_rate=1e-6,
        weight_decay=0.0,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        warmup=0,
        schedule="constant",
        clip=1.0,
        precision="fp32",
        evaluations=0,
        checkpoint_minutes=1e9,
    )
    job = Job({"job": "test", "knobs": {}, "output": str(tmp_path), "checkpoints": str(tmp_path / "checkpoints")})
    spec = TrainingSpec(modules, lambda number: Epoch(number, text, [np.arange(1)] * 3), loss)
    train(job, knobs, spec, torch.device("cpu"))
    assert len({tuple(mask.flatten().tolist()) for mask in seen}) == 6
    MASKS.start(0, 4, 0)
    assert torch.equal(seen[4], MASKS.draw(torch.empty(1, 200), 0.5) == 0), (
        "drawn from our own stream, named by seed, step and process"
    )


def test_every_dropout_is_exchanged_and_given_back() -> None:
    modules = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.1)), nn.Dropout(0.0))
    before = list(modules.modules())
    with cheap_masks(modules):
        assert [type(module) for module in modules.modules()][-2:] == [Dropout, nn.Dropout], (
            "a dropout of nothing costs nothing"
        )
    assert all(module is other for module, other in zip(modules.modules(), before, strict=True))
