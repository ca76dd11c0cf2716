"""The phase that gives a swapped attention back what it lost, in models that write: both stacks of a translator, and a
language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.recipe.students import Shape
from tasks.task_types.heads import HEADS
from tasks.task_types.next_words.document import LEARNED_TOKENS
from tasks.training.data.encoded import Batch, collate, encode_windows, encode_written
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import build_student, freeze, load_classifier
from tasks.training.objectives.attention_outputs import AttentionBlocks, written_mask
from tests.task_types.next_words.tables import documents, write_decoder
from tests.task_types.seq2seq.tables import sentences, write_translator

CPU = torch.device("cpu")
KINDS = {"limbeck-seq2seq": ("seq2seq", "bleu", "self_attn"), "limbeck-decoder": ("next-words", "perplexity", "attn")}


@pytest.fixture(scope="module", params=KINDS)
def given(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Batch]:
    """A start, a frozen teacher whose answers depend on what it reads, and rows of unequal length."""
    folder, (kind, metric, _) = tmp_path_factory.mktemp("base") / "model", KINDS[request.param]
    writes = kind == "seq2seq"
    folder = write_translator(folder) if writes else write_decoder(folder, "gpt2")
    teacher = load_classifier(folder, Task("texts", kind, None, metric, False, HEADS[kind]), CPU)
    torch.manual_seed(0)
    with torch.no_grad():
        for value in teacher.parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) * 0.2)
    tokenizer = load_tokenizer(folder)
    if writes:
        sources, targets = sentences(4)
        encoded = encode_written(tokenizer, sources, targets, 24, HEADS[kind].units)
    else:
        encoded = encode_windows(tokenizer, documents(4), 24, LEARNED_TOKENS, None, [""] * 4)
    return request.param, freeze(teacher), collate(encoded, np.arange(4), tokenizer.pad_token_id or 0, CPU)


def number(loss: Any) -> torch.Tensor:
    """Return a loss as one number."""
    return sum(((term.weight or 1.0) * term.total / term.count for term in loss.terms), torch.zeros(()))


def test_attention_of_the_same_kind_begins_without_a_loss(given: tuple[str, Any, Batch]) -> None:
    start, teacher, batch = given
    student = build_student(start, teacher, Shape(layers=3), seed=0).eval()
    objective = AttentionBlocks(student, teacher)
    assert number(objective.loss(batch)) < 1e-8
    depth = len(objective.copied) + len(objective.copied_decoder)
    assert len(objective.pairs) == depth and bool(objective.copied_decoder) == (start == "limbeck-seq2seq")


def test_a_swapped_attention_learns_and_nothing_else_does(given: tuple[str, Any, Batch]) -> None:
    start, teacher, batch = given
    student = build_student(start, teacher, Shape(layers=2, mixer="linear"), seed=0).requires_grad_(True)
    objective = AttentionBlocks(student, teacher)
    (phase,) = objective.phases(5)
    learned = {name: value for name, value in student.named_parameters() if phase.learns(name)}
    assert learned and all(f".{KINDS[start][2]}." in name for name in learned)
    optimizer, losses = torch.optim.Adam(learned.values(), 1e-2), list[float]()
    for _ in range(20):
        optimizer.zero_grad()
        loss = number(objective.loss(batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    both = {"copied_attention": [0, 2], "copied_decoder_attention": [0, 1, 2]}
    assert objective.finish() == (both if start == "limbeck-seq2seq" else {"copied_attention": [0, 3]})


def test_padding_has_no_part_in_the_loss(given: tuple[str, Any, Batch]) -> None:
    """Other tokens change nothing where a text stands that another in its batch made longer."""
    start, teacher, batch = given
    objective = AttentionBlocks(build_student(start, teacher, Shape(layers=2, mixer="linear"), seed=0).eval(), teacher)
    before, mask_BL = number(objective.loss(batch)), written_mask(batch)
    written_BL = batch.ids_BT if batch.written_BL is None else batch.written_BL
    for ids, mask in ((batch.ids_BT, batch.mask_BT), (written_BL, mask_BL)):
        assert 0 < (mask == 0).sum() < mask.numel() / 2
        ids[mask == 0] = 7
    torch.testing.assert_close(number(objective.loss(batch)), before)


def test_a_decoder_reads_the_same_behind_padding(tmp_path: Path) -> None:
    """Its layers alone counted positions from the padding, so that students learned states that it never has."""
    task = Task("texts", "next-words", None, "perplexity", False, HEADS["next-words"])  # type: ignore[arg-type]
    folder = write_decoder(tmp_path / "model", "gpt2")
    teacher, tokenizer = freeze(load_classifier(folder, task, CPU)), load_tokenizer(folder)
    with torch.no_grad():
        teacher.transformer.wpe.weight.normal_(generator=torch.Generator().manual_seed(0))
    encoded = encode_windows(tokenizer, [documents(1)[0], "the film"], 24, LEARNED_TOKENS, None, [""] * 2)
    objective = AttentionBlocks(build_student("limbeck-decoder", teacher, Shape(layers=2), seed=0), teacher)
    rows = [np.asarray([0, len(encoded.lengths_N) - 1]), np.asarray([len(encoded.lengths_N) - 1])]
    both, alone = (objective.seen(collate(encoded, one, tokenizer.pad_token_id or 0, CPU)) for one in rows)
    many = int(encoded.lengths_N[-1])
    for beside, by_itself in zip(both, alone, strict=True):
        for one, other in zip(beside, by_itself, strict=True):
            assert one.shape[1] > many
            torch.testing.assert_close(one[-1, -many:], other[0], rtol=1e-4, atol=1e-4)
