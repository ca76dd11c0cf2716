"""Texts on which layers are measured, without their answers: as many tokens as are asked for, as a model learns them.

Shape letter: S tokens of all rows together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.task_types.units import is_framed
from tasks.training.data.encoded import Encoded
from tasks.training.data.rows import Rows

TOKENIZED_ROWS = 64
"""Rows that are tokenized at once: a few documents may have all tokens that are asked for."""


def first_tokens(rows: Rows, tokenizer: Any, max_length: int, most: int) -> Encoded:
    """Return about ``most`` tokens of the first rows: windows of documents and of chats in their frame, and the
    beginning of other texts."""
    parts, tokens, framed = list[Encoded](), 0, is_framed(rows.units)
    for start in range(0, len(rows), TOKENIZED_ROWS):
        some = rows.take(np.arange(start, min(start + TOKENIZED_ROWS, len(rows))))
        found = some.tokens(tokenizer, max_length) if framed else some.texts_alone(tokenizer, max_length, len(some))
        parts.append(found)
        tokens += int(found.lengths_N.sum())
        if tokens >= most:
            break
    return first_windows(parts, most)


def first_windows(parts: Sequence[Encoded], most: int) -> Encoded:
    """Return the first windows, or rows that are read whole, of several parts: ``most`` tokens at most, and one window
    at least. Their answers are left out."""
    lengths = np.concatenate([part.lengths_N for part in parts])
    count = max(1, int(np.searchsorted(np.cumsum(lengths), most, side="right")))
    offsets = np.concatenate([[0], np.cumsum(lengths[:count])]).astype(np.int64)
    every = [part.ids_S for part in parts], [part.segments_S for part in parts]
    ids_S, segments_S = (np.concatenate(values)[: offsets[-1]] for values in every)
    return Encoded(ids_S, segments_S, offsets, parts[0].left)
