"""Texts that a model writes of encoded sources. Shape letters: N rows, B batch, T tokens of a source, L tokens of a
text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tasks.architectures.known_architectures import longest
from tasks.task_types.units import Writing
from tasks.training.data.batches import without_gradients
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.written import WrittenTokens, texts_of_tokens
from tasks.training.precision import arithmetic

LONGER, MORE = 2, 8
"""A text of a greedy model has at most so many times the tokens of its source, and so many more: one that has not
learned to stop would write the most that is legal in each evaluation."""


def texts_of_batch(
    model: Any, encoded: Encoded, written: WrittenTokens, rows: np.ndarray, pad: int, writing: Writing, precision: str
) -> list[list[str]]:
    """Return the texts that a model writes of some rows, of each its best ones, best first."""
    batch = collate(encoded, rows, pad, model.device)
    with torch.inference_mode(), arithmetic(precision, model.device):
        ids_BL = written.write(model, batch.ids_BT, batch.mask_BT, writing)
    texts = texts_of_tokens(written.tokenizer, ids_BL)
    return [texts[start : start + writing.best] for start in range(0, len(texts), writing.best)]


def greedy_outputs(
    model: Any, name: str, encoded: Encoded, written: WrittenTokens, pad: int, *, precision: str
) -> dict[str, np.ndarray]:
    """Return by ``name`` the texts [N] of all rows, word by word the likeliest, for the choice of checkpoints: a beam
    would take several times as long."""
    texts = [""] * len(encoded.lengths_N)
    was_training = model.training
    model.eval()
    for rows in without_gradients(encoded.lengths_N, model.device):
        asked = LONGER * int(encoded.lengths_N[rows].max()) + MORE
        most = longest(model.config, asked)
        found = texts_of_batch(model, encoded, written, rows, pad, Writing(most=most), precision)
        for row, (text,) in zip(rows, found, strict=True):
            texts[row] = text
    model.train(was_training)
    return {name: np.asarray(texts, dtype=str)}
