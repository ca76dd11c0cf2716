"""Training text of an epoch: the rows as they are, or, for a share of them, a variant made from stored substitutes.

Substitutes are stored once and sentences are sampled per (example, epoch), so twenty variants of a row cost no disk and
no memory. Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351; pairs are varied one side at a time, never mixing rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from tasks.methods.text.word_substitution import sample_variant
from tasks.training.data.candidates import Options
from tasks.training.data.rows import Encoded, Rows, encode


@dataclass
class Varied:
    """Rows whose text changes from epoch to epoch. ``changed_N`` tells which rows of the newest epoch are variants."""

    rows: Rows
    tokenizer: Any
    max_length: int
    seed: int
    sampling: SimpleNamespace | None = None
    candidates: dict[tuple[int, str], Options] = field(default_factory=dict)
    epoch: int = -1
    encoded: Encoded | None = None
    changed_N: np.ndarray | None = None
    texts: tuple[list[str], list[str] | None] | None = None

    def read(self, rows: np.ndarray) -> tuple[list[str], list[str] | None]:
        """Return the newest epoch's texts of some rows, and their second texts."""
        texts, pairs = self.texts or (self.rows.texts, self.rows.pairs)
        return [texts[row] for row in rows], None if pairs is None else [pairs[row] for row in rows]

    def at(self, epoch: int) -> Encoded:
        """Return the tokens of an epoch."""
        if self.encoded is not None and (epoch == self.epoch or not self.candidates):
            return self.encoded
        texts, pairs = list(self.rows.texts), None if self.rows.pairs is None else list(self.rows.pairs)
        self.changed_N = np.zeros(len(texts), dtype=bool)
        for row in self.chosen(epoch):
            self.vary(row, epoch, texts, pairs)
        self.texts, self.encoded, self.epoch = (
            (texts, pairs),
            encode(self.tokenizer, texts, pairs, self.max_length),
            epoch,
        )
        return self.encoded

    def chosen(self, epoch: int) -> np.ndarray:
        """Return the rows that are replaced by a variant in this epoch."""
        if self.sampling is None or not self.candidates:
            return np.empty(0, dtype=np.int64)
        random = np.random.default_rng([self.seed, epoch, 1])
        return np.flatnonzero(random.random(len(self.rows)) < self.sampling.share)

    def vary(self, row: int, epoch: int, texts: list[str], pairs: list[str] | None) -> None:
        """Replace one side of a row by a variant, if it has substitutes."""
        number = int(self.rows.ids_N[row])
        side = "pair" if pairs is not None and (number + epoch) % 2 else "text"
        found = self.candidates.get((number, side))
        if found is None or self.sampling is None:
            return
        probability = self.sampling.probability
        variant = sample_variant(
            *found, probability=probability, seed=self.seed, example=number, epoch=epoch, field=side
        )
        sentences = pairs if side == "pair" and pairs is not None else texts
        assert self.changed_N is not None
        self.changed_N[row] = variant != sentences[row]
        sentences[row] = variant
