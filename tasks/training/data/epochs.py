"""The plan of a training epoch: its batches, and the text of the rows in it.

A batch refers to its epoch, so that all readers of a row's text get the text that the batch was planned for.
Shape letters: N rows, S tokens of all rows, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from tasks.recipe.training import SeededTraining
from tasks.training.data.batches import by_length, costs_of_rows, plan, rooms_of_rows, whole_rows, windows_of
from tasks.training.data.encoded import Encoded


@dataclass(frozen=True)
class Variants:
    """The sentences of all rows in an epoch; those in ``changed_N`` differ from the rows' own text."""

    changed_N: np.ndarray
    texts: list[str]
    pairs: list[str] | None

    def read(self, rows_B: np.ndarray) -> tuple[list[str], list[str] | None]:
        """Return the texts of some rows, and their second texts."""
        pairs = None if self.pairs is None else [self.pairs[row] for row in rows_B]
        return [self.texts[row] for row in rows_B], pairs


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows: its number from 0, its tokens, and its batches as arrays of row numbers."""

    number: int
    encoded: Encoded
    batches: list[np.ndarray]
    tokens_S: np.ndarray | None = None
    """All tokens of the epoch, if they are known and few; the same array object as long as they do not change."""
    variants: Variants | None = None
    """None if all rows have their own text."""
    together: np.ndarray | None = None
    """The first row of each group of rows that a loss reads together, and their number; None if it reads each alone."""


@dataclass(frozen=True)
class Indices:
    """Numbers of rows, and the epoch in which they are read: a batch before its tokens are padded."""

    epoch: Epoch
    rows_B: np.ndarray

    def changed(self) -> np.ndarray:
        """Return the positions in the batch of rows whose text is a variant."""
        variants = self.epoch.variants
        return np.empty(0, np.int64) if variants is None else np.flatnonzero(variants.changed_N[self.rows_B])


class Epochs:
    """Finds the batch of a step; epochs are planned once, in order, and only the current one is stored, or with
    ``ahead`` the next one, too: a thread then tokenizes it, so that a GPU need not wait for that."""

    def __init__(self, epoch: Callable[[int], Epoch], *, ahead: bool = False) -> None:
        self.epoch, self.start, self.current = epoch, 0, epoch(0)
        self.planner = ThreadPoolExecutor(1, "next epoch") if ahead else None
        self.next: Future[Epoch] | None = None

    def __enter__(self) -> Epochs:
        return self

    def __exit__(self, *error: object) -> None:
        if self.planner is not None:
            self.planner.shutdown(cancel_futures=True)

    def at(self, step: int, total: int) -> Indices:
        """Return the batch of a step of ``total``; step numbers must not decrease."""
        while step >= self.start + len(self.current.batches):
            self.start += len(self.current.batches)
            number = self.current.number + 1
            self.current = self.epoch(number) if self.next is None else self.next.result()
            self.next = None
        if self.planner is not None and self.next is None and self.start + len(self.current.batches) < total:
            self.next = self.planner.submit(self.epoch, self.current.number + 1)
        return Indices(self.current, self.current.batches[step - self.start])


def planned(
    number: int,
    encoded: Encoded,
    knobs: SeededTraining,
    *,
    width: int | None = None,
    variants: Variants | None = None,
    together: np.ndarray | None = None,
) -> Epoch:
    """Return an epoch over all rows of a text with few tokens; each row is padded to ``width`` or, without it, to the
    longest of its batch. Rows whose units are read apart stay whole, or are a sample where they alone are too long;
    rows that come ``together`` (the first of each group, and their number) are in one batch, and count as one."""
    lengths_N, options = encoded.padded_to(width), {"size": knobs.batch_size, "tokens": knobs.batch_tokens}
    options |= {"seed": knobs.seed, "epoch": number}
    first_R = encoded.first_of_rows if together is None else together
    if first_R is None:
        batches = plan(lengths_N, **options)
    else:
        needed_F = None if encoded.windows is None else encoded.windows.needed_F
        batches = whole_rows(first_R, lengths_N, needed_F=needed_F, **options)
    # A model that writes looks up the tokens of its texts, too.
    tokens_S = encoded.ids_S if encoded.written is None else None
    return Epoch(number, encoded, batches, tokens_S=tokens_S, variants=variants, together=together)


def batches_of_rows(
    encoded: Encoded, rows_N: np.ndarray, *, size: int, tokens: int, together: np.ndarray | None = None
) -> list[np.ndarray]:
    """Return batches of some rows for a pass in which order does not matter, longest first; rows whose units are read
    apart stay whole, or are a sample where they alone are too long. Of rows that come ``together`` (see ``planned``),
    ``rows_N`` numbers the groups."""
    first_R = encoded.first_of_rows if together is None else together
    if first_R is None:
        return [rows_N[chosen] for chosen in by_length(encoded.lengths_N[rows_N], size=size, tokens=tokens)]
    lengths_F, needed_F = encoded.lengths_N, None if encoded.windows is None else encoded.windows.needed_F
    costs_N, room_R = costs_of_rows(first_R, lengths_F, tokens)[rows_N], rooms_of_rows(first_R, lengths_F, tokens)
    every = by_length(costs_N, size=size, tokens=tokens)
    return [windows_of(first_R, rows_N[chosen], room_R, needed_F) for chosen in every]
