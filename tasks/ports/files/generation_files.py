"""Checks of the generation configs in the folders of models that write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.ports.files.model_settings import read_settings
from tasks.task_types.texts.likeliest_words import require_followed
from tasks.task_types.types import TaskType


def require_followed_configs(folders: Sequence[Path], task_type: TaskType) -> None:
    """Raise ModelError for a model whose generation config has a setting with which no model here writes, where models
    of a task write texts that are learned or judged."""
    if task_type.writes or task_type.written_signals:
        for folder in folders:
            require_followed(read_settings(folder / "generation_config.json"), str(folder))
