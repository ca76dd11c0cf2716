"""Tokens of rows as one array: no padding is stored, so none is computed by accident; and batches of them.

A row is read whole, or in windows where its units have an answer each; a unit that is read apart is a window of its
own. Shape letters: N rows, F windows, U units of all rows, S tokens of all rows together, B batch, T tokens of a row
(padded within a batch only), K answered units of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tasks.architectures.known_architectures import is_told_segments
from tasks.errors import ModelError
from tasks.task_types.texts.truncation import cut_pairs
from tasks.task_types.units import Parts, overlap_of
from tasks.training.precision import FUSED

if TYPE_CHECKING:
    from tasks.task_types.units import Units

WINDOW_IDS = 2**42
"""Between the ids of two windows of a row: more than any id of a row."""


@dataclass(frozen=True)
class Windows:
    """Which rows, and which of their units, stand in the windows of encoded rows. Shape letter: F windows."""

    row_F: np.ndarray
    unit_S: np.ndarray | None
    """The number of the unit that each token answers, among the units of all rows; -1 for none. None where each window
    is one unit: those of a row are then in one batch."""
    counts_N: np.ndarray
    """The number of units of each row."""

    @property
    def ids_F(self) -> np.ndarray:
        """Return the number of each window within its row."""
        return np.arange(len(self.row_F)) - np.searchsorted(self.row_F, self.row_F)


@dataclass(frozen=True)
class Encoded:
    """Tokens of N rows in one array, with the segment of each token; ``left`` says whether batches are padded on the
    left."""

    ids_S: np.ndarray
    segments_S: np.ndarray
    offsets: np.ndarray
    left: bool = False
    windows: Windows | None = None
    """Set where rows are read in windows: lengths and offsets are then those of windows."""

    @property
    def lengths_N(self) -> np.ndarray:
        """Return the number of tokens in each row."""
        return np.diff(self.offsets)

    def padded_to(self, width: int | None) -> np.ndarray:
        """Return the number of tokens in each row when padded to ``width``; without a width, its own length."""
        return self.lengths_N if width is None else np.full(len(self.offsets) - 1, width)

    @property
    def answers(self) -> int:
        """Return the number of answers of all rows."""
        return len(self.offsets) - 1 if self.windows is None else int(self.windows.counts_N.sum())

    @property
    def first_of_rows(self) -> np.ndarray | None:
        """Return for each row its first window, and behind them the number of windows, where rows stay whole; else
        None."""
        if self.windows is None or self.windows.unit_S is not None:
            return None
        return np.concatenate([[0], np.cumsum(self.windows.counts_N)])

    def ids_of(self, ids_N: np.ndarray) -> np.ndarray:
        """Return a number for the tokens of each row, or of each window, from the ids of the rows."""
        if self.windows is None:
            return ids_N
        return np.asarray(ids_N[self.windows.row_F] + WINDOW_IDS * self.windows.ids_F)


def pads_left(tokenizer: Any) -> bool:
    """Tell whether batches are padded on the left."""
    return bool(tokenizer.padding_side == "left")


def encode(tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> Encoded:
    """Tokenize rows, truncated to ``max_length`` tokens."""
    options = {"max_length": max_length, "return_attention_mask": False, "return_token_type_ids": True}
    out = cut_pairs(tokenizer, texts, pairs, **options)
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in out["input_ids"]])]).astype(np.int64)
    return Encoded(flat(out["input_ids"]), flat(out["token_type_ids"]), offsets, pads_left(tokenizer))


def encode_windows(tokenizer: Any, texts: Sequence[str], max_length: int, units: Units) -> Encoded:
    """Tokenize rows in windows of at most ``max_length`` tokens. Raises ModelError for a tokenizer that does not tell
    the places of its tokens."""
    if not tokenizer.is_fast:
        raise ModelError("the tokenizer does not tell where its tokens stand; use a model with a tokenizer.json")
    counts_N = np.asarray([units.count(text) for text in texts], dtype=np.int64)
    if not len(texts):
        nothing = np.empty(0, dtype=np.int64)
        return Encoded(
            nothing, nothing, np.zeros(1, np.int64), pads_left(tokenizer), Windows(nothing, nothing, counts_N)
        )
    out = tokenizer(
        list(texts),
        truncation=True,
        max_length=max_length,
        stride=overlap_of(max_length),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=True,
        verbose=False,
    )
    row_F = np.asarray(out["overflow_to_sample_mapping"], dtype=np.int64)
    windows: list[list[np.ndarray]] = [[] for _ in texts]
    for row, places in zip(row_F, out["offset_mapping"], strict=True):
        windows[row].append(np.asarray(places, dtype=np.int64).reshape(-1, 2))
    found = list[np.ndarray]()
    for text, own, start in zip(texts, windows, np.cumsum(counts_N) - counts_N, strict=True):
        found += [np.where(unit_T < 0, -1, unit_T + start) for unit_T in units.places(text, own)]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in out["input_ids"]])]).astype(np.int64)
    kept = Windows(row_F, np.concatenate(found), counts_N)
    return Encoded(flat(out["input_ids"]), flat(out["token_type_ids"]), offsets, pads_left(tokenizer), kept)


def encode_parts(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, parts: Parts
) -> Encoded:
    """Tokenize the units of rows, each truncated to ``max_length`` tokens; each is a window of its row."""
    own, second, counts_N = parts.read(texts, pairs)
    row_F = np.repeat(np.arange(len(texts)), counts_N)
    found = encode(tokenizer, own, second, max_length) if own else encode(tokenizer, [], None, max_length)
    return replace(found, windows=Windows(row_F, None, counts_N))


def flat(lists: Sequence[Sequence[int]]) -> np.ndarray:
    """Concatenate lists of integers."""
    return np.fromiter((value for values in lists for value in values), dtype=np.int32)


@dataclass(frozen=True)
class Batch:
    """Padded tensors of one batch, on the device of the model."""

    ids_BT: Tensor
    mask_BT: Tensor
    segments_BT: Tensor
    at_B: Tensor | None = None
    """Numbers of the rows, or of the units that are answered, for a loss that needs their labels."""
    host: tuple[Tensor, Tensor] | None = None
    """Tokens and mask before they were sent to the device, for draws that depend on them."""
    is_padded: bool = True
    """Whether a row may be shorter than the batch."""
    answered_K: Tensor | None = None
    """The places of the tokens that answer a unit, among all of the batch; None where rows have one answer."""

    def on_host(self) -> tuple[Tensor, Tensor]:
        """Return tokens and mask on the CPU."""
        return self.host or (self.ids_BT.cpu(), self.mask_BT.cpu())

    @property
    def numbers(self) -> np.ndarray:
        """Return ``at_B`` on the CPU."""
        assert self.at_B is not None
        return np.asarray(self.at_B.cpu())

    def answers(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return outputs with one entry for each number in ``at_B``: those of rows, or of the tokens that answer a
        unit."""
        if self.answered_K is None:
            return outputs
        return {name: values.flatten(0, 1)[self.answered_K] for name, values in outputs.items()}

    def inputs(self, model: Any) -> dict[str, Tensor]:
        """Return the keyword arguments that this model's forward takes; the mask of a batch without padding is left out
        for attention that would only look at it to find that out."""
        values = {"input_ids": self.ids_BT, "attention_mask": self.mask_BT}
        if not self.is_padded and model.config._attn_implementation == FUSED:
            del values["attention_mask"]
        if is_told_segments(model.config):
            values["token_type_ids"] = self.segments_BT
        return values


