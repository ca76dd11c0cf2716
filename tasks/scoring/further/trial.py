"""The trial of a metric that is about to be registered: it must do on drawn rows what scoring will ask of it.

A mistake found here costs a minute of its owner, and found by a run all its trainings. Shape letter: N rows.
"""

from __future__ import annotations

import time
from typing import Any, TypedDict

import numpy as np

from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.recipe.slices import TrialSlice
from tasks.scoring.further.own_metric import CalledMetric, MetricGuard, figure_in, load_metric
from tasks.task_types.answers import ANSWERS
from tasks.task_types.types import TASK_TYPES

INPUTS = ("predictions", "prediction_scores")
SMALL_ROWS, TIMED_ROWS, EQUAL = 200, 1000, 1e-9
Case = tuple[str, np.ndarray, np.ndarray]
"""Rows in words, predictions or scores [N], and true values [N]."""


class TrialFacts(TypedDict):
    """What the trial of a metric found: the input that it reads, whether it is for two classes alone, and the seconds
    of a call on ``TIMED_ROWS`` rows."""

    reads: str
    two_classes: bool
    seconds: float


def try_metric(job: Job) -> TrialFacts:
    """Call a metric on drawn rows, as scoring does; return what it reads, whether it is for two classes alone, and the
    seconds of a call. Raises RecipeError, in one sentence, for each mistake."""
    knobs = job.read(TrialSlice)
    metric, guard = load_metric(job.inputs["metric"], knobs.name, knobs.sha256, job.output)
    reads = input_of(metric, guard, knobs)
    called = CalledMetric(metric, guard, knobs.name, reads, lower_is_better=False, report=lambda: None)
    draw = np.random.default_rng(0)
    cases = cases_of(knobs.task_type, reads, draw)
    for words, predictions_N, truth_N in cases:
        call_twice(called, words, predictions_N, truth_N)
    require_alike(called, *cases[0][1:], draw)
    require_silence(guard)
    two_classes = TASK_TYPES[knobs.task_type].has_classes and (reads == INPUTS[1] or not takes_three(called, draw))
    started = time.perf_counter()
    called(*(np.resize(each_N, TIMED_ROWS) for each_N in cases[0][1:]))
    return {"reads": reads, "two_classes": two_classes, "seconds": time.perf_counter() - started}


def input_of(metric: Any, guard: MetricGuard, knobs: TrialSlice) -> str:
    """Return the name of a metric's input beside ``references``; raise RecipeError if it has others."""
    with guard("when its inputs were asked for"):
        stated = metric.features
        names = sorted(stated[0] if isinstance(stated, list) else stated)
    found = [one for one in INPUTS if names == sorted([one, "references"])]
    if not found:
        raise RecipeError(
            f"the metric {guard.name} has the inputs {', '.join(names)}; it must have references, and predictions "
            f"or prediction_scores (the score of each row: of two classes, the higher the likelier the second)"
        )
    if found == [INPUTS[1]] and not TASK_TYPES[knobs.task_type].has_classes:
        raise RecipeError(
            f"the metric {guard.name} reads prediction_scores, and a {knobs.task_type} predicts values: let it read "
            f"predictions"
        )
    return found[0]


def cases_of(task_type: str, reads: str, draw: np.random.Generator) -> list[Case]:
    """Return rows to try a metric on: usual ones first, then those that a resample may be."""
    if not TASK_TYPES[task_type].has_classes:
        values_N, constant_N = draw.normal(size=SMALL_ROWS), np.zeros(SMALL_ROWS)
        return [
            ("drawn values", values_N + draw.normal(size=SMALL_ROWS), values_N),
            ("equal predictions", constant_N, values_N),
            ("equal true values", values_N, constant_N),
        ]
    truth_N = draw.integers(0, 2, SMALL_ROWS)
    right_N = np.where(draw.random(SMALL_ROWS) < 0.8, truth_N, 1 - truth_N)
    given_N = right_N + draw.normal(size=SMALL_ROWS) if reads == INPUTS[1] else right_N
    one_N = np.ones(SMALL_ROWS, dtype=truth_N.dtype)
    return [
        ("rows of two classes", given_N, truth_N),
        ("equal predictions", one_N.astype(given_N.dtype), truth_N),
        ("rows of one class", given_N, one_N),
    ]


def call_twice(called: CalledMetric, words: str, predictions_N: np.ndarray, truth_N: np.ndarray) -> None:
    """Call a metric twice with the same rows; raise RecipeError if it fails, or if its values differ."""
    try:
        first, second = (called(predictions_N, truth_N) for _ in range(2))
    except RecipeError as error:
        raise RecipeError(f"{error} (the trial's case: {words})") from error
    if first != second:
        raise RecipeError(
            f"the metric own/{called.name} returned {first} and then {second} for the same rows; draw nothing, or from "
            f"a fixed seed"
        )


def require_alike(
    called: CalledMetric, predictions_N: np.ndarray, truth_N: np.ndarray, draw: np.random.Generator
) -> None:
    """Raise RecipeError where the order of rows matters, which resamples do not keep, and where evaluate's own
    ``compute`` returns another value."""
    value, order_N = called(predictions_N, truth_N), draw.permutation(len(truth_N))
    moved = called(predictions_N[order_N], truth_N[order_N])
    if abs(moved - value) > EQUAL:
        raise RecipeError(
            f"the metric own/{called.name} depends on the order of rows: {value} and {moved} for the same rows in "
            f"another order"
        )
    with called.guard("in evaluate's compute"):
        found = called.metric.compute(**{called.reads: predictions_N, "references": truth_N})
    if abs(figure_in(found, called.name) - value) > EQUAL:
        raise RecipeError(
            f"the metric own/{called.name} returns another value by compute than by _compute; state the types of its "
            f"inputs in _info as {ANSWERS['classification'].dtype} for classes, and float64 for values and scores"
        )


def takes_three(called: CalledMetric, draw: np.random.Generator) -> bool:
    """Tell whether a metric of predictions can be called with three classes."""
    truth_N = draw.integers(0, 3, SMALL_ROWS)
    try:
        called(np.roll(truth_N, 1), truth_N)
    except RecipeError:
        return False
    return True


def require_silence(guard: MetricGuard) -> None:
    """Raise RecipeError if the metric prints: it is called thousands of times."""
    printed = guard.printed.getvalue().strip()
    if printed:
        raise RecipeError(
            f"the metric {guard.name} prints ({printed.splitlines()[0][:60]!r}), and it is called thousands of times; "
            f"remove that"
        )
