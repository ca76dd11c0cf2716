"""Texts that a model learns to write, and that it has written. Shape letter: N rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.metrics.of_texts import references_in

WRITTEN_OUTPUT = "written"
"""What a model has written, by row."""
WRITTEN_IDS = "written_ids"
"""The input by which a model is given a text, or a word of it, whose next words it predicts."""


def first_reference(label: Any) -> str:
    """Return the text that a model learns to write: the first of several right ones; empty where there is none."""
    return references_in(str(label or ""))[0]


def written_texts(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the texts that a model has written [N]."""
    return outputs[WRITTEN_OUTPUT]
