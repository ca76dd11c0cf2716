"""Tokens of rows as one array: no padding is stored, so none is computed by accident; and batches of them.

A row is read whole, or in windows where its units have an answer each; a unit that is read apart is a window of its
own. Shape letters: N rows, F windows, U units of all rows, S tokens of all rows together, B batch, T tokens of a row
(padded within a batch only), P tokens of a batch without its padding, K answered units of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tasks.architectures.known_architectures import is_told_segments
from tasks.task_types.texts.truncation import cut_pairs
from tasks.task_types.units import Parts, concluded_rows, hidden_id, place_units, require_places, tokens_in_windows
from tasks.training.data.written import WrittenTokens, written_tokens
from tasks.training.precision import FUSED

if TYPE_CHECKING:
    from tasks.task_types.units import StatedEntries, Units, WrittenPieces

WINDOW_IDS = 2**42
"""Between the ids of two windows of a row: more than any id of a row."""
ENCODED_AT_ONCE = 10_000
"""Texts that are tokenized at once: a tokenizer's own lists of a text take some kilobytes, its tokens as an array a
tenth of that."""
GPU_WIDTHS = 8
"""Tokens by which the widths of batches differ on a GPU, whose matrix units multiply in eights."""


@dataclass(frozen=True)
class Windows:
    """Which rows, and which of their units, stand in the windows of encoded rows. Shape letter: F windows."""

    row_F: np.ndarray
    unit_S: np.ndarray | None
    """The number of the unit that each token answers, among the units of all rows; -1 for none. None where each window
    is one unit: those of a row are then in one batch."""
    counts_N: np.ndarray
    """The number of units of each row."""
    targets_UK: np.ndarray | None = None
    """The targets of units, where they depend on the places of tokens."""
    needed_F: np.ndarray | None = None
    """Whether a sample of a row prefers each window, where windows are units and their labels are known."""
    conclude: Callable[[Mapping[str, np.ndarray], StatedEntries], dict[str, np.ndarray]] | None = None
    """Adds to outputs by row what is concluded from them, from the config of the model; None: there is nothing."""

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
    written: WrittenTokens | None = None
    """The texts to write, where a model writes texts; lengths and offsets are those of their sources."""

    @cached_property
    def lengths_N(self) -> np.ndarray:
        """The number of tokens in each row."""
        return np.diff(self.offsets)

    @cached_property
    def longest(self) -> int:
        """The number of tokens in the longest row."""
        return int(self.lengths_N.max(initial=0))

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
    """Tokenize rows, truncated to ``max_length`` tokens; there may be none, as without selection rows."""
    if not len(texts):
        return Encoded(flat([]), flat([]), np.zeros(1, np.int64), pads_left(tokenizer))  # tokenizers refuse no texts
    options = {"max_length": max_length, "return_attention_mask": False, "return_token_type_ids": True}
    ids, segments, lengths = list[np.ndarray](), list[np.ndarray](), [0]
    for start in range(0, len(texts), ENCODED_AT_ONCE):
        some = slice(start, start + ENCODED_AT_ONCE)
        out = cut_pairs(tokenizer, texts[some], None if pairs is None else pairs[some], **options)
        ids.append(flat(out["input_ids"]))
        segments.append(flat(out["token_type_ids"]))
        lengths += [len(one) for one in out["input_ids"]]
    offsets = np.cumsum(lengths).astype(np.int64)
    return Encoded(np.concatenate(ids), np.concatenate(segments), offsets, pads_left(tokenizer))


def encode_windows(
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    units: Units,
    pairs: Sequence[str] | None = None,
    labels: Sequence[Any] = (),
) -> Encoded:
    """Tokenize rows in windows of at most ``max_length`` tokens; of pairs, each window has the whole first text.
    ``labels`` of the rows are needed where targets depend on the places of tokens. Raises ModelError for a tokenizer
    that does not tell the places of its tokens."""
    require_places(tokenizer)
    left, nothing = pads_left(tokenizer), np.empty(0, dtype=np.int64)
    if not len(texts):
        return Encoded(nothing, nothing, np.zeros(1, np.int64), left, Windows(nothing, nothing, nothing))
    out, row_F, places_F = tokens_in_windows(
        tokenizer, texts, pairs, max_length, units, return_attention_mask=False, return_token_type_ids=True
    )
    windows: list[list[np.ndarray]] = [[] for _ in texts]
    for row, places_T2 in zip(row_F, places_F, strict=True):
        windows[row].append(places_T2)
    answered, places, before = list[list[np.ndarray]](), list[np.ndarray](), 0
    for text, own in zip(texts if pairs is None else pairs, windows, strict=True):
        found, places_U3 = place_units(units, text, own)
        answered.append(found)
        places.append(places_U3 + np.asarray([0, 0, before]))
        before += len(own)
    counts_N = np.asarray([len(places_U3) for places_U3 in places], dtype=np.int64)
    unit_S = [
        np.where(unit_T < 0, -1, unit_T + start)
        for own, start in zip(answered, np.cumsum(counts_N) - counts_N, strict=True)
        for unit_T in own
    ]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in out["input_ids"]])]).astype(np.int64)
    kept, ids_S = Windows(row_F, np.concatenate(unit_S), counts_N), flat(out["input_ids"])
    if units.are_hidden:
        ids_S = np.where(np.concatenate(unit_S) < 0, ids_S, hidden_id(ids_S))
    if units.targets_at is not None and len(labels):
        located = [units.targets_at(label, places_U3) for label, places_U3 in zip(labels, places, strict=True)]
        kept = replace(kept, targets_UK=np.concatenate(located))
    if units.conclude is not None:
        kept = replace(kept, conclude=concluding(units, places, texts if pairs is None else pairs))
    return Encoded(ids_S, flat(out["token_type_ids"]), offsets, left, kept)


def concluding(
    units: Units, places: Sequence[np.ndarray], texts: Sequence[str]
) -> Callable[[Mapping[str, np.ndarray], StatedEntries], dict[str, np.ndarray]]:
    """Return a function that adds to outputs by row what is concluded from them."""

    def conclude(outputs: Mapping[str, np.ndarray], stated: StatedEntries) -> dict[str, np.ndarray]:
        assert units.conclude is not None
        rows = [
            units.conclude({name: values[row] for name, values in outputs.items()}, places_U3, text, stated)
            for row, (places_U3, text) in enumerate(zip(places, texts, strict=True))
        ]
        return {**outputs, **concluded_rows(rows)}

    return conclude


def encode_parts(
    tokenizer: Any,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    parts: Parts,
    targets_U: np.ndarray | None = None,
) -> Encoded:
    """Tokenize the units of rows, each truncated to ``max_length`` tokens; each is a window of its row. By their
    targets, a sample of a row that has too many prefers some."""
    own, second, counts_N = parts.read(texts, pairs)
    row_F = np.repeat(np.arange(len(texts)), counts_N)
    needed_F = None if targets_U is None else parts.needed(targets_U)
    windows = Windows(row_F, None, counts_N, needed_F=needed_F)
    return replace(encode(tokenizer, own, second, max_length), windows=windows)


def encode_written(
    tokenizer: Any, texts: Sequence[str], labels: Sequence[Any], max_length: int, units: WrittenPieces
) -> Encoded:
    """Tokenize sources and the texts to write, each truncated to ``max_length`` tokens; each token of a text to write
    is a unit whose target is that token."""
    sources = encode(tokenizer, texts, None, max_length)
    found = written_tokens(tokenizer, [units.target(label) for label in labels], max_length, units.write)
    rows_N, none_S = np.arange(len(texts)), np.full(len(sources.ids_S), -1, dtype=np.int64)
    windows = Windows(rows_N, none_S, found.counts_N, found.ids_U.astype(np.int64)[:, None])
    return replace(sources, windows=windows, written=found)


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
    """The places of the tokens that answer a unit, among all of the batch, or among all that it writes; None where rows
    have one answer."""
    written_BL: Tensor | None = None
    """The texts to write, where a model writes texts."""
    at_host_B: np.ndarray | None = None
    """``at_B`` before it was sent to the device."""

    def on_host(self) -> tuple[Tensor, Tensor]:
        """Return tokens and mask on the CPU."""
        return self.host or (self.ids_BT.cpu(), self.mask_BT.cpu())

    @property
    def numbers(self) -> np.ndarray:
        """Return ``at_B`` on the CPU."""
        if self.at_host_B is not None:
            return self.at_host_B
        assert self.at_B is not None
        return np.asarray(self.at_B.cpu())

    def answers(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return outputs with one entry for each number in ``at_B``: those of rows, or of the tokens that answer a
        unit, which a model may compute alone, in their order."""
        if self.answered_K is None:
            return outputs
        flattened = {name: values.flatten(0, 1) for name, values in outputs.items()}
        count = len(self.answered_K)
        return {name: one if len(one) == count else one[self.answered_K] for name, one in flattened.items()}

    def inputs(self, model: Any) -> dict[str, Tensor]:
        """Return the keyword arguments that this model's forward takes; the mask of a batch without padding is left out
        for attention that would only look at it to find that out."""
        values = {"input_ids": self.ids_BT, "attention_mask": self.mask_BT}
        if not self.is_padded and model.config._attn_implementation == FUSED:
            del values["attention_mask"]
        if is_told_segments(model.config):
            values["token_type_ids"] = self.segments_BT
        if self.written_BL is not None:
            values["written_ids"] = self.written_BL
        return values


