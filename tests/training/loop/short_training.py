"""A training that is real and takes a moment: a tiny BERT, text that changes after the first epoch, and ways to stop it
and to go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss, mean_of
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.loop import TrainingSpec, train

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 8,
}
KNOBS = SimpleNamespace(
    steps=12,
    epochs=1,
    seed=0,
    learning_rate=1e-2,
    weight_decay=0.1,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    warmup=0.1,
    schedule="linear",
    clip=0.5,
    precision="fp32",
    evaluations=2,
    checkpoint_minutes=1e9,
)
OFTEN = SimpleNamespace(**KNOBS.__dict__ | {"checkpoint_minutes": 0})
EPOCH = 4
PAD = 0
TEXTS = np.random.default_rng(0).integers(1, 30, (EPOCH * 2, 6))
LATER = TEXTS + 20  # brings tokens that the first epoch had not
TEXTS[:, 5] = PAD
Make = Callable[[nn.Module], TrainingSpec]


class Halted(Exception):
    """Something broke."""


def model(*, layers: int = 1, dropout: float = 0.0) -> BertForSequenceClassification:
    """Return a random model, the same every time."""
    torch.manual_seed(0)
    sizes = SIZES | {"num_hidden_layers": layers}
    return BertForSequenceClassification(
        BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **sizes)
    )


def spec(learned: Any, *, few: bool, count: Callable[[], None] = lambda: None, **more: Any) -> TrainingSpec:
    """A training whose text changes after the first epoch, as augmented text does, and which scores a token that no
    epoch shows; ``few``: of the input embedding, only the rows in use are trained."""

    def epoch(number: int) -> Epoch:
        ids_S = (TEXTS if number == 0 else LATER).ravel()
        encoded = Encoded(ids_S, np.zeros_like(ids_S), np.arange(0, len(ids_S) + 1, TEXTS.shape[1]))
        batches = list(np.arange(EPOCH * 2).reshape(EPOCH, 2))
        return Epoch(number, encoded, batches, tokens_S=ids_S if few else None)

    def loss(indices: Indices) -> Loss:
        count()
        rows, ids = indices.rows_B, indices.epoch.encoded.ids_S.reshape(TEXTS.shape)
        found = learned(input_ids=torch.from_numpy(ids[rows]), labels=torch.from_numpy(rows % 2)).loss
        return mean_of(found, 1)

    def score() -> float:
        with torch.no_grad():
            return float(learned(input_ids=torch.full((1, 6), 58)).logits[0, 0])

    return TrainingSpec(learned, epoch, loss, score, **more)


def job(folder: Path) -> Job:
    """Return a job with output and checkpoints in a folder."""
    return Job(
        {"job": "test", "knobs": {}, "output": str(folder / "output"), "checkpoints": str(folder / "checkpoints")},
        silent=True,
    )


def trained(folder: Path, learned: nn.Module, make: Make) -> nn.Module:
    """Train a model to the end, and return it."""
    train(job(folder), KNOBS, make(learned), CPU)
    return learned


def resumed(folder: Path, start: Callable[[], nn.Module], make: Make, stop: int) -> nn.Module:
    """Train with a checkpoint after every step until step ``stop`` breaks, then go on in another process's place: a new
    model, and an empty output; return this model."""

    def breaks(step: int, total: int) -> None:
        if step == stop:
            raise Halted

    with pytest.raises(Halted):
        train(job(folder / "halted"), OFTEN, replace(make(start()), begin=breaks), CPU)
    assert max(path.name for path in (folder / "halted/checkpoints").iterdir()) == f"step-{stop:09d}"
    shutil.copytree(folder / "halted/checkpoints", folder / "resumed/checkpoints")
    return trained(folder / "resumed", start(), make)


def same_bytes(one: nn.Module, other: nn.Module) -> bool:
    """Tell whether two models have exactly the same weights."""
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(name == its_name and torch.equal(value, its) for (name, value), (its_name, its) in pairs)


def assert_same(whole: nn.Module, few: nn.Module) -> None:
    """Check that two models have the same weights, rounding aside."""
    for (name, value), (_, other) in zip(whole.state_dict().items(), few.state_dict().items(), strict=True):
        if not name.endswith("key.bias"):  # moves no score: its gradient is rounding, which Adam makes large
            torch.testing.assert_close(value, other, rtol=0, atol=2e-6, msg=name)
