"""Parity check of an export against its model: differences between two sets of outputs, and the reason why an export is
not published.

Outputs are arrays by name, rows first. Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from tasks.metrics.definition import metric_value
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.row_files import StoredRows
from tasks.results.facts import GraphFacts
from tasks.task_types.answers import ANSWERS
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.units import flattened


class Parity(TypedDict):
    """How far an export is from its source."""

    largest_difference: float
    """Of outputs."""
    equal_answers: float
    """Share of rows with equal predictions."""


def apart(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], task_type: str) -> Parity:
    """Return the largest difference of outputs, and the share of rows with equal predictions."""
    graph = GRAPHS[task_type]
    names = [output.name for output in graph.outputs]
    apart_by = [
        float(np.abs(flattened(ours[name]) - flattened(theirs[name])).max())
        for name in names
        if ours[name].dtype.kind != "U"  # texts have no difference
    ]
    return {
        "largest_difference": max(apart_by, default=0.0),
        "equal_answers": float(graph.equal(ours, theirs).mean()),
    }


def score(outputs: Mapping[str, np.ndarray], rows: StoredRows, metric: str, task_type: str) -> float:
    """Return a metric of some rows, computed from outputs."""
    return metric_value(METRICS[metric], ANSWERS[task_type].decide(outputs), rows.labels_N, rows.units_N)


def loss(value: float, full: float, metric: str) -> float:
    """Return by how much a value is worse than the full model's; for an error, such as a perplexity, as a share of the
    full model's, since errors have no common scale."""
    if METRICS[metric].lower_is_better:
        return value / full - 1 if full else value
    return full - value


def against_full(facts: GraphFacts, parity: float) -> str:
    """Return the reason why an fp32 graph may not be published; empty if it may."""
    if not facts.made:
        return facts.because
    found = facts.largest_difference
    return (
        ""
        if found <= parity
        else f"its logits differ from the checkpoint's by up to {found:.3g}, and exports.parity allows {parity:g}"
    )


def against_fp32(facts: GraphFacts, tolerance: float, name: str = "int8") -> str:
    """Return the reason why a quantized graph, of a format's name, may not be published; empty if it may."""
    if not facts.made:
        return facts.because
    lost = facts.loss
    if lost <= tolerance + 1e-12:
        return ""
    worse = (
        f"has {lost:.2%} more {facts.metric} than"
        if METRICS[facts.metric].lower_is_better
        else f"loses {lost:.4f} of {facts.metric} against"
    )
    return (
        f"{name} ({facts.way}) {worse} its own fp32 graph on the selection rows, and exports.tolerance allows "
        f"{tolerance:g}"
    )
