"""The jobs on metrics beside those of the task, by name."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from tasks.engine.job import Job
from tasks.metrics.metrics import METRICS, METRICS_OF_SCORES
from tasks.recipe.slices import MetricSlice, OwnMetricSlice, PooledSlice
from tasks.scoring.further.figures import count_calls, further_figures
from tasks.scoring.further.own_metric import CalledMetric, load_metric
from tasks.scoring.further.pooled import pooled_figures
from tasks.scoring.further.trial import try_metric


def compute_metric(job: Job) -> dict[str, object]:
    """Compute a metric of Limbeck for all models of a run."""
    knobs = job.read(MetricSlice)
    of_scores = knobs.metric in METRICS_OF_SCORES
    metric = METRICS_OF_SCORES[knobs.metric] if of_scores else METRICS[knobs.metric]
    cards, rows = job.lists["cards"], job.inputs["rows"]
    return further_figures(metric, of_scores=of_scores, knobs=knobs, cards=cards, rows=rows, output=job.output)


def compute_own_metric(job: Job) -> dict[str, object]:
    """Compute a registered metric for all models of a run; progress is counted in calls."""
    knobs, cards = job.read(OwnMetricSlice), job.lists["cards"]
    calls, total = itertools.count(1), count_calls(cards, knobs.resamples)

    def report() -> None:
        job.progress(next(calls), total, unit="calls")

    with tempfile.TemporaryDirectory(dir=job.output.parent) as scratch:
        module, guard = load_metric(job.inputs["metric"], knobs.name, knobs.sha256, Path(scratch))
        metric = CalledMetric(module, guard, knobs.name, knobs.reads, knobs.lower_is_better, report)
        of_scores = knobs.reads == "prediction_scores"
        return further_figures(
            metric, of_scores=of_scores, knobs=knobs, cards=cards, rows=job.inputs["rows"], output=job.output
        )


def pool_splits(job: Job) -> dict[str, object]:
    """Compute the figures of one model on the rows of both held-out splits together."""
    card, teacher, rows = (job.inputs[name] for name in ("card", "teacher", "rows"))
    return pooled_figures(job.read(PooledSlice), card, teacher, rows, job.output)


JOBS = {"metric": compute_metric, "own-metric": compute_own_metric, "try-metric": try_metric, "pooled": pool_splits}
