"""Parts of heads that several task types share: classes of transformers, labels that are texts, and untrained heads.

transformers is imported when a class is requested. Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np


def sequence_classifier() -> Any:
    """Return the class of models with one vector for each text."""
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification


def token_classifier() -> Any:
    """Return the class of models with one vector for each token."""
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification


def labels_as_texts(labels: Sequence[Any]) -> np.ndarray:
    """Return the labels of rows [N]; empty where a row has none."""
    return np.asarray(["" if label is None else label for label in labels], dtype=str)


def as_drawn(model: Any, read_targets: Callable[[], np.ndarray]) -> AbstractContextManager[None]:
    """Leave an untrained head as it is: labels that are names, places or grades tell nothing about the size of its
    outputs."""
    return nullcontext()
