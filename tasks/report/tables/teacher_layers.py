"""Lines on the teacher's inner layers: stored once or computed in training, their size, and the reads of each student.

The same lines are displayed under a plan and after a run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.results.row import ResultRow
from tasks.results.teacher_layers import TeacherLayers


def layer_lines(choices: Sequence[TeacherLayers]) -> list[str]:
    """Return a sentence for each choice of a run."""
    return [f"The teacher's layers for students of {one.label}: {choice_words(one)}." for one in choices]


def choice_words(choice: TeacherLayers) -> str:
    """Return a choice and its grounds in words."""
    if not choice.kept:
        return f"not stored, the teacher runs during each training ({choice.why})"
    how_often = "" if choice.reads is None else f", each row is read {choice.reads:g} times"
    return f"stored once, {size_words(choice)}{how_often}; the disk has room for {gigabytes(choice.room)}"


def size_words(choice: TeacherLayers) -> str:
    """Return the size of stored layers, and that with the other number of bits."""
    if choice.size is None:
        return "of a size that the teacher's predictions will tell"
    other = 8 if choice.bits == 16 else 16
    return f"{gigabytes(choice.size)} ({gigabytes(choice.sizes[str(other)])} with signal_bits: {other})"


def read_lines(models: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on each student that learned from the teacher's layers."""
    return [
        f"{model.name} read the teacher's layers for {sum(model.teacher_rows_read):,} rows, and computed them for "
        f"{sum(model.teacher_rows_computed):,}."
        for model in models
        if model.teacher_rows_read is not None and model.teacher_rows_computed is not None
    ]


def gigabytes(size: int) -> str:
    """Return a size in gigabytes, a small one in megabytes."""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"
