"""Parity check of an export against its model: differences between two sets of logits, and the reason why an export is
not published.

Shape letters: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.metrics.metrics import METRICS


def apart(ours_NC: np.ndarray, theirs_NC: np.ndarray, kind: str) -> dict[str, float]:
    """Return the largest difference of logits, and the share of rows with equal predictions (regression: within
    0.01)."""
    same_N = (
        ours_NC.argmax(-1) == theirs_NC.argmax(-1)
        if kind == "classification"
        else np.abs(ours_NC - theirs_NC)[:, 0] < 0.01
    )
    return {"largest_difference": float(np.abs(ours_NC - theirs_NC).max()), "equal_answers": float(same_N.mean())}


def score(logits_NC: np.ndarray, labels_N: np.ndarray, metric: str, kind: str) -> float:
    """Return a metric, computed from logits."""
    return METRICS[metric](logits_NC.argmax(-1) if kind == "classification" else logits_NC[:, 0], labels_N)


def loss(value: float, full: float, metric: str) -> float:
    """Return by how much a value is worse than the full model's, for metrics of either direction."""
    return value - full if METRICS[metric].lower_is_better else full - value


def against_full(facts: Mapping[str, Any], parity: float) -> str:
    """Return the reason why an fp32 graph may not be published; empty if it may."""
    if not facts["made"]:
        return str(facts["because"])
    found = facts["largest_difference"]
    return (
        ""
        if found <= parity
        else f"its logits differ from the checkpoint's by up to {found:.3g}, and exports.parity allows {parity:g}"
    )


def against_fp32(facts: Mapping[str, Any], tolerance: float) -> str:
    """Return the reason why an int8 graph may not be published; empty if it may."""
    if not facts["made"]:
        return str(facts["because"])
    lost = facts["loss"]
    if lost <= tolerance + 1e-12:
        return ""
    return (
        f"int8 ({facts['way']}) loses {lost:.4f} of {facts['metric']} against its own fp32 graph on the selection "
        f"rows, and "
        f"exports.tolerance allows {tolerance:g}"
    )
