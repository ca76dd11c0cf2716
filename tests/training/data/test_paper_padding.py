"""TinyBERT's inner loss as its authors compute it: every row padded to ``max_length``, and padding counted.

The other side is transformers' own model and tokenizer, in float64, and the golden formulae in numpy; nothing of ours
reads a layer there.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.data import CorpusText
from tasks.recipe.slices import GeneralSlice, IntermediateSlice
from tasks.recipe.students import Shape
from tasks.task_types.classification.head import HEAD
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.corpora import longest_sequence, read_corpus, tokenize_corpus
from tasks.training.data.encoded import collate
from tasks.training.data.epochs import Indices
from tasks.training.data.rows import load_tokenizer, read_rows
from tasks.training.distill import inner_spec
from tasks.training.general import general_spec
from tasks.training.models.students import build_student, freeze, load_encoder
from tasks.training.objectives.context import DistillationContext
from tasks.training.objectives.layers import LayerObjective, layers
from tasks.training.objectives.signal_files import SignalFiles, StoragePlan
from tasks.training.objectives.signals import Recorded
from tests.methods.golden import losses, rules

CPU, WIDTH, HEADS = torch.device("cpu"), 24, 4
KNOBS: dict[str, Any] = {
    "matching": {"formula": "paper", "layer_map": "divisible"},
    "max_length": WIDTH,
    "batch_size": 12,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def scene(tiny_bert: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A teacher and a student whose attention is far from even, rows of many lengths, the same as general text."""
    teacher = freeze(load_encoder(tiny_bert, CPU))
    student = build_student("random", teacher, Shape(layers=2, hidden=8, heads=HEADS, feed_forward=16), seed=1).eval()
    for name, weight in [*teacher.named_parameters(), *student.named_parameters()]:
        weight.data *= 8 if name.endswith("weight") and weight.ndim == 2 else 1
    folder, train = tmp_path_factory.mktemp("corpus"), read_rows(rows, "train", HEAD)
    (folder / "documents").mkdir()
    texts = [" ".join(text.split()[: 2 + number % 9]) for number, text in enumerate(train.texts)]
    documents = pq.read_table(rows / "train.parquet", columns=["text"])
    pq.write_table(documents.set_column(0, "text", [texts]), folder / "documents" / "documents.parquet")
    tokenize(CorpusText(source="", max_length=WIDTH), tiny_bert, folder)
    tokenizer, read = load_tokenizer(tiny_bert), replace(train, texts=texts)
    return SimpleNamespace(teacher=teacher, student=student, tokenizer=tokenizer, rows=read, corpus=folder / "corpus")


def tokenize(knobs: CorpusText, base: Path, folder: Path) -> None:
    (folder / "corpus").mkdir()
    inputs = {"base": str(base), "documents": str(folder / "documents")}
    tokenize_corpus(
        Job(
            {
                "job": "tokenize",
                "knobs": knobs.model_dump(mode="json"),
                "inputs": inputs,
                "output": str(folder / "corpus"),
            },
            silent=True,
        )
    )


def by_the_authors(scene: SimpleNamespace, texts: list[str], projection: Any) -> float:
    """Return the loss of texts that the tokenizer pads to ``WIDTH``, from layers that transformers shows."""
    padded = scene.tokenizer(texts, padding="max_length", max_length=WIDTH, return_tensors="pt")
    (hidden_S, scores_S), (hidden_T, scores_T) = (shown(model, padded) for model in (scene.student, scene.teacher))
    states, attention = rules.divisible(2, 4)
    mapped = [hidden_T[layer] for layer in states], [scores_T[layer] for layer in attention]
    weight_ED, bias_E = (value.detach().double().numpy() for value in (projection.weight, projection.bias))
    return float(
        losses.intermediate_paper(
            hidden_S, mapped[0], scores_S, mapped[1], padded["attention_mask"].numpy(), weight_ED, bias_E
        )
    )


