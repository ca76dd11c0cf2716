"""Pretrain a BERT or an ALBERT on words and on the order of segments, from random weights or from another one.

Methods: Devlin et al. 2018, BERT, arXiv:1810.04805; Lan et al. 2019, ALBERT, arXiv:1909.11942. Loss: the mean over
predicted words plus the mean over pairs, unweighted. Nothing is dropped out. Shape letters: P predicted places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss, mean_of
from tasks.methods.optimizers.lamb import Lamb
from tasks.recipe.slices import VocabularyOfCorpus
from tasks.recipe.training import Pretraining, SeededTraining
from tasks.training.data.epochs import Indices
from tasks.training.data.rows import load_tokenizer
from tasks.training.loop import TrainingSpec, decayed_and_others, make_optimizer, train
from tasks.training.models.students import save_model, set_dropout
from tasks.training.precision import device, make_deterministic
from tasks.training.pretrain import make_tokenizer
from tasks.training.pretraining.encoders import load_pretrained, new_encoder
from tasks.training.pretraining.held_documents import PAIRS_WHILE_TRAINING, HeldDocuments, RiseWatch, read_pairs
from tasks.training.pretraining.pair_batches import PairEpoch, PairReader
from tasks.training.pretraining.sentences import read_divided


def write_vocabulary(job: Job) -> dict[str, object]:
    """Learn a vocabulary from ``documents`` and write its tokenizer."""
    from transformers import BertConfig

    knobs = job.read(VocabularyOfCorpus)
    tokenizer = make_tokenizer(job.inputs["documents"], knobs.vocabulary, job.output)
    tokenizer.save_pretrained(job.output)
    # Loaders of a tokenizer read the family of its model; both of ours take WordPiece and segments.
    BertConfig(vocab_size=len(tokenizer)).save_pretrained(job.output)
    return {"vocabulary": len(tokenizer)}


def pretrain_on_pairs(job: Job) -> dict[str, object]:
    """Train on ``corpus``, which is divided by the tokenizer of ``vocabulary``, a new model or the one in ``start``;
    save it with both heads, and return accuracies on held-back documents other than those by which the weights were
    chosen; of a corpus with one of them, which is reported on, the last weights are saved."""
    knobs, place = job.read(Pretraining), device()
    make_deterministic(knobs.seed)
    tokenizer, corpus = load_tokenizer(job.inputs["vocabulary"]), read_divided(job.inputs["corpus"])
    if "start" in job.inputs:
        model = load_pretrained(job.inputs["start"], place, seed=knobs.seed)
    else:
        model = new_encoder(len(tokenizer), knobs, place)
    set_dropout(model, 0.0)
    learner = Learner(model, PairReader(corpus, tokenizer, knobs, place), knobs)
    spec = TrainingSpec(
        modules=learner,
        epoch=learner.reader.epoch,
        loss=learner.loss,
        score=partial(learner.score, job) if len(learner.choosing) else None,
        begin=learner.begin,
        optimizer=OPTIMIZERS[knobs.optimizer],
    )
    reported = HeldDocuments(model, learner.reader, knobs, corpus.reported_D2)
    facts = train(job, knobs, spec, place) | reported.facts()
    job.log(accuracies_in_words(facts))
    if facts.get("knows_frequencies_alone"):
        job.log(
            f"it knows how frequent words are and no more: the most frequent one alone is right about "
            f"{facts['most_frequent_word']:.1%}; lower pretraining.learning_rate, or give it more steps"
        )
    save_model(model, tokenizer, job.output)
    more = {"choosing_documents": len(learner.choosing), "order": knobs.order}
    return facts | more | {"parameters": sum(value.numel() for value in model.parameters())}


class Learner(nn.Module):
    """A model in pretraining: its loss on pairs of the corpus, its score on the held-back documents by which weights
    are chosen, and the watch over that."""

    def __init__(self, model: Any, reader: PairReader, knobs: Pretraining) -> None:
        super().__init__()
        self.model, self.reader, self.knobs = model, reader, knobs
        self.choosing = HeldDocuments(model, reader, knobs, reader.sentences.choosing_D2)
        self.watch, self.step = RiseWatch(), 0

    def begin(self, step: int, total: int) -> None:
        """Take note of the number of the step, which seeds its masks."""
        self.step = step

    def loss(self, indices: Indices) -> Loss:
        """Return the mean loss of predicted words, and that of the order of pairs where it is learned."""
        assert isinstance(indices.epoch, PairEpoch) and indices.epoch.pairs is not None
        batch = self.reader.batch(indices.epoch.pairs, indices.rows_B, [self.knobs.seed, self.step])
        words_PV, order_B2 = read_pairs(self.model, batch)
        words = F.cross_entropy(words_PV.float(), batch.targets_P, reduction="sum")
        total = mean_of(words, len(batch.targets_P))
        if self.knobs.order == "none":
            return total
        return total + mean_of(F.cross_entropy(order_B2.float(), batch.labels_B, reduction="sum"), len(batch.labels_B))

    def score(self, job: Job) -> float:
        """Return the negative loss on the documents by which weights are chosen. Raises ModelError if that of words
        keeps rising."""
        order = self.knobs.order
        words = self.choosing.counts("none", PAIRS_WHILE_TRAINING)
        of_words, found = words.word_loss / words.words, {"word_accuracy": words.right_words / words.words}
        total = of_words
        if self.choosing.can_ask(order):
            pairs = self.choosing.counts(order, PAIRS_WHILE_TRAINING)
            total += pairs.order_loss / pairs.pairs
            found[f"{order}_accuracy"] = pairs.right_pairs / pairs.pairs
        job.curve(self.step + 1, held_word_loss=of_words, **found)
        self.watch.note_loss(of_words)
        return -total


def make_lamb(modules: nn.Module, knobs: SeededTraining) -> torch.optim.Optimizer:
    """Return LAMB; norms and biases, which are vectors, neither decay nor have steps in units of their norm."""
    matrices, vectors = decayed_and_others(modules)
    groups: list[dict[str, object]] = [
        {"params": matrices, "weight_decay": knobs.weight_decay},
        {"params": vectors, "weight_decay": 0.0, "adapted": False},
    ]
    return Lamb(groups, lr=knobs.learning_rate, betas=(knobs.beta1, knobs.beta2), eps=knobs.eps)


OPTIMIZERS: dict[str, Callable[[nn.Module, SeededTraining], torch.optim.Optimizer]] = {
    "adamw": make_optimizer,
    "lamb": make_lamb,
}


def accuracies_in_words(facts: Mapping[str, object]) -> str:
    """Return accuracies on held-back documents as a sentence."""
    named = {"words": "words", "sop": "swapped segments", "nsp": "segments of two documents"}
    parts = [f"{facts[key]:.1%} of {name}" for key, name in named.items() if key in facts]
    return f"on {facts['held_documents']} held-back documents it is right about {', '.join(parts) or 'nothing'}"
