"""What all contestants of a comparison of libraries learn with: teacher, start, batches in their order, optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from tasks.recipe.slices import PredictionSlice
from tasks.recipe.training import SeededTraining
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import collate
from tasks.training.data.epochs import Epochs, planned
from tasks.training.data.rows import read_rows
from tasks.training.loop import rate
from tasks.training.models.students import freeze, set_dropout
from tests.benchmarks.types.school import CPU, School

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Lesson:
    """One training that every contestant makes, from one start over the same batches."""

    school: School
    name: str
    start: Path
    """The folder of the student before the training."""
    knobs: SeededTraining
    batches: list[Batch]
    """Inputs and labels of every step, padded to the longest row of the batch."""

    @property
    def answers(self) -> PredictionSlice:
        """The knobs of a training on the teacher's answers."""
        assert isinstance(self.knobs, PredictionSlice)
        return self.knobs

    def pair(self, *, inner: bool = False) -> tuple[Any, Any]:
        """Return the frozen teacher and the student as transformers loads them; ``inner``: in the one kernel that shows
        its attention."""
        student = load(self.start, inner).train().requires_grad_(True)
        return freeze(load(self.school.teacher, inner)), student

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        """Return AdamW as we set it: biases and norms do not decay."""
        learned = list(parameters)
        groups = [
            {"params": [one for one in learned if one.ndim > 1], "weight_decay": self.knobs.weight_decay},
            {"params": [one for one in learned if one.ndim <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.knobs.learning_rate)

    def share(self) -> Callable[[int], float]:
        """Return the schedule: the share of the peak rate at a step."""
        total, knobs = len(self.batches), self.knobs
        return lambda step: rate(min(step, total - 1), total, knobs.warmup, knobs.schedule)

    def scratch(self, of: str) -> Path:
        """Return a folder for what a library writes beside its student."""
        folder = self.school.scratch / f"{self.name}-{of}-scratch"
        folder.mkdir()
        return folder

    def save(self, student: Any, of: str) -> Path:
        """Write a trained student; return its folder."""
        return self.school.save(student, f"{self.name}-{of}")


def load(folder: Path, inner: bool) -> Any:
    """Load a classifier without dropout, as all contestants train."""
    kernel = "eager" if inner else "sdpa"
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, attn_implementation=kernel
    )
    set_dropout(model, 0.0)
    return model


def lesson_of(school: School, name: str, start: Path, knobs: SeededTraining, steps: int) -> Lesson:
    """Return the lesson whose batches are those that our own training plans for these knobs."""
    tokenizer, rows = school.tokenizer(), read_rows(school.rows, "train", HEADS[school.kind])
    encoded = rows.tokens(tokenizer, knobs.max_length)
    epochs, batches = Epochs(lambda number: planned(number, encoded, knobs)), list[Batch]()
    for step in range(steps):
        rows_B = epochs.at(step, steps).rows_B
        padded = collate(encoded, rows_B, tokenizer.pad_token_id, CPU)
        inputs = {
            "input_ids": padded.ids_BT,
            "attention_mask": padded.mask_BT,
            "token_type_ids": padded.segments_BT,
        }
        batches.append({**inputs, "labels": torch.as_tensor(rows.labels_N[rows_B], dtype=torch.long)})
    return Lesson(school, name, start, knobs, batches)


def inputs_of(batch: Batch) -> Batch:
    """Return a batch without its labels."""
    return {name: values for name, values in batch.items() if name != "labels"}
