"""How a model writes a text: plain data, for every room."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Writing:
    """How a model writes a text."""

    beams: int = 1
    """Texts that are continued side by side; 1 takes the likeliest word each time."""
    length_penalty: float = 1.0
    """The exponent of the length by which the log-likelihood of a beam is divided."""
    most: int = 128
    """Tokens of a written text, at most."""
    least: int = 0
    """Tokens of a written text, at least."""
    best: int = 1
    """The number of texts that are returned of each source."""
