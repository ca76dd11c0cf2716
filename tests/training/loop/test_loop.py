"""The loop that is fast learns what a plain one learns: the same losses step by step, from the same batches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss, mean_of
from tasks.training.data.batches import plan
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.loop import TrainingSpec, rate, train
from tasks.training.models.attention import own_attention

CPU = torch.device("cpu")
LENGTHS = np.random.default_rng(0).integers(3, 24, 64)
ENCODED = Encoded(
    np.random.default_rng(1).integers(1, 80, LENGTHS.sum()).astype(np.int32),
    np.zeros(LENGTHS.sum(), np.int32),
    np.concatenate([[0], np.cumsum(LENGTHS)]),
)
LABELS = torch.from_numpy((ENCODED.ids_S[ENCODED.offsets[:-1]] > 40).astype(np.int64))
KNOBS = SimpleNamespace(
    steps=24,
    epochs=1,
    seed=0,
    learning_rate=1e-2,
    weight_decay=0.05,
    beta1=0.8,
    beta2=0.98,
    eps=1e-5,
    warmup=0.1,
    schedule="linear",
    clip=0.7,
    precision="fp32",
    evaluations=0,
    checkpoint_minutes=1e9,
)


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 90,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 32,
    }
    return BertForSequenceClassification(
        BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager", **sizes)
    )


def epoch(number: int) -> Epoch:
    batches = plan(LENGTHS, size=8, tokens=4096, seed=0, epoch=number)
    return Epoch(number, ENCODED, batches, tokens_S=ENCODED.ids_S)


def plain(learned: nn.Module) -> tuple[list[float], list[float]]:
    """The loop of a textbook: padded to one width, gradients clipped by a pass of their own, every parameter's moments
    moved at every step."""
    losses, norms = [], []
    order = [batch for number in range(3) for batch in epoch(number).batches]
    decayed = [value for value in learned.parameters() if value.ndim > 1]
    others = [value for value in learned.parameters() if value.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": KNOBS.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=KNOBS.learning_rate, betas=(0.8, 0.98), eps=1e-5)
    for step in range(KNOBS.steps):
        for group in optimizer.param_groups:
            group["lr"] = KNOBS.learning_rate * rate(step, KNOBS.steps, KNOBS.warmup, KNOBS.schedule)
        batch = collate(ENCODED, order[step], 0, CPU)
        width = 30 - batch.ids_BT.shape[1]
        loss = learned(
            input_ids=F.pad(batch.ids_BT, (0, width)),
            attention_mask=F.pad(batch.mask_BT, (0, width)),
            labels=LABELS[order[step]],
        ).loss
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(learned.parameters(), KNOBS.clip)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, norms


def test_its_losses_are_a_plain_loops(tmp_path: Path) -> None:
    learned, losses = own_attention(model()), []

    def loss(indices: Indices) -> Loss:
        rows = indices.rows_B
        value = F.cross_entropy(learned(**collate(ENCODED, rows, 0, CPU).inputs(learned)).logits, LABELS[rows])
        losses.append(float(value.detach()))
        return mean_of(value, 1)

    job = Job({"job": "test", "knobs": {}, "output": str(tmp_path), "checkpoints": str(tmp_path / "checkpoints")})
    train(job, KNOBS, TrainingSpec(learned, epoch, loss), CPU)
    expected, norms = plain(model())
    assert losses == pytest.approx(expected, rel=1e-4)
    assert min(losses) < 0.5 * max(losses), "it must have learned something, or equal losses mean little"
    assert min(norms) < KNOBS.clip < max(norms), "some steps must be clipped and some not"
