"""Inference with a finished model, as any user of the folder would run it: a checkpoint with transformers alone, an
export with ONNX Runtime.

Shape letters: N rows, B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError
from tasks.scoring.onnx_models import OnnxModel, card_of, is_export

BATCH = 64


def load(folder: Path) -> tuple[Any, Any]:
    """Load a checkpoint folder as classifier and tokenizer, in float32."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, found = AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, use_safetensors=True, output_loading_info=True
    )
    # transformers initialises missing weights at random and only warns: the predictions would look like real ones.
    if found["missing_keys"]:
        raise ModelError(
            f"{folder} lacks the weights {', '.join(sorted(found['missing_keys'])[:3])}; use a model that was "
            f"fine-tuned for a task"
        )
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def longest(config: Any, wanted: int) -> int:
    """Return the longest input of a model in tokens, at most ``wanted``."""
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or wanted
    offset = (config.pad_token_id or 0) + 1 if architecture_of(config).reserved_positions else 0
    relative = positions < 0  # some relative-position models say -1: no limit
    return wanted if relative else min(wanted, positions - offset)


def logits_of(
    folder: Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    *,
    threads: int = 1,
    report: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Return logits [N, C] of every row, in row order. ``threads`` applies to an export only; the threads of torch are
    set elsewhere."""
    if is_export(folder):
        logits_NC = OnnxModel(folder, threads=threads).logits(texts, pairs, max_length, report=report)
    else:
        logits_NC = logits_of_checkpoint(folder, texts, pairs, max_length, report)
    if not np.isfinite(logits_NC).all():
        raise ModelError(
            f"{folder} predicts values that are not finite; its training diverged: lower the learning rate"
        )
    return logits_NC


def logits_of_checkpoint(
    folder: Path, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, report: Callable[[int], None]
) -> np.ndarray:
    """Return a checkpoint's logits [N, C] in row order; rows of similar length share a batch."""
    import torch

    model, tokenizer = load(folder)
    max_length = longest(model.config, max_length)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]) + (len(pairs[row]) if pairs else 0))
    logits_NC = np.empty((len(texts), model.config.num_labels), dtype=np.float32)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        second = [pairs[row] for row in rows] if pairs else None
        batch = tokenizer(
            [texts[row] for row in rows],
            second,
            truncation=True,
            max_length=max_length,
            padding=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            logits_NC[rows] = model(**batch).logits.numpy()
        report(start + len(rows))
    return logits_NC


def truncated_share(folder: Path, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> float:
    """Return the share of rows that are truncated: longer than ``max_length`` tokens, or than the model's limit."""
    from transformers import AutoConfig, AutoTokenizer

    max_length = longest(AutoConfig.from_pretrained(folder, local_files_only=True), max_length)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    lengths = [len(ids) for ids in tokenizer(list(texts), list(pairs) if pairs else None, verbose=False)["input_ids"]]
    return float(np.mean(np.asarray(lengths) > max_length))


def predict_texts(
    folder: Path, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int = 128
) -> list[dict[str, Any]]:
    """Return a label and its probability, or a value, for every text."""
    names = label_names(folder)
    logits_NC = logits_of(folder, texts, pairs, max_length)
    if names is None:
        return [{"value": float(value)} for value in logits_NC[:, 0]]
    odds_NC = np.exp(logits_NC - logits_NC.max(-1, keepdims=True))
    shares_NC = odds_NC / odds_NC.sum(-1, keepdims=True)
    return [{"label": names[int(row.argmax())], "score": float(row.max())} for row in shares_NC]


def label_names(folder: Path) -> list[str] | None:
    """Return the names of a model's classes; None for a regression."""
    if is_export(folder):
        names: list[str] | None = card_of(folder)["labels"]
        return names
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    return None if config.num_labels == 1 else [config.id2label[number] for number in range(config.num_labels)]
