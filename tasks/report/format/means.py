"""Means over seeds, which stand beside a model's own figures: what they are, and what they vary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VARIED = (
    "seeds vary a candidate's own training; its teacher, general distillation, augmentation and rows are the "
    "same for all of them"
)


def mean_of(model: Mapping[str, Any], split: str, metric: str) -> Mapping[str, Any]:
    """Return a metric's mean over seeds with its interval; nothing of a model of one seed, and of results of older
    releases."""
    if deviation_of(model, split, metric) is None:
        return {}
    return ((model.get("means") or {}).get(split) or {}).get("metrics", {}).get(metric) or {}


def deviation_of(model: Mapping[str, Any], split: str, metric: str) -> float | None:
    """Return the standard deviation over seeds; None where there is one seed."""
    value = (model.get("deviation") or {}).get(split, {}).get(metric)
    return None if value is None else float(value)
