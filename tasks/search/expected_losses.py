"""How much of the metric a vocabulary and a format are expected to cost: measured once, on the teacher, and taken to be
as much for each shape. Plain values in and out.

A loss is in units of the metric; of a metric of which less is better, where scores are the negative, it is a share of
the value, since errors have no common scale. None is negative: what scores better by chance is not preferred for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.results.row import Number
from tasks.results.search import JudgedShape
from tasks.task_types.types import ERROR_METRICS

OF_PIECES = ("token_perplexity", "masked_perplexity")
"""Metrics that do not tell vocabularies apart: a text of other pieces has other tokens, which are easier to predict the
smaller they are."""


def losses_of_scores(scores: Mapping[str, float], whole: float, metric: str) -> dict[str, float]:
    """Return the loss of each score against that of the ``whole`` vocabulary."""
    unit = abs(whole) if metric in ERROR_METRICS else 1.0
    return {name: max(0.0, whole - score) / unit if unit else 0.0 for name, score in scores.items()}


def expected_loss(shape: JudgedShape, losses: Mapping[str, Number]) -> float:
    """Return the loss of a shape's format and vocabulary together."""
    return float(losses.get(shape.format, 0.0) + losses.get(shape.pieces, 0.0))


def with_loss(score: Number | None, loss: Number, metric: str) -> float | None:
    """Return a score less a loss; None where the score is not known."""
    return None if score is None else float(score - loss * (abs(score) if metric in ERROR_METRICS else 1.0))


def score_as_served(shape: JudgedShape, losses: Mapping[str, Number], metric: str) -> float:
    """Return the last score of a shape less the expected loss of its format, by which shapes are compared: all were
    scored before they are exported. One without a score is the worst."""
    found = with_loss(shape.scores[-1] if shape.scores else None, losses.get(shape.format, 0.0), metric)
    return float("-inf") if found is None else found


def without_unknown(losses: Mapping[str, float], formats: Sequence[str]) -> dict[str, float]:
    """Return the losses with those of formats that could not be measured: as much as the largest that was."""
    most = max(losses.values(), default=0.0)
    return {**losses, **{name: most for name in formats if name not in losses}}
