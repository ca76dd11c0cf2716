"""Training the rows of an embedding that the text uses gives what training the whole table gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss, mean_of
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.data.rows import Encoded
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.sparse_embedding import used_rows_only

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
EPOCH = 4
PAD = 0
TEXTS = np.random.default_rng(0).integers(1, 30, (EPOCH * 2, 6))
LATER = TEXTS + 20  # brings tokens that the first epoch had not
TEXTS[:, 5] = PAD


class Halted(Exception):
    """Something broke."""


def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES))


def spec(learned: nn.Module, *, few: bool, count: Callable[[], None] = lambda: None) -> TrainingSpec:
    """A course whose text changes after the first epoch, as augmented text does, and which scores a token that no epoch
    shows."""

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

    return TrainingSpec(learned, epoch, loss, score)


def job(folder: Path) -> Job:
    return Job(
        {"job": "test", "knobs": {}, "output": str(folder / "output"), "checkpoints": str(folder / "checkpoints")}
    )


def test_it_gives_what_the_whole_table_gives(tmp_path: Path) -> None:
    whole, few = model(), model()
    before = few.get_input_embeddings()
    facts = [
        train(job(tmp_path / str(number)), KNOBS, spec(learned, few=bool(number)), CPU)
        for number, learned in enumerate((whole, few))
    ]
    assert few.get_input_embeddings() is before
    assert facts[0]["selection_score"] == pytest.approx(facts[1]["selection_score"], abs=1e-6)
    same(whole, few)
    untouched = few.get_input_embeddings().weight[59] / model().get_input_embeddings().weight[59]
    assert untouched.max() < 0.999 and untouched.std() < 1e-5, "a row that no text uses is decayed, and nothing else"


def test_only_the_rows_in_use_are_a_parameter(tmp_path: Path) -> None:
    learned, seen = model(), []
    train(
        job(tmp_path),
        KNOBS,
        spec(learned, few=True, count=lambda: seen.append(len(learned.get_input_embeddings().weight))),
        CPU,
    )
    first, later = len({*TEXTS.ravel()}), len({*TEXTS.ravel(), *LATER.ravel()})
    assert seen == [first] * EPOCH + [later] * (KNOBS.steps - EPOCH) and first < later < SIZES["vocab_size"]


def same(whole: nn.Module, few: nn.Module) -> None:
    """Check that two models have the same weights, rounding aside."""
    for (name, value), (_, other) in zip(whole.state_dict().items(), few.state_dict().items(), strict=True):
        if not name.endswith("key.bias"):  # moves no score: its gradient is rounding, which Adam makes large
            torch.testing.assert_close(value, other, rtol=0, atol=2e-6, msg=name)


def halted(folder: Path, *, few: bool, stop: int) -> Path:
    """Train with a checkpoint after every step until something breaks; return where the checkpoints are."""
    often = SimpleNamespace(**KNOBS.__dict__ | {"checkpoint_minutes": 0})
    steps = iter(range(KNOBS.steps))

    def halt() -> None:
        if next(steps) == stop:
            raise Halted

    with pytest.raises(Halted):
        train(job(folder), often, spec(model(), few=few, count=halt), CPU)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir())[-1] == f"step-{stop:09d}"
    return folder / "checkpoints"


@pytest.mark.parametrize("stop", [2, EPOCH, EPOCH + 3])
def test_a_resumed_training_ends_with_the_same_bytes(tmp_path: Path, stop: int) -> None:
    whole, resumed = model(), model()
    train(job(tmp_path / "whole"), KNOBS, spec(whole, few=True), CPU)
    shutil.copytree(halted(tmp_path / "halted", few=True, stop=stop), tmp_path / "resumed/checkpoints")
    train(job(tmp_path / "resumed"), KNOBS, spec(resumed, few=True), CPU)
    assert all(
        torch.equal(value, other)
        for value, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("few", [True, False])
def test_it_resumes_where_another_number_of_processes_shared_the_training(tmp_path: Path, few: bool) -> None:
    """Several processes train the whole table, one trains the rows in use: either goes on from what the other left."""
    whole, resumed = model(), model()
    train(job(tmp_path / "whole"), KNOBS, spec(whole, few=False), CPU)
    shutil.copytree(halted(tmp_path / "halted", few=few, stop=EPOCH + 3), tmp_path / "resumed/checkpoints")
    train(job(tmp_path / "resumed"), KNOBS, spec(resumed, few=not few), CPU)
    same(whole, resumed)


def test_what_pads_a_batch_is_in_use_whatever_the_embedding_thinks(tmp_path: Path) -> None:
    learned = model()
    with used_rows_only(learned) as table:
        assert table is not None
        table.activate(np.asarray([3, 4]), 59, torch.optim.AdamW(learned.parameters()))
        assert learned.train()(input_ids=torch.tensor([[3, 59, 59]])).logits.shape == (1, 2)


def test_a_table_tied_to_an_output_is_left_alone() -> None:
    with used_rows_only(BertForMaskedLM(BertConfig(**SIZES))) as table:
        assert table is None
    with used_rows_only(nn.Linear(2, 2)) as table:
        assert table is None
