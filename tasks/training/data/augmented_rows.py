"""Training text of an epoch: the rows' own text or, for a share of the rows, a variant made from stored substitutes.

Substitutes are stored once and sentences are sampled per (example, epoch), so twenty variants of a row need no disk and
no memory. Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351. One side of a pair is varied at a time, and rows are
never mixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tasks.methods.text.word_substitution import sample_variant
from tasks.recipe.data import Sampling
from tasks.training.data.encoded import Encoded, encode
from tasks.training.data.epochs import Variants
from tasks.training.data.rows import Rows
from tasks.training.data.substitutes import Options


@dataclass(frozen=True)
class AugmentedRows:
    """Rows whose text changes from epoch to epoch."""

    rows: Rows
    tokenizer: Any
    max_length: int
    seed: int
    sampling: Sampling | None = None
    candidates: dict[tuple[int, str], Options] = field(default_factory=dict)

    @cached_property
    def encoded(self) -> Encoded:
        """The tokens of the rows' own text."""
        return self.rows.tokens(self.tokenizer, self.max_length)

    @property
    def ids(self) -> np.ndarray:
        """Return a number for the tokens of each row, or of each window of a row."""
        return self.encoded.ids_of(self.rows.ids_N)

    def at(self, epoch: int) -> tuple[Encoded, Variants | None]:
        """Return the tokens of an epoch and, if there are substitutes, its sentences."""
        if not self.candidates:
            return self.encoded, None
        pairs = None if self.rows.pairs is None else list(self.rows.pairs)
        variants = Variants(np.zeros(len(self.rows), dtype=bool), list(self.rows.texts), pairs)
        for row in self.chosen(epoch):
            self.vary(row, epoch, variants)
        return self.with_variants(variants), variants

    def with_variants(self, variants: Variants) -> Encoded:
        """Return the tokens of an epoch's sentences; only those of variants are computed anew."""
        changed = np.flatnonzero(variants.changed_N)
        if not len(changed):
            return self.encoded
        return spliced(self.encoded, changed, encode(self.tokenizer, *variants.read(changed), self.max_length))

    def chosen(self, epoch: int) -> np.ndarray:
        """Return the rows that are replaced by a variant in this epoch."""
        if self.sampling is None or not self.candidates:
            return np.empty(0, dtype=np.int64)
        random = np.random.default_rng([self.seed, epoch, 1])
        return np.flatnonzero(random.random(len(self.rows)) < self.sampling.share)

    def vary(self, row: int, epoch: int, variants: Variants) -> None:
        """Replace one side of a row by a variant, if the row has substitutes."""
        number, pairs = int(self.rows.ids_N[row]), variants.pairs
        side = "pair" if pairs is not None and (number + epoch) % 2 else "text"
        found = self.candidates.get((number, side))
        if found is None or self.sampling is None:
            return
        probability = self.sampling.probability
        variant = sample_variant(
            *found, probability=probability, seed=self.seed, example=number, epoch=epoch, field=side
        )
        sentences = pairs if side == "pair" and pairs is not None else variants.texts
        variants.changed_N[row] = variant != sentences[row]
        sentences[row] = variant


def spliced(encoded: Encoded, rows: np.ndarray, fresh: Encoded) -> Encoded:
    """Return the tokens of all rows, those of ``rows`` replaced by ``fresh``, in the same order."""
    lengths_N, starts_N = encoded.lengths_N.copy(), encoded.offsets[:-1].copy()
    lengths_N[rows], starts_N[rows] = fresh.lengths_N, len(encoded.ids_S) + fresh.offsets[:-1]
    offsets = np.concatenate([[0], np.cumsum(lengths_N)]).astype(np.int64)
    at_S = np.arange(offsets[-1]) + np.repeat(starts_N - offsets[:-1], lengths_N)
    ids_S, segments_S = (
        np.concatenate(pair)[at_S] for pair in ((encoded.ids_S, fresh.ids_S), (encoded.segments_S, fresh.segments_S))
    )
    return Encoded(ids_S, segments_S, offsets, encoded.left)
