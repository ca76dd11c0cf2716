"""Tiny models of every task type, and their configs, which state the type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.scoring.small import write_classifier

OF_VECTORS = {"limbeck_task_type": "embedding", "limbeck_pooling": "mean"}
CONFIGS: dict[str, dict[str, Any]] = {
    "classification": {"num_labels": 3, "problem_type": "single_label_classification"},
    "regression": {"num_labels": 1, "problem_type": "regression"},
    "multi-label": {"num_labels": 3, "problem_type": "multi_label_classification"},
    "embedding": OF_VECTORS,
    "retrieval": OF_VECTORS,
}


def write_model(folder: Path, name: str) -> Path:
    """Write a random model of a task type of 16 hidden units; return its folder."""
    write_classifier(folder, **CONFIGS[name])
    if CONFIGS[name] is OF_VECTORS:
        from tasks.task_types.embedding.pooled import AutoModel

        AutoModel.from_pretrained(folder).save_pretrained(folder)
    return folder
