"""How much of the metric a vocabulary and a format are expected to cost: measured once, on the teacher, and taken to be
as much for each shape. Plain values in and out.

A loss is in units of the metric; of a metric of which less is better, where scores are the negative, it is a share of
the value, since errors have no common scale.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasks.results.row import Number
from tasks.results.search import JudgedShape
from tasks.task_types.types import ERROR_METRICS


def losses_of_scores(scores: Mapping[str, float], metric: str) -> dict[str, float]:
    """Return the loss of each vocabulary against the one that scores best."""
    best = max(scores.values())
    unit = abs(best) if metric in ERROR_METRICS else 1.0
    return {name: (best - score) / unit if unit else 0.0 for name, score in scores.items()}


def with_loss(score: Number | None, loss: Number, metric: str) -> float | None:
    """Return a score less a loss; None where the score is not known."""
    return None if score is None else float(score - loss * (abs(score) if metric in ERROR_METRICS else 1.0))


def score_as_served(shape: JudgedShape, losses: Mapping[str, Number], metric: str) -> float:
    """Return the last score of a shape less the expected loss of its format, by which shapes are compared: all were
    scored before they are exported. One without a score is the worst."""
    found = with_loss(shape.scores[-1] if shape.scores else None, losses.get(shape.format, 0.0), metric)
    return float("-inf") if found is None else found
