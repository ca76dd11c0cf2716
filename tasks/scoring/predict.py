"""Asking a finished model: rows in, logits out, as any user of the folder would, with transformers alone.

Shape letters: N rows, B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 64


def load(folder: Path) -> tuple[Any, Any]:
    """Load a checkpoint folder as classifier and tokenizer, in float32."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True, dtype=torch.float32, use_safetensors=True).eval()
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def logits_of(
    folder: Path, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, *, report: Callable[[int], None] = lambda done: None
) -> np.ndarray:
    """Return logits [N, C] of every row, in row order; rows of like length share a batch."""
    import torch

    model, tokenizer = load(folder)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]) + (len(pairs[row]) if pairs else 0))
    logits_NC = np.empty((len(texts), model.config.num_labels), dtype=np.float32)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        second = [pairs[row] for row in rows] if pairs else None
        batch = tokenizer([texts[row] for row in rows], second, truncation=True, max_length=max_length, padding=True, return_tensors="pt")
        with torch.inference_mode():
            logits_NC[rows] = model(**batch).logits.numpy()
        report(start + len(rows))
    return logits_NC


def truncated_share(folder: Path, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> float:
    """Return the share of rows that are longer than ``max_length`` tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    lengths = [len(ids) for ids in tokenizer(list(texts), list(pairs) if pairs else None, verbose=False)["input_ids"]]
    return float(np.mean(np.asarray(lengths) > max_length))


def predict_texts(folder: Path, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int = 128) -> list[dict[str, Any]]:
    """Return a label and a score, or a value, for every text."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    logits_NC = logits_of(folder, texts, pairs, max_length)
    if config.num_labels == 1:
        return [{"value": float(value)} for value in logits_NC[:, 0]]
    odds_NC = np.exp(logits_NC - logits_NC.max(-1, keepdims=True))
    shares_NC = odds_NC / odds_NC.sum(-1, keepdims=True)
    return [{"label": config.id2label[int(row.argmax())], "score": float(row.max())} for row in shares_NC]
