"""Inner signals for a student that has fewer pieces than its teacher.

Layers are compared token by token, so both have to read the same tokens. The student's pieces are all among its
teacher's, so the teacher reads them, too, if its embeddings have the student's rows. A text that both tokenizers divide
alike then has the teacher's own hidden states, bit by bit; of a text that they divide otherwise the teacher never saw
the student's pieces side by side, so these rows are left out, and counted. Shape letters: V pieces, S tokens of all
rows, N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.training.data.encoded import Encoded
from tasks.training.data.rows import Rows
from tasks.training.models.pieces import keep_pieces
from tasks.training.models.students import freeze


def pieces_of_student(ours: dict[str, int], theirs: dict[str, int]) -> list[int] | None:
    """Return the teacher's numbers of the student's pieces [V], in the student's order; None if the student has a piece
    of its own, or if its numbers have gaps."""
    ordered = sorted(ours, key=ours.__getitem__)
    if [ours[piece] for piece in ordered] != list(range(len(ordered))) or not set(ordered) <= set(theirs):
        return None
    return [theirs[piece] for piece in ordered]


def read_alike(
    job: Job, teacher: Any, tokenizer: Any, teachers_tokenizer: Any, rows: Rows, max_length: int, kept: list[int]
) -> Rows:
    """Give a frozen teacher the student's pieces, in place, and return the rows that both divide alike.

    Raises ModelError for rows that are read in windows, for substitutes, which are divided anew in every epoch, and if
    no row is divided alike.
    """
    if rows.units is not None:
        raise ModelError(
            "the student has fewer pieces than its teacher, and rows of several answers are read in windows, whose "
            "tokens cannot be compared one by one; trim the vocabulary afterwards, or train it on the teacher's "
            "predictions only (stages: [])"
        )
    if "candidates" in job.inputs:
        raise ModelError(
            "the student has fewer pieces than its teacher, and replaced words may be divided otherwise by the two; "
            "remove augmentation from its stages, or trim the vocabulary afterwards"
        )
    before, after = (rows.tokens(one, max_length) for one in (teachers_tokenizer, tokenizer))
    alike_N = divided_alike(before, after, np.asarray(kept))
    if not alike_N.any():
        raise ModelError(
            f"the student's {len(kept):,} pieces divide none of {len(rows):,} rows as its teacher's do, so no layers "
            f"can be compared; keep more pieces, or train it on the teacher's predictions only (stages: [])"
        )
    job.log(f"{int((~alike_N).sum()):,} of {len(rows):,} rows are left out: both tokenizers divide them differently")
    keep_pieces(teacher, kept)
    freeze(teacher)
    return some_of(rows, alike_N)


def divided_alike(before: Encoded, after: Encoded, kept_V: np.ndarray) -> np.ndarray:
    """Return which rows have the same pieces in both [N]."""
    lengths_N = after.lengths_N
    alike_N = before.lengths_N == lengths_N
    for row in np.flatnonzero(alike_N):
        old, new = (slice(one.offsets[row], one.offsets[row + 1]) for one in (before, after))
        alike_N[row] = np.array_equal(before.ids_S[old], kept_V[after.ids_S[new]])
    return alike_N


def some_of(rows: Rows, chosen_N: np.ndarray) -> Rows:
    """Return the chosen rows."""
    return rows.take(np.flatnonzero(chosen_N))
