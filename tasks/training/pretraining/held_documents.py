"""How well an encoder predicts words and the order of segments on documents that it did not learn from.

Shape letters: B batch, D width, P predicted places.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.errors import ModelError
from tasks.methods.text.sentence_order import Pairs
from tasks.recipe.training import Pretraining
from tasks.training.data.batches import without_gradients
from tasks.training.precision import arithmetic
from tasks.training.pretraining.encoders import order_logits, word_logits
from tasks.training.pretraining.pair_batches import FRAME, PairBatch, PairReader

PASS_OF_HELD = 1_000_000_007
"""Seeds the pairs and masks of held-back documents: the same at every evaluation, and those of no epoch."""
PASSES = 8
"""Most passes over held-back documents: each cuts them at other sentences."""
PAIRS_WHILE_TRAINING, PAIRS_AT_THE_END = 512, 2048
RISE, EVALUATIONS = 0.5, 3
"""A training stops if its loss of words is above its best by so much in so many evaluations in a row."""


@dataclass
class HeldCounts:
    """Sums over batches: predicted words, their loss, how many were right, and the same of pairs."""

    words: int = 0
    word_loss: float = 0.0
    right_words: int = 0
    pairs: int = 0
    order_loss: float = 0.0
    right_pairs: int = 0
    targets: Counter[int] = field(default_factory=Counter)
    """How often each token was to be predicted."""

    def add(self, words_PV: Tensor, order_B2: Tensor, batch: PairBatch) -> None:
        """Add a batch."""
        self.words += len(batch.targets_P)
        self.targets.update(batch.targets_P.tolist())
        self.word_loss += float(F.cross_entropy(words_PV, batch.targets_P, reduction="sum"))
        self.right_words += int((words_PV.argmax(-1) == batch.targets_P).sum())
        self.pairs += len(batch.labels_B)
        self.order_loss += float(F.cross_entropy(order_B2, batch.labels_B, reduction="sum"))
        self.right_pairs += int((order_B2.argmax(-1) == batch.labels_B).sum())

    @property
    def most_frequent(self) -> int:
        """Of how many words the most frequent one is right, which takes no model."""
        return max(self.targets.values(), default=0)

    @property
    def knows_frequencies_alone(self) -> bool:
        """Whether no more words are right than by their frequencies, beyond two standard errors of that count."""
        return self.right_words <= self.most_frequent + 2 * self.most_frequent**0.5


class HeldDocuments:
    """Scores a model on the pairs of some held-back documents."""

    def __init__(self, model: Any, reader: PairReader, knobs: Pretraining, documents_D2: np.ndarray) -> None:
        self.model, self.reader, self.knobs, self.documents_D2 = model, reader, knobs, documents_D2

    def __len__(self) -> int:
        return len(self.documents_D2)

    def can_ask(self, order: str) -> bool:
        """Tell whether there are pairs of both kinds of an order: segments of two documents need two of them."""
        return order == "sop" or (order == "nsp" and len(self) > 1)

    def pairs(self, order: str, most: int) -> Pairs:
        """Return pairs of an order, at most so many and evenly spread; of few documents several passes."""
        passes = list[Pairs]()
        while len(passes) < PASSES and sum(len(one.labels_N) for one in passes) < most:
            number = PASS_OF_HELD + len(passes)
            passes.append(self.reader.pairs(self.documents_D2, order, number))
        first_N2, second_N2, labels_N = (
            np.concatenate([getattr(one, name) for one in passes]) for name in ("first_N2", "second_N2", "labels_N")
        )
        kept = np.unique(np.linspace(0, len(labels_N) - 1, min(most, len(labels_N))).astype(int))
        return Pairs(first_N2[kept], second_N2[kept], labels_N[kept])

    def counts(self, order: str, most: int) -> HeldCounts:
        """Return the sums over the pairs of an order."""
        pairs, made, training = self.pairs(order, most), HeldCounts(), self.model.training
        self.model.eval()
        place = self.model.device
        for number, rows_B in enumerate(without_gradients(pairs.lengths_N + FRAME, place)):
            batch = self.reader.batch(pairs, rows_B, [self.knobs.seed, PASS_OF_HELD, number])
            with torch.no_grad(), arithmetic(self.knobs.precision, place):
                words_PV, order_B2 = read_pairs(self.model, batch)
                made.add(words_PV.float(), order_B2.float(), batch)
        self.model.train(training)
        return made

    def facts(self) -> dict[str, object]:
        """Return accuracies: of words in text as it stands, beside that of the most frequent one alone; of swapped
        segments, and of segments of two documents. Both kinds of pairs are asked of every model with an order head,
        also of the kind that it did not learn."""
        if not len(self):
            return {"held_documents": 0}
        words = self.counts("none", PAIRS_AT_THE_END)
        facts: dict[str, object] = {
            "held_documents": len(self),
            "held_pairs": words.pairs,
            "words": words.right_words / words.words,
            "most_frequent_word": words.most_frequent / words.words,
            "knows_frequencies_alone": words.knows_frequencies_alone,
            "word_loss": words.word_loss / words.words,
        }
        for order in ("sop", "nsp") if self.knobs.order != "none" else ():
            if not self.can_ask(order):
                continue
            found = self.counts(order, PAIRS_AT_THE_END)
            facts[order] = found.right_pairs / found.pairs
        return facts


def read_pairs(model: Any, batch: PairBatch) -> tuple[Tensor, Tensor]:
    """Return the logits of predicted words [P, V], and of the order of pairs [B, 2]."""
    out = model.base_model(batch.ids_BT, attention_mask=batch.mask_BT, token_type_ids=batch.segments_BT)
    states_PD = out.last_hidden_state.flatten(0, 1)[batch.places_P]
    return word_logits(model, states_PD), order_logits(model, out.pooler_output)


class RiseWatch(nn.Module):
    """Stops a training whose loss rises; its counts are buffers, so that they are in every checkpoint."""

    lowest: Tensor
    above: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lowest", torch.tensor(torch.inf))
        self.register_buffer("above", torch.tensor(0))

    def note_loss(self, loss: float) -> None:
        """Take note of the loss of an evaluation; raise ModelError for the third in a row that is half a unit above the
        lowest."""
        lowest = float(self.lowest)
        self.above.copy_(self.above + 1 if loss > lowest + RISE or not np.isfinite(loss) else torch.tensor(0))
        self.lowest.fill_(min(lowest, loss))
        if int(self.above) >= EVALUATIONS:
            raise ModelError(
                f"the loss of words on held-back documents is {loss:.2f} and was {lowest:.2f} before; the training "
                f"diverges; lower pretraining.learning_rate, or make pretraining.batch_size larger"
            )
