"""The figures of a model on the rows of both held-out splits together, from its stored predictions.

Two splits have two intervals, each wider than that of all rows. The pooled figure describes a model, and decides
nothing: checkpoints, seeds and candidates are chosen before it is known. Groups of rows count as different ones in the
two splits, since each split numbers its own. Shape letters: N rows, S seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.recipe.slices import JudgingScoreSlice, PooledSlice
from tasks.scoring.further.figures import values_of
from tasks.scoring.predictions import read_predictions, seeds_by_split
from tasks.scoring.quality.scorecard import new_card, score_split
from tasks.task_types.answers import ANSWERS

POOLED_FILE, BOTH_SPLITS = "pooled.json", "pooled"


def pooled_figures(knobs: PooledSlice, card: Path, teacher: Path, folder: Path, output: Path) -> dict[str, object]:
    """Score a model, all its seeds, beside its teacher on the rows of every split of its scorecard; return the facts.

    Raises DataError where a scorecard is of other rows than ``folder`` holds.
    """
    ours = seeds_by_split(read_predictions(card))
    theirs = ours if card == teacher else seeds_by_split(read_predictions(teacher))
    splits = {split: read_split(folder, split) for split in ours}
    ours_SN, theirs_SN = (
        np.concatenate(
            [
                np.stack([values_of(one.in_order(rows.ids), knobs.task_type, of_scores=False) for one in found[split]])
                for split, rows in splits.items()
            ],
            axis=1,
        )
        for found in (ours, theirs)
    )
    rows, scored = rows_together(splits), new_card()
    score_split(
        scored, BOTH_SPLITS, ours_SN, theirs_SN[0], rows, JudgingScoreSlice(**dict(knobs)), ANSWERS[knobs.task_type]
    )
    facts: dict[str, object] = {
        "metrics": scored["metrics"][BOTH_SPLITS],
        "per_seed": scored["per_seed"][BOTH_SPLITS],
        "retained": scored["retained"][BOTH_SPLITS],
        "difference": scored["difference"][BOTH_SPLITS],
        "agreement": scored["agreement"][BOTH_SPLITS],
        "means": scored["means"][BOTH_SPLITS],
        "rows": scored["rows"][BOTH_SPLITS],
    }
    (output / POOLED_FILE).write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def rows_together(splits: Mapping[str, StoredRows]) -> StoredRows:
    """Return ids, labels, groups and units of several splits as one; groups and units of different splits stay
    different. Texts are left out, because metrics are computed from predictions."""
    own = list(splits.values())
    return StoredRows(
        [one for rows in own for one in rows.ids],
        [],
        None,
        [one for rows in own for one in rows.labels],
        numbered_apart([rows.groups for rows in own]),
        numbered_apart([rows.units for rows in own]),
    )


def numbered_apart(numbers: Sequence[Sequence[int] | None]) -> list[int] | None:
    """Return the numbers of all splits, renumbered so that equal ones of different splits differ; None if one split has
    none."""
    known = [one for one in numbers if one is not None]
    if len(known) < len(numbers):
        return None
    named: dict[tuple[int, int], int] = {}
    return [named.setdefault((place, number), len(named)) for place, own in enumerate(known) for number in own]