def collate(
    encoded: Encoded, rows: Sequence[int] | np.ndarray, pad: int, place: torch.device, width: int | None = None
) -> Batch:
    """Pad the named rows to the longest of them, or to ``width`` tokens if it is given."""
    lengths = encoded.lengths_N[rows]
    width = int(lengths.max()) if width is None else width
    ids_BT = np.full((len(rows), width), pad, dtype=np.int64)
    segments_BT, mask_BT = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(2))
    for place_in_batch, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        start, there = encoded.offsets[row], valid(length, width, left=encoded.left)
        ids_BT[place_in_batch, there] = encoded.ids_S[start : start + length]
        segments_BT[place_in_batch, there] = encoded.segments_S[start : start + length]
        mask_BT[place_in_batch, there] = 1
    answers, answered_K = np.asarray(rows, dtype=np.int64), None
    if encoded.windows is not None and encoded.windows.unit_S is not None:
        answers, answered_K = answers_in(encoded, encoded.windows.unit_S, rows, width)
    host = torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)
    others = torch.from_numpy(segments_BT), torch.from_numpy(answers)
    sent = [values.to(place, non_blocking=True) for values in (*host, *others)]
    batch = Batch(sent[0], sent[1], sent[2], sent[3], host, bool((lengths < width).any()))
    return batch if answered_K is None else replace(batch, answered_K=torch.from_numpy(answered_K).to(place))


def answers_in(
    encoded: Encoded, unit_S: np.ndarray, rows: Sequence[int] | np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the units that a padded batch of windows answers, and the places of their tokens among all of it."""
    unit_BT = np.full((len(rows), width), -1, dtype=np.int64)
    for place, row in enumerate(rows):
        start, length = encoded.offsets[row], encoded.lengths_N[row]
        unit_BT[place, valid(length, width, left=encoded.left)] = unit_S[start : start + length]
    answered_K = np.flatnonzero(unit_BT.ravel() >= 0)
    return unit_BT.ravel()[answered_K], answered_K


def by_number(parts: Sequence[np.ndarray], at: Sequence[np.ndarray], answers: int) -> np.ndarray:
    """Return the values of batches by the number of their row or unit; zeros for a unit without a token."""
    values = np.concatenate(parts)
    found = np.zeros((answers, *values.shape[1:]), values.dtype)
    found[np.concatenate(at)] = values
    return found


def valid(length: int, width: int, *, left: bool) -> slice:
    """Return the positions of a row's tokens in a padded batch."""
    return slice(width - length, width) if left else slice(length)
