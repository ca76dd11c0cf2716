"""Batches of pairs of segments, with the tokens that are predicted: drawn by the number of the step, so that a training
that was interrupted goes on with the same ones.

Shape letters: B batch, T tokens, P predicted places, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.methods.text.ngrams import begins_word, drawn_ngrams, shown_tokens, tokens_to_predict, words_between
from tasks.methods.text.sentence_order import Pairs, segment_pairs
from tasks.recipe.training import Pretraining
from tasks.training.data.batches import plan
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import Epoch
from tasks.training.pretraining.sentences import DividedCorpus

FRAME = 3
"""Special tokens of a pair: [CLS] before it, [SEP] behind each segment."""


@dataclass(frozen=True)
class PairEpoch(Epoch):
    """An epoch over pairs of segments of the corpus."""

    pairs: Pairs | None = None


@dataclass(frozen=True)
class PairBatch:
    """Padded tensors of one batch: masked text, its mask and segments, the places in the flattened batch that are
    predicted with their tokens, and the labels of the pairs."""

    ids_BT: Tensor
    mask_BT: Tensor
    segments_BT: Tensor
    places_P: Tensor
    targets_P: Tensor
    labels_B: Tensor


class PairReader:
    """Plans epochs over pairs of a corpus, and makes their batches."""

    def __init__(self, sentences: DividedCorpus, tokenizer: Any, knobs: Pretraining, place: torch.device) -> None:
        self.sentences, self.knobs, self.place = sentences, knobs, place
        self.cls, self.sep, self.mask, self.pad = (
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.mask_token_id,
            tokenizer.pad_token_id,
        )
        pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.begins_V = np.array(begins_word(pieces))
        self.words_W = np.setdiff1d(np.arange(len(pieces)), tokenizer.all_special_ids)
        self.most = math.ceil(knobs.mask_share * knobs.max_length)

    def epoch(self, number: int) -> PairEpoch:
        """Return one pass over the documents to learn from."""
        knobs = self.knobs
        pairs = self.pairs(self.sentences.learned_D2, knobs.order, number)
        lengths_N = pairs.lengths_N + FRAME
        options = {"size": knobs.batch_size, "tokens": knobs.batch_tokens, "seed": knobs.seed}
        stream = Encoded(self.sentences.ids, np.zeros(0, np.int8), self.sentences.offsets_S)
        return PairEpoch(number, stream, plan(lengths_N, epoch=number, **options), pairs=pairs)

    def pairs(self, documents_D2: np.ndarray, order: str, number: int) -> Pairs:
        """Return the pairs of some documents in one pass."""
        random = np.random.default_rng([self.knobs.seed, number])
        room = self.knobs.max_length - FRAME
        return segment_pairs(self.sentences.offsets_S, documents_D2, order, room, random)

    def batch(self, pairs: Pairs, rows_B: np.ndarray, draw: Sequence[int]) -> PairBatch:
        """Return a batch; ``draw`` seeds its masks."""
        random = np.random.default_rng(draw)
        width = int(pairs.lengths_N[rows_B].max()) + FRAME
        ids_BT = np.full((len(rows_B), width), self.pad, dtype=np.int64)
        segments_BT, mask_BT = (np.zeros((len(rows_B), width), dtype=np.int64) for _ in range(2))
        places = list[np.ndarray]()
        for at, row in enumerate(rows_B):
            first, second = (self.sentences.ids[slice(*ends[row])] for ends in (pairs.first_N2, pairs.second_N2))
            middle, end = len(first) + 1, len(first) + len(second) + 2
            text = np.concatenate([[self.cls], first, [self.sep], second, [self.sep]])
            ids_BT[at, : end + 1] = text
            segments_BT[at, middle + 1 : end + 1] = 1
            mask_BT[at, : end + 1] = 1
            places.append(at * width + self.predicted(text, middle, random))
        places_P = np.concatenate(places)
        targets_P = ids_BT.ravel()[places_P]
        ids_BT.ravel()[places_P] = shown_tokens(targets_P, self.mask, self.words_W, random)
        made = (ids_BT, mask_BT, segments_BT, places_P, targets_P, pairs.labels_N[rows_B])
        return PairBatch(*(torch.from_numpy(values).to(self.place, non_blocking=True) for values in made))

    def predicted(self, text_T: np.ndarray, middle: int, random: np.random.Generator) -> np.ndarray:
        """Return the tokens of one pair that are predicted: n-grams of whole words, or single tokens where ``ngrams``
        is 0; never a special token."""
        end, knobs = len(text_T) - 1, self.knobs
        budget = tokens_to_predict(len(text_T), knobs.mask_share, self.most)
        if not knobs.ngrams:
            inner_T = np.delete(np.arange(1, end), middle - 1)
            return random.choice(inner_T, min(budget, len(inner_T)), replace=False)
        begins_T = self.begins_V[text_T].tolist()
        segments = (words_between(begins_T, 1, middle), words_between(begins_T, middle + 1, end))
        chosen = drawn_ngrams(segments, budget, knobs.ngrams, random)
        # A pair of words that are all longer than the budget; the mean loss over no targets would be NaN.
        return np.array(chosen or [1], dtype=np.int64)
