"""Means over seeds, which stand beside a model's own figures: the sentence on what they vary."""

from __future__ import annotations

VARIED = (
    "seeds vary a candidate's own training; its teacher, general distillation, augmentation and rows are the "
    "same for all of them"
)
