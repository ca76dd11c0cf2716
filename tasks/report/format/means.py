"""Means over seeds, displayed beside a model's own figures: the sentence on the differences between seeds."""

from __future__ import annotations

VARIED = (
    "seeds vary a candidate's own training; its teacher, general distillation, augmentation and rows are the same "
    "for all seeds"
)
