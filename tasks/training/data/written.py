"""Tokens of the texts that a model learns to write, beside those of their sources; no padding is stored.

Shape letters: N rows, U tokens of all texts, B batch, L tokens of a text (padded within a batch only), K tokens of the
texts of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.task_types.units import Writing

Write = Callable[[Any, Tensor, Tensor, Writing], Tensor]
"""Returns the tokens that a model writes, of each source its best texts, from those that it reads and their mask."""


@dataclass(frozen=True)
class WrittenTokens:
    """Tokens of N texts in one array; each token is a unit that has an answer."""

    ids_U: np.ndarray
    offsets: np.ndarray
    tokenizer: Any
    """It turns the tokens that a model has written into a text."""
    write: Write
    """Returns the tokens that a model writes."""

    @property
    def counts_N(self) -> np.ndarray:
        """The number of tokens of each text."""
        return np.diff(self.offsets)

    def padded(self, rows: Sequence[int] | np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the texts of some rows [B, L], the numbers of their tokens among those of all texts [K], and the
        places of these in the batch [K]."""
        counts = self.counts_N[rows]
        ids_BL, unit_BL = (np.full((len(rows), max(1, int(counts.max(initial=0)))), fill) for fill in (pad, -1))
        for place, (row, count) in enumerate(zip(rows, counts, strict=True)):
            start = self.offsets[row]
            ids_BL[place, :count] = self.ids_U[start : start + count]
            unit_BL[place, :count] = np.arange(start, start + count)
        at_K = np.flatnonzero(unit_BL.ravel() >= 0)
        return ids_BL.astype(np.int64), unit_BL.ravel()[at_K].astype(np.int64), at_K


def written_tokens(tokenizer: Any, texts: Sequence[str], max_length: int, write: Write) -> WrittenTokens:
    """Tokenize texts that a model learns to write, truncated to ``max_length`` tokens; an empty text stands for none,
    and has no token."""
    nothing = np.empty(0, dtype=np.int32)
    if not len(texts):
        return WrittenTokens(nothing, np.zeros(1, np.int64), tokenizer, write)
    found = tokenizer(text_target=list(texts), max_length=max_length, truncation=True)["input_ids"]
    lists = [ids if text else [] for ids, text in zip(found, texts, strict=True)]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64)
    flat = np.fromiter((value for ids in lists for value in ids), dtype=np.int32)
    return WrittenTokens(flat, offsets, tokenizer, write)


def require_ends(written: WrittenTokens | None, model: Any) -> None:
    """Raise ModelError for texts to write without a sign for their end, by the model's generation config: what learns
    them would never stop. The sign need not be the last one, because some tokenizers write the language behind it."""
    stated = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if written is None or stated is None:
        return
    is_end_U = np.isin(written.ids_U, stated)
    starts_N, counts_N = written.offsets[:-1], written.counts_N
    ends = np.concatenate([[0], np.cumsum(is_end_U)])
    without = int(((ends[written.offsets[1:]] == ends[starts_N]) & (counts_N > 0)).sum())
    if without:
        raise ModelError(
            f"the tokenizer writes no end (eos_token_id {stated} in the generation config) behind {without:,} of "
            f"{int((counts_N > 0).sum()):,} texts, so a model that learns them would never stop; use a tokenizer that "
            f"adds its eos_token, or state the one that it adds in generation_config.json"
        )


def tell_of_cut_texts(job: Job, written: WrittenTokens | None, max_length: int) -> None:
    """Tell the user how many texts to write reach the limit of tokens: models learn to stop where they are cut."""
    if written is None:
        return
    reached, every = int((written.counts_N >= max_length).sum()), int((written.counts_N > 0).sum())
    if reached:
        job.log(
            f"{reached:,} of {every:,} texts to write have max_length: {max_length} tokens or more, and are learned up "
            f"to there, with an end behind it; raise max_length if they are longer"
        )


def texts_of_tokens(tokenizer: Any, ids_BL: Any) -> list[str]:
    """Return the texts of tokens that a model has written."""
    found = tokenizer.batch_decode(ids_BL, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return [text.strip() for text in found]