def collate(
    encoded: Encoded, rows: Sequence[int] | np.ndarray, pad: int, place: torch.device, width: int | None = None
) -> Batch:
    """Pad the named rows to the longest of them, or to ``width`` tokens if it is given; on a GPU, to a multiple of
    eight tokens, but never beyond the longest of all rows."""
    lengths = encoded.lengths_N[rows]
    width = width_of(int(lengths.max()), encoded, place) if width is None else width
    # The places of all rows at once: a loop over rows would take as long as a GPU takes for the step.
    from_start_BT = np.arange(width) - (width - lengths if encoded.left else np.zeros_like(lengths))[:, None]
    there_BT = (from_start_BT >= 0) & (from_start_BT < lengths[:, None])
    at_P = (encoded.offsets[rows][:, None] + from_start_BT)[there_BT]
    ids_BT = np.full(there_BT.shape, pad, dtype=np.int64)
    segments_BT, mask_BT = np.zeros(there_BT.shape, dtype=np.int64), there_BT.astype(np.int64)
    ids_BT[there_BT], segments_BT[there_BT] = encoded.ids_S[at_P], encoded.segments_S[at_P]
    answers, answered_K, written_BL = np.asarray(rows, dtype=np.int64), None, None
    if encoded.written is not None:
        written_BL, answers, answered_K = encoded.written.padded(rows, pad)
    elif encoded.windows is not None and encoded.windows.unit_S is not None:
        answers, answered_K = answers_in(encoded, encoded.windows.unit_S, rows, width)
    host = torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)
    others = torch.from_numpy(segments_BT), torch.from_numpy(answers)
    sent = [values.to(place, non_blocking=True) for values in (*host, *others)]
    is_padded = bool((lengths < width).any())
    batch = Batch(sent[0], sent[1], sent[2], sent[3], host, is_padded, at_host_B=answers)
    if written_BL is not None:
        batch = replace(batch, written_BL=torch.from_numpy(written_BL).to(place, non_blocking=True))
    if answered_K is not None:
        batch = replace(batch, answered_K=torch.from_numpy(answered_K).to(place, non_blocking=True))
    return batch


def width_of(longest: int, encoded: Encoded, place: torch.device) -> int:
    """Return the width of a batch whose longest row is given. A GPU repeats a captured step for batches of one size
    (``captured_steps.py``), so it gets few sizes."""
    if place.type != "cuda":
        return longest
    return min(-(-longest // GPU_WIDTHS) * GPU_WIDTHS, encoded.longest)


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
