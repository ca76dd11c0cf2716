"""Cells of the results page: scores with their spread and interval, and comparisons in words."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.report.format.baseline_comparison import gap, unlike
from tasks.report.results.results_file import BaselineComparison, Entry, Figure, Score
from tasks.report.tables.results import DASH, number


def scored(score: Score) -> str:
    """Return a score, its deviation and its interval."""
    spread = f" ±{score.deviation:.3f}" if score.deviation is not None else ""
    return number(score.value, ".3f") + spread + bounds(score, ".3f")


def registered(score: Score, entry: Entry) -> str:
    """Return the registered model's own score, with its seed if there are several."""
    if score.own is None:
        return DASH
    seed = f" (seed {entry.selected_seed})" if len(score.per_seed) > 1 and entry.selected_seed is not None else ""
    return number(score.own.value, ".3f") + bounds(score.own, ".3f") + seed


def bounds(figure: Figure, form: str) -> str:
    """Return an interval; empty if there is none."""
    return f" [{figure.low:{form}}, {figure.high:{form}}]" if figure.low is not None and figure.high is not None else ""


def comparisons_in_words(compared: Mapping[str, BaselineComparison]) -> str:
    """Return the verdicts on a model by the model that it is compared to, with their intervals; a dash for none."""
    said = [
        f"{one.verdict}, `{other}`{unlike(one.differs)}: {gap(one)}{lonely(one.seeds)}"
        for other, one in compared.items()
    ]
    return "; ".join(said) or DASH


def lonely(seeds: tuple[int, int]) -> str:
    """Return a remark if one seed leaves the noise between trainings unknown."""
    return " (one seed: noise of training not included)" if min(seeds) < 2 else ""
