"""Training the rows of an embedding that the text uses gives what training the whole table gives."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from tasks.training.loop import train
from tasks.training.models.sparse_embedding import used_rows_only
from tests.training.loop.short_training import (
    CPU,
    EPOCH,
    KNOBS,
    LATER,
    OFTEN,
    SIZES,
    TEXTS,
    Halted,
    assert_same,
    job,
    model,
    same_bytes,
    spec,
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
    assert_same(whole, few)
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


def halted(folder: Path, *, few: bool, stop: int) -> Path:
    """Train with a checkpoint after every step until something breaks; return where the checkpoints are."""
    steps = iter(range(KNOBS.steps))

    def halt() -> None:
        if next(steps) == stop:
            raise Halted

    with pytest.raises(Halted):
        train(job(folder), OFTEN, spec(model(), few=few, count=halt), CPU)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir())[-1] == f"step-{stop:09d}"
    return folder / "checkpoints"


@pytest.mark.parametrize("stop", [2, EPOCH, EPOCH + 3])
def test_a_resumed_training_ends_with_the_same_bytes(tmp_path: Path, stop: int) -> None:
    whole, resumed = model(), model()
    train(job(tmp_path / "whole"), KNOBS, spec(whole, few=True), CPU)
    shutil.copytree(halted(tmp_path / "halted", few=True, stop=stop), tmp_path / "resumed/checkpoints")
    train(job(tmp_path / "resumed"), KNOBS, spec(resumed, few=True), CPU)
    assert same_bytes(whole, resumed)


@pytest.mark.parametrize("few", [True, False])
def test_it_resumes_where_another_number_of_processes_shared_the_training(tmp_path: Path, few: bool) -> None:
    """Several processes train the whole table, one trains the rows in use: either goes on from what the other left."""
    whole, resumed = model(), model()
    train(job(tmp_path / "whole"), KNOBS, spec(whole, few=False), CPU)
    shutil.copytree(halted(tmp_path / "halted", few=few, stop=EPOCH + 3), tmp_path / "resumed/checkpoints")
    train(job(tmp_path / "resumed"), KNOBS, spec(resumed, few=not few), CPU)
    assert_same(whole, resumed)


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