def shown(model: Any, inputs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return all hidden states, and QK^T / sqrt(head size) of every layer, of a model in float64."""
    model = copy.deepcopy(model).double().eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        hidden = model(**inputs, output_hidden_states=True).hidden_states
    scores = []
    for layer, states_BTD in zip(model.encoder.layer, hidden, strict=False):
        own = layer.attention.self
        query, key = (states_BTD @ part.weight.T + part.bias for part in (own.query, own.key))
        split = [part.detach().numpy().reshape(*part.shape[:2], HEADS, -1).swapaxes(1, 2) for part in (query, key)]
        scores.append(split[0] @ split[1].swapaxes(2, 3) / split[0].shape[-1] ** 0.5)
    return [states.numpy() for states in hidden], scores


def inner(scene: SimpleNamespace, **changes: Any) -> tuple[LayerObjective, Any, Any]:
    """Return the first phase's objective, its text and its course."""
    knobs = IntermediateSlice(task_type="classification", **(KNOBS | changes), shape=Shape(layers=2))
    augmented = AugmentedRows(scene.rows, scene.tokenizer, knobs.max_length, 0, knobs.sampling)
    objective = layers(
        DistillationContext(scene.student, scene.teacher, knobs, scene.tokenizer, longest=knobs.max_length)
    )
    return objective, augmented, inner_spec(objective, augmented, knobs, None, CPU)


def test_the_first_phase_learns_the_authors_loss_of_rows_padded_to_max_length(scene: SimpleNamespace) -> None:
    objective, augmented, spec = inner(scene)
    epoch = spec.epoch(0)
    for batch in epoch.batches[:3]:
        assert augmented.encoded.lengths_N[batch].max() < WIDTH, "a batch that is full without padding shows nothing"
        expected = by_the_authors(scene, [scene.rows.texts[row] for row in batch], objective.projections.of(0))
        assert float(spec.loss(Indices(epoch, batch)).mean().detach()) == pytest.approx(expected, rel=1e-5)


def test_general_distillation_learns_the_authors_loss_of_sequences_padded_to_max_length(scene: SimpleNamespace) -> None:
    encoded, knobs = read_corpus(scene.corpus), GeneralSlice(**KNOBS, method="layers", shape=Shape(layers=2))
    objective = layers(
        DistillationContext(
            scene.student, scene.teacher, knobs, scene.tokenizer, text=encoded, longest=longest_sequence(scene.corpus)
        )
    )
    spec = general_spec(objective, encoded, scene.tokenizer.pad_token_id, knobs, CPU)
    epoch = spec.epoch(0)
    batch = epoch.batches[0]
    assert encoded.lengths_N[batch].max() < WIDTH
    expected = by_the_authors(scene, [scene.rows.texts[row] for row in batch], objective.projections.of(0))
    assert float(spec.loss(Indices(epoch, batch)).mean().detach()) == pytest.approx(expected, rel=1e-5)
    held = np.flatnonzero(np.arange(len(scene.rows.texts)) % 100 == 99)
    losses_held = -spec.score()
    assert losses_held == pytest.approx(
        by_the_authors(scene, [scene.rows.texts[row] for row in held], objective.projections.of(0)), rel=1e-5
    )


def test_padding_counts_against_the_tokens_of_a_batch(scene: SimpleNamespace) -> None:
    """Else a batch of short rows would take several times the memory that was allowed."""
    _, augmented, spec = inner(scene, batch_tokens=5 * WIDTH)
    batches = spec.epoch(0).batches
    assert {len(batch) for batch in batches} <= {5, 1, 2, 3, 4} and max(map(len, batches)) == 5
    spread = [np.ptp(augmented.encoded.lengths_N[batch]) for batch in batches]
    assert np.mean(spread) > 1, (
        "rows that are all padded alike are drawn as the authors draw them, not sorted by length"
    )


def test_the_masked_formula_pads_no_more_than_it_must(scene: SimpleNamespace) -> None:
    objective, augmented, spec = inner(scene, matching={"formula": "masked"}, batch_tokens=5 * WIDTH)
    assert objective.width is None and max(map(len, spec.epoch(0).batches)) > 5
    assert np.mean([np.ptp(augmented.encoded.lengths_N[batch]) for batch in spec.epoch(0).batches]) < 1


def test_a_batch_without_the_padding_that_counts_is_refused(scene: SimpleNamespace) -> None:
    objective, augmented, _ = inner(scene)
    short = collate(augmented.encoded, [0, 1], scene.tokenizer.pad_token_id, CPU)
    with pytest.raises(ModelError, match=f"counts padding up to {WIDTH} tokens, and this batch has"):
        objective.loss(short)


def test_kept_layers_are_refused_where_padding_counts(scene: SimpleNamespace, tmp_path: Path) -> None:
    """Kept layers are filled up with zeros, which are not what a teacher shows at padding."""
    objective, augmented, _ = inner(scene)
    lengths = augmented.encoded.lengths_N
    plan = StoragePlan(hidden=(0, 2, 4), attention=(1, 3), width=16, heads=HEADS)
    SignalFiles(tmp_path, lengths, plan, "r+").flush()
    kept = Recorded.over(tmp_path, plan, lengths)
    batch = collate(augmented.encoded, [0, 1], scene.tokenizer.pad_token_id, CPU, WIDTH)
    with pytest.raises(ModelError, match="set keep_signals: never, or formula: masked"):
        objective.loss(batch, kept.of(np.asarray([0, 1]), CPU))


def test_a_model_with_too_few_positions_for_the_padding_is_refused(scene: SimpleNamespace) -> None:
    with pytest.raises(ModelError, match="here 128 tokens, and this bert model takes 64; lower max_length"):
        inner(scene, max_length=128)
