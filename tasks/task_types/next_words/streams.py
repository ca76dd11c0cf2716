"""Streams: documents that stand one behind the other in one row, which windows cut where it suits them (packing).

Windows are then full, and may have tokens of several documents; a model attends across their borders, which the token
for the end of a document marks. Documents are packed for training alone: each that judges is read by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.task_types.units import ModelFrame

BORDER = "\x00"
"""The sign that parts documents of a row: the character NUL, with which no document is read (``rows.py``)."""


def as_stream(texts: Sequence[str], counts: Sequence[str]) -> tuple[str, str]:
    """Return documents as one row: its text, and the sums of what their labels count."""
    words, size, nats = np.asarray([[float(one) for one in count.split()] for count in counts]).sum(0)
    return BORDER.join(texts), f"{words:.0f} {size:.0f} {nats:.4f}"


def bordered(frame: ModelFrame, text: str) -> str:
    """Return a stream with the tokens for the end of a document and the beginning of the next one in place of its
    borders; with one token where the same stands for both."""
    begin = "" if frame.begin == frame.end else frame.begin or ""
    return text.replace(BORDER, f"{frame.end}{begin}")
