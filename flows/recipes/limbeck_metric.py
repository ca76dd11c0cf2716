"""Limbeck's metrics as a module of ``evaluate``: ``evaluate.load(metrics_module(), "macro_f1")``, or
``metric("macro_f1")`` of ``flows.api``.

A metric is defined once, in ``tasks.metrics``; scoring calls that definition, and so does this class, with arrays of
the same types, so that both give the same figure to the last digit. Scoring does not import ``evaluate``: that takes
seconds of processor time in every process, and it writes the inputs of each of a thousand resamples to an Arrow table.
``evaluate.load`` copies this file, which needs Limbeck; ``limbeck metrics copy`` writes files that do not.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import datasets
import evaluate
import numpy as np

from flows.recipes.metric_types import METRIC_TYPES
from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS, METRICS_OF_SCORES
from tasks.task_types.types import OF_GROUPS

CLASS_TYPE = "int64"
"""The type of the true values of a metric of scores, which is for two classes."""
SCORE_TYPE = "float64"


class LimbeckMetric(evaluate.Metric):
    """One of Limbeck's metrics; its name is the configuration, as in ``evaluate.load("glue", "mrpc")``.

    It reads ``predictions``, or ``prediction_scores`` if it is a metric of scores (``auroc``), and ``references``.
    """

    def _info(self) -> evaluate.MetricInfo:
        name = known_name(self.config_name)
        if name in METRICS_OF_SCORES:
            features = {"prediction_scores": datasets.Value(SCORE_TYPE), "references": datasets.Value(CLASS_TYPE)}
            definition = METRICS_OF_SCORES[name]
        else:
            value = datasets.Value(METRIC_TYPES[name])
            features, definition = {"predictions": value, "references": value}, METRICS[name]
        return evaluate.MetricInfo(
            description=definition.description, citation="", features=datasets.Features(features)
        )

    def _compute(self, references: Any, predictions: Any = None, prediction_scores: Any = None) -> dict[str, float]:
        name = self.config_name
        if name in METRICS_OF_SCORES:
            return {name: METRICS_OF_SCORES[name](np.asarray(prediction_scores), np.asarray(references))}
        return {name: METRICS[name](np.asarray(predictions), np.asarray(references))}


def known_name(name: str) -> str:
    """Return the name of a metric. Raises RecipeError for an unknown one, and where none is given."""
    if name in OF_GROUPS:
        raise RecipeError(
            f"{name} judges groups of rows, which evaluate does not pass to a metric; compute it in a recipe with "
            f"task.group"
        )
    known = [one for one in (*METRICS, *METRICS_OF_SCORES) if one not in OF_GROUPS]
    if name in known:
        return name
    if name == "default":
        raise RecipeError(f'name a metric, as in evaluate.load(PATH, "accuracy"); there are {", ".join(known)}')
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise RecipeError(f"there is no metric {name!r}; {hint}there are {', '.join(known)}")
