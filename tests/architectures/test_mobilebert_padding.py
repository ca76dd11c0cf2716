"""MobileBERT's row of [PAD] while words are predicted: the head reads the table of words, and would move this row."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.recipe.students import Shape
from tasks.task_types.heads import HEADS
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import build_student, freeze, load_classifier, load_masked_lm, save_model
from tests.families import write_tiny
from tests.training.test_families import CPU

HIDDEN_WORDS = Task("hidden", "masked-words", [], "masked_perplexity", False, HEADS["masked-words"])


def of_bert(folder: Path) -> Any:
    teacher = freeze(load_masked_lm(write_tiny("bert", folder / "bert"), CPU))
    return build_student("mobilebert", teacher, Shape(layers=4, bottleneck=8, embedding=8), seed=0)


def of_a_frozen_mobilebert(folder: Path) -> Any:
    teacher = freeze(load_masked_lm(write_tiny("mobilebert", folder / "teacher"), CPU))
    return build_student("teacher", teacher, Shape(layers=2), seed=0).requires_grad_(True)


WAYS: dict[str, Callable[[Path], Any]] = {
    "general text": lambda folder: load_masked_lm(write_tiny("mobilebert", folder / "base"), CPU),
    "hidden words": lambda folder: load_classifier(write_tiny("mobilebert", folder / "base"), HIDDEN_WORDS, CPU),
    "made of a bert": of_bert,
    "layers of a frozen one": of_a_frozen_mobilebert,
    "copied in the middle of a training": lambda folder: copy.deepcopy(
        learn_words(load_masked_lm(write_tiny("mobilebert", folder / "base"), CPU), steps=2)
    ),
}


def learn_words(model: Any, steps: int = 20) -> Any:
    """Predict words of a padded batch for a few steps, with the gradient of the row of [PAD] checked at each."""
    ids_BT, shown_BT = torch.tensor([[2, 40, 41, 42, 43, 3], [2, 44, 45, 3, 0, 0]]), torch.ones(2, 6, dtype=torch.long)
    shown_BT[1, 4:] = 0
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=3e-3, weight_decay=0.1)
    for _ in range(steps):
        logits_BTV = model(input_ids=ids_BT, attention_mask=shown_BT).logits
        torch.nn.functional.cross_entropy(logits_BTV[shown_BT > 0], ids_BT[shown_BT > 0]).backward()
        assert model.cls.predictions.decoder.weight is model.get_input_embeddings().weight, "the head reads the table"
        optimizer.step()
        optimizer.zero_grad()
    return model


def answers(model: Any, wide: int) -> torch.Tensor:
    """Return the logits of one text, with so many places of padding after it."""
    ids_BT = torch.nn.functional.pad(torch.tensor([[2, 40, 44, 3]]), (0, wide))
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=ids_BT, attention_mask=(ids_BT > 0).long()).logits
    return found[:, :4]


@pytest.mark.parametrize("way", WAYS)
def test_the_row_of_padding_stays_zero_where_words_are_predicted(way: str, tmp_path: Path) -> None:
    """Otherwise a text has other answers in a batch than alone, and the model that is saved, whose row is set to zero,
    is not the one that was trained and scored."""
    model = learn_words(WAYS[way](tmp_path))
    assert not model.get_input_embeddings().weight[0].any()
    before = copy.deepcopy(model)
    save_model(model, load_tokenizer(next(tmp_path.iterdir())), tmp_path / "saved")
    alone = answers(before, 0)
    torch.testing.assert_close(alone, answers(before, 3), rtol=0, atol=1e-5)
    assert torch.equal(alone, answers(load_masked_lm(tmp_path / "saved", CPU), 0)), "saving changes nothing"
