"""The size of a teacher's stored layers: one formula for the plan, which decides before, and the engine, which writes
them.

Letters: S tokens of all rows, N rows.
"""

from __future__ import annotations

from dataclasses import dataclass

SCALE_BYTES = 4
"""Size of one scale: with 8 bits, values are stored as whole numbers and a scale for each group of them."""


@dataclass(frozen=True)
class TextSize:
    """The size of a text: its rows, its tokens, and the pairs of tokens of one row, which attention has a score for."""

    rows: int
    tokens: int
    pairs: int

    def widened(self, shorter: int, longer: int, share: float) -> TextSize:
        """Return an upper bound for a higher limit on the length of rows; ``share`` of them had ``shorter`` tokens, and
        may have been truncated there."""
        cut, more = round(share * self.rows), max(0, longer - shorter)
        return TextSize(self.rows, self.tokens + cut * more, self.pairs + cut * more * (longer + shorter))


@dataclass(frozen=True)
class StorageShape:
    """The number of stored hidden states and attention layers, the width and heads of each, and the bits of a value."""

    hidden: int
    attention: int
    width: int
    heads: int
    bits: int = 16

    def numbers(self, text: TextSize) -> tuple[int, int]:
        """Return how many values a text takes, in hidden states and in scores."""
        return text.tokens * self.hidden * self.width, text.pairs * self.attention * self.heads

    def bytes(self, text: TextSize) -> int:
        """Return the size of the files in bytes."""
        values = sum(self.numbers(text)) * self.bits // 8
        if self.bits == 16:
            return values
        of_states = (text.tokens + self.width) * self.hidden
        return values + SCALE_BYTES * (of_states + text.rows * self.attention * self.heads)
