"""The pieces that a smaller vocabulary keeps: those that cannot be spared, then the most frequent ones of a text.

Source: Abdaoui et al. 2020, arXiv:2010.05609. V is the number of pieces of the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from tasks.errors import RecipeError

Model = Mapping[str, Any]
"""The section ``model`` of a ``tokenizer.json``."""


def kept_pieces(
    counts_V: np.ndarray,
    required: Collection[int],
    parts_of: Callable[[int], Collection[int]],
    *,
    most: int | None,
    floor: int,
) -> list[int]:
    """Return the ids of the pieces to keep, in their old order.

    ``required`` stay in any case. Then come those with the largest ``counts_V`` [V], as long as they are found at least
    ``floor`` times and no more than ``most`` pieces are kept; None keeps all of them. ``parts_of`` returns the pieces
    without which a piece cannot be reached. Raises RecipeError if the required pieces alone are more than ``most``.
    """
    kept = set(required)
    if most is not None and len(kept) > most:
        raise RecipeError(
            f"keep: {most:,} is less than the {len(kept):,} special tokens and characters that every text may need; "
            f"give at least {len(kept):,}, or keep: used"
        )
    for piece in by_frequency(counts_V, floor):
        more = {piece, *parts_of(piece)} - kept
        if most is None or len(kept) + len(more) <= most:
            kept |= more
    return sorted(kept)


def by_frequency(counts_V: np.ndarray, floor: int) -> list[int]:
    """Return the pieces that are found at least ``floor`` times, the most frequent first; of equals, the older one."""
    order_V = np.lexsort((np.arange(len(counts_V)), -counts_V))
    return [int(piece) for piece in order_V if counts_V[piece] >= floor]


def characters_of(pieces: Collection[str]) -> set[str]:
    """Return the characters that some pieces are made of."""
    return {character for piece in pieces for character in piece}
