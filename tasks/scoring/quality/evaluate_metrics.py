"""The metrics as ``evaluate.Metric`` classes that need no hub, for scoring with the same definitions outside of
Limbeck."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS
from tasks.task_types.answers import ANSWERS


class LimbeckMetric(evaluate.Metric):
    """One of ``METRICS``, chosen by ``config_name``."""

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value(next(one.dtype for one in ANSWERS.values() if self.config_name in one.metrics))
        features = datasets.Features({"predictions": value, "references": value})
        return evaluate.MetricInfo(description=METRICS[self.config_name].description, citation="", features=features)

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {self.config_name: METRICS[self.config_name](np.asarray(predictions), np.asarray(references))}


def metric(name: str) -> LimbeckMetric:
    """Return a metric by name."""
    if name not in METRICS:
        raise RecipeError(f"unknown metric {name!r}; choose one of {', '.join(sorted(METRICS))}")
    return LimbeckMetric(config_name=name, keep_in_memory=True)
