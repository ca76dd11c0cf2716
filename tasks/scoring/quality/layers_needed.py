"""The number of layers that a task needs: the conclusion of a sweep of dropped models, and its confidence.

For each number of dropped layers K there are several strategies, and the best of several noisy scores is biased
upwards. So the strategy of a K is chosen on the selection rows, on which trained models are compared anyway, and its
figure is read on the reporting split, on which nothing is chosen: that figure is unbiased, however many strategies were
tried.

A K "holds within 1 point" if the lower bound of the difference to the teacher (paired over rows, Welch's t over seeds,
see ``intervals.py``) is above -1 point. The bound is the low end of the two-sided interval: for 95 %, one-sided 97.5 %.
The Ks are tested from 1 on, and the first that does not hold ends the test (fixed-sequence testing, Maurer et al.
1995): so many Ks need no other correction, and a large K that holds by chance after a smaller one failed is not
accepted. With one seed nothing holds, because the variance between trainings is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tasks.results.row import Bounds
from tasks.results.sweep import DroppedLayers, LayersAnswer, SweepCell

POINT = 0.01


def chosen_by_drop(cells: Sequence[SweepCell]) -> dict[int, SweepCell]:
    """Return, for each number of dropped layers, the strategy with the best score on the selection rows, among those
    that were trained to the end."""
    final = [cell for cell in cells if cell["state"] == "scored"]
    drops = sorted({cell["drop"] for cell in final})
    return {drop: max((cell for cell in final if cell["drop"] == drop), key=selection_score_of) for drop in drops}


def selection_score_of(cell: SweepCell) -> float:
    """Return the score of a cell on the selection rows; an undefined one is below all others."""
    found = cell["selection_score"]
    return -math.inf if found is None else found


def layers_needed(cells: Sequence[SweepCell], *, points: Sequence[float] = (1, 2, 3)) -> list[LayersAnswer]:
    """Return, for each distance from the teacher, the largest number of layers that can be dropped: by the mean over
    seeds, and by the interval."""
    chosen = chosen_by_drop(cells)
    return [within(chosen, distance) for distance in points]


def within(chosen: Mapping[int, SweepCell], distance: float) -> LayersAnswer:
    """Return the answer for one distance; ``alone`` lists the Ks whose own interval is near enough although that of a
    smaller K is not."""
    limit = -distance * POINT
    near = [drop for drop, cell in chosen.items() if gap_to_teacher(cell)["value"] >= limit]
    sure = [drop for drop, cell in chosen.items() if len(cell["seeds"]) > 1 and gap_to_teacher(cell)["low"] > limit]
    in_a_row: list[int] = []
    for drop in sorted(chosen):
        if drop not in sure:
            break
        in_a_row.append(drop)
    return {
        "points": distance,
        "mean": figure(chosen, near),
        "holds": figure(chosen, in_a_row),
        "alone": [drop for drop in sure if drop not in in_a_row],
    }


def figure(chosen: Mapping[int, SweepCell], drops: Sequence[int]) -> DroppedLayers | None:
    """Return the largest of some numbers of layers with its strategy and difference."""
    if not drops:
        return None
    cell = chosen[max(drops)]
    return {
        "drop": cell["drop"],
        "strategy": cell["strategy"],
        "difference": gap_to_teacher(cell).copy(),
        "seeds": list(cell["seeds"]),
    }


def gap_to_teacher(cell: SweepCell) -> Bounds:
    """Return the difference of a scored cell to the teacher; raises ValueError where it is undefined."""
    found = cell["difference"]
    if found is None:
        raise ValueError(f"{cell['strategy']} with {cell['drop']} dropped layers has no difference to the teacher")
    return found
