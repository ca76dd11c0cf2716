"""Tokens of a document that have a predecessor: each is predicted once, from those before it in its window.

A document begins and ends with the token of its tokenizer for that, so that a model learns to begin and to stop. No
window has tokens of two documents, unless these are packed (``streams.py``). While a model learns, neighbouring windows
share one token, the first one's last; when it is judged they share half, so that every token but the first ones has at
least that much before it. Shape letters: U predicted tokens of a document, T tokens of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.task_types.next_words.streams import bordered
from tasks.task_types.units import Conclusions, FramedText, ModelFrame, StatedEntries, Units

NEXT_LOGITS, WORD_IDS, NATS = "logits", "word_ids", "nats"
"""The outputs of a model for each token: the logits of the next one, which it is, and the nats that it takes."""
LIKELIHOOD = "likelihood"
"""What is concluded of a document: its nats and the number of its predicted tokens, with a space between them."""


def shared_in_training(max_length: int) -> int:
    """Return the number of tokens that neighbouring windows share while a model learns."""
    return 1


def shared_in_judging(max_length: int) -> int:
    """Return the number of tokens that neighbouring windows share when a model is judged."""
    return max(1, max_length // 2)


def begun(frame: ModelFrame, text: str) -> str:
    """Return a document behind the token for its beginning; a tokenizer that has none begins with that for the end."""
    return f"{frame.begin or frame.end}{text}"


def in_its_frame(frame: ModelFrame, text: str) -> FramedText:
    """Return a document, or a stream of some, between the tokens for its beginning and its end."""
    return FramedText(f"{begun(frame, bordered(frame, text))}{frame.end}")


def predicted_tokens(text: str, windows: Sequence[np.ndarray], *, judged: bool) -> list[np.ndarray]:
    """Return by window, at each token whose next one is predicted there, its number [T]; -1 for others."""
    found, before = list[np.ndarray](), 0
    shared = shared_in_judging if judged else shared_in_training
    for number, places_T2 in enumerate(windows):
        there = np.flatnonzero(places_T2.any(1))  # padding stands nowhere; each token of a document does
        # A document of several windows fills the first one.
        first = 0 if number == 0 else shared(int(windows[0].any(1).sum())) - 1
        unit_T = np.full(len(places_T2), -1, dtype=np.int64)
        predicting = there[first:-1]
        unit_T[predicting] = before + np.arange(len(predicting))
        found.append(unit_T)
        before += len(predicting)
    return found


def learned_tokens(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tokens that a model learns to predict."""
    return predicted_tokens(text, windows, judged=False)


def judged_tokens(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tokens by whose prediction a model is judged."""
    return predicted_tokens(text, windows, judged=True)


def no_numbers(label: object, places_U3: np.ndarray) -> np.ndarray:
    """Return a target of each predicted token that says nothing: models return which token is next."""
    return np.zeros((len(places_U3), 1), dtype=np.int64)


def summed_nats(
    outputs: Mapping[str, np.ndarray], places_U3: np.ndarray, text: str, stated: StatedEntries
) -> Conclusions:
    """Return the nats of a document and the number of its predicted tokens."""
    nats_U = outputs[NATS].astype(np.float64)
    return {LIKELIHOOD: f"{nats_U.sum():.6f} {len(nats_U)}"}


LEARNED_TOKENS = Units(
    places=learned_tokens,
    targets_at=no_numbers,
    conclude=summed_nats,
    shared=shared_in_training,
    frame=in_its_frame,
    prompt=begun,
)
JUDGED_TOKENS = Units(
    places=judged_tokens,
    targets_at=no_numbers,
    conclude=summed_nats,
    shared=shared_in_judging,
    frame=in_its_frame,
    prompt=begun,
)
