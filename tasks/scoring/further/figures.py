"""The figures of a metric beside those of the task: of all models of a run, from their stored predictions.

No model is asked again, so a metric can be added to a finished run, or changed, for the price of its own computation.
Shape letters: N rows, M models with all their seeds, R resamples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tasks.metrics.definition import Metric, metric_value
from tasks.ports.rows.row_files import read_split
from tasks.recipe.slices import MetricSlice
from tasks.scoring.further.resamples import Resampled, bounds_at, write_resamples
from tasks.scoring.further.row_scores import ROW_SCORES
from tasks.scoring.predictions import Predictions, read_predictions, seeds_by_split
from tasks.scoring.quality.intervals import over_seeds
from tasks.scoring.quality.resampling import resampled
from tasks.task_types.answers import ANSWERS

FILE = "further_metric.json"


def further_figures(
    metric: Metric, *, of_scores: bool, knobs: MetricSlice, cards: Sequence[Path], rows: Path, output: Path
) -> dict[str, object]:
    """Compute a metric for every scorecard, the teacher's first, on every split that they have; return its facts."""
    known = [seeds_by_split(read_predictions(card)) for card in cards]
    models: list[dict[str, dict[str, object]]] = [{} for _ in cards]
    draws: list[Resampled] = []
    for split in known[0]:
        labelled = read_split(rows, split)
        seeds = [[one.in_order(labelled.ids) for one in card[split]] for card in known]
        values = [np.stack([values_of(one, knobs.task_type, of_scores=of_scores) for one in own]) for own in seeds]
        values_MN, starts = np.concatenate(values), np.cumsum([0, *map(len, values)])
        truth_N, units_N = labelled.labels_N, labelled.units_N
        own_M = np.asarray([metric_value(metric, each_N, truth_N, units_N) for each_N in values_MN])
        own_MR = resampled(metric, values_MN, truth_N, knobs.resamples, 0, labelled.groups_N, units_N)
        for number, (start, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
            models[number][split] = figures_of_seeds(own_M[start:end], own_MR[start:end], knobs.confidence)
            draws.append(Resampled(split, number, float(own_M[start]), own_MR[start]))
    write_resamples(output, draws)
    facts = {"metric": knobs.metric, "lower_is_better": metric.lower_is_better, "models": models}
    (output / FILE).write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def figures_of_seeds(own_S: np.ndarray, own_SR: np.ndarray, confidence: float) -> dict[str, object]:
    """Return the figure of one model (the first of its seeds), the mean over its seeds, and the figure of each."""
    first = bounds_at(float(own_S[0]), own_SR[0], confidence)
    mean = first if len(own_S) == 1 else bounds_at(float(own_S.mean()), over_seeds(own_SR, 0), confidence)
    return {"score": first.as_json(), "means": mean.as_json(), "per_seed": own_S.tolist()}


def values_of(answer: Predictions, task_type: str, *, of_scores: bool) -> np.ndarray:
    """Return a model's predictions [N] in the type of the labels, or the score of each row."""
    if of_scores:
        return ROW_SCORES[task_type](answer.outputs)
    return answer.predictions_N.astype(ANSWERS[task_type].dtype)


def count_calls(cards: Sequence[Path], resamples: int) -> int:
    """Return how often a metric is called: for every model, seed and split, on all rows and on each resample."""
    return sum(len(read_predictions(card)) for card in cards) * (resamples + 1)
