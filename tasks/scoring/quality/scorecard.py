"""The figures of a scorecard: metrics, the share of the teacher's score, the difference to it, and the agreement with
it, of one model and as means over seeds. Shape letters: N rows, S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import numpy as np

from tasks.errors import RecipeError
from tasks.metrics.definition import metric_value
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.row_files import StoredRows
from tasks.recipe.slices import JudgingScoreSlice
from tasks.scoring.quality.intervals import compare
from tasks.task_types.interfaces import Answers

ScoreBounds = Mapping[str, float | None]
"""A figure with the bounds of its interval."""


class SplitFigures(TypedDict):
    """The figures of one model, or the means of several seeds, on one split."""

    metrics: dict[str, ScoreBounds]
    difference: ScoreBounds
    retained: ScoreBounds
    agreement: float


class ScoresOfSplits(TypedDict):
    """The part of a scorecard with figures by split; ``ScoreFacts`` reads it."""

    metrics: dict[str, dict[str, ScoreBounds]]
    per_seed: dict[str, dict[str, list[float]]]
    retained: dict[str, ScoreBounds]
    difference: dict[str, ScoreBounds]
    agreement: dict[str, float]
    means: dict[str, SplitFigures]
    rows: dict[str, int]


def new_card() -> ScoresOfSplits:
    """Return a scorecard without figures; ``score_split`` fills in a split at a time."""
    return {
        "metrics": {},
        "per_seed": {},
        "retained": {},
        "difference": {},
        "agreement": {},
        "means": {},
        "rows": {},
    }


def score_split(
    card: ScoresOfSplits,
    split: str,
    ours_SN: np.ndarray,
    theirs_N: np.ndarray,
    rows: StoredRows,
    knobs: JudgingScoreSlice,
    answers: Answers,
) -> None:
    """Enter one split's figures in the scorecard, from the predictions of each seed and of the teacher: of the first
    seed, of each seed, and the means over all seeds (with one seed, the same as the first's)."""
    for name in knobs.metrics:
        if name not in METRICS:
            raise RecipeError(f"unknown metric {name!r}; choose one of {', '.join(sorted(METRICS))}")
    card["rows"][split] = len(rows)
    card["per_seed"][split] = {
        name: [metric_value(METRICS[name], each, rows.labels_N, rows.units_N) for each in ours_SN]
        for name in knobs.metrics
    }
    own = figures_of_split(ours_SN[:1], theirs_N, rows, knobs, answers)
    card["metrics"][split], card["agreement"][split] = own["metrics"], own["agreement"]
    card["difference"][split], card["retained"][split] = own["difference"], own["retained"]
    card["means"][split] = own if len(ours_SN) == 1 else figures_of_split(ours_SN, theirs_N, rows, knobs, answers)


def figures_of_split(
    ours_SN: np.ndarray, theirs_N: np.ndarray, rows: StoredRows, knobs: JudgingScoreSlice, answers: Answers
) -> SplitFigures:
    """Return the figures of one model, or the means of several seeds, on one split."""
    found = {
        name: compare(
            METRICS[name],
            ours_SN,
            theirs_N,
            rows.labels_N,
            resamples=knobs.resamples,
            confidence=knobs.confidence,
            groups_N=rows.groups_N,
            units_N=rows.units_N,
        )
        for name in knobs.metrics
    }
    lead = found[knobs.headline]
    return {
        "metrics": {name: one.score.as_json() for name, one in found.items()},
        "difference": lead.difference.as_json(),
        "retained": lead.retained.as_json() if lead.retained else {"value": None, "low": None, "high": None},
        "agreement": float(np.mean([answers.agreement(each, theirs_N) for each in ours_SN])),
    }
