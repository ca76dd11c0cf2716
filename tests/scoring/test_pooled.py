"""The figures of a model on the rows of both held-out splits together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.errors import DataError
from tasks.ports.rows.row_files import StoredRows, write_split
from tasks.recipe.slices import PooledSlice
from tasks.scoring.further.pooled import numbered_apart, pooled_figures
from tasks.scoring.predictions import Predictions, write_predictions

KNOBS = PooledSlice(task_type="classification", metrics=("accuracy", "f1"), headline="accuracy", resamples=400)
SIZES = {"validation": 300, "holdout": 500}


def rows_of(folder: Path, groups: int | None = None) -> dict[str, StoredRows]:
    """Write two splits with random labels, in so many groups if that is given; return them."""
    folder.mkdir()
    random, start, found = np.random.default_rng(7), 0, {}
    for split, count in SIZES.items():
        names = None if groups is None else (np.arange(count) % groups).tolist()
        texts, labels = ["a"] * count, random.integers(0, 2, count).tolist()
        found[split] = StoredRows(list(range(start, start + count)), texts, None, labels, names)
        write_split(folder, split, found[split])
        start += count
    return found


def card_of(folder: Path, rows: dict[str, StoredRows], wrong: dict[str, tuple[float, ...]]) -> Path:
    """Write the predictions of one seed for each share of wrong ones, the rows in another order; return the folder."""
    folder.mkdir()
    found = []
    for split, shares in wrong.items():
        labels_N = rows[split].labels_N
        for seed, share in enumerate(shares):
            is_wrong_N = np.random.default_rng(seed).permutation(len(labels_N)) < share * len(labels_N)
            ids, values_N = rows[split].ids[::-1], np.where(is_wrong_N, 1 - labels_N, labels_N)[::-1]
            found.append(Predictions(split, seed, ids, values_N, {}))
    write_predictions(folder, found)
    return folder


def pooled(folder: Path, card: Path, teacher: Path) -> dict[str, Any]:
    """Compute the figures on both splits; return them as the file holds them."""
    output = folder / f"{card.name}-pooled"
    output.mkdir()
    facts = pooled_figures(KNOBS, card, teacher, folder / "rows", output)
    written: dict[str, Any] = json.loads((output / "pooled.json").read_text())
    assert written == facts
    return written


def test_the_pooled_score_is_that_of_all_rows_and_its_interval_is_theirs(tmp_path: Path) -> None:
    """Dev of SST-2 has 872 rows, and its holdout 2,000: two wide intervals, where one of 2,872 rows was to be had."""
    rows = rows_of(tmp_path / "rows")
    teacher = card_of(tmp_path / "teacher", rows, {"validation": (0.1,), "holdout": (0.1,)})
    card = card_of(tmp_path / "card", rows, {"validation": (0.2, 0.3), "holdout": (0.1, 0.2)})
    found = pooled(tmp_path, card, teacher)
    own = found["metrics"]["accuracy"]
    assert found["rows"] == 800 and own["value"] == pytest.approx((300 * 0.8 + 500 * 0.9) / 800)
    assert found["per_seed"]["accuracy"] == pytest.approx([0.8625, (300 * 0.7 + 500 * 0.8) / 800])
    assert found["means"]["metrics"]["accuracy"]["value"] == pytest.approx((0.8625 + 0.7625) / 2)
    assert found["difference"]["value"] == pytest.approx(0.8625 - 0.9)
    assert found["retained"]["value"] == pytest.approx(0.8625 / 0.9)
    normal = 2 * 1.96 * (own["value"] * (1 - own["value"]) / 800) ** 0.5
    assert own["high"] - own["low"] == pytest.approx(normal, rel=0.15)
    itself = pooled(tmp_path, teacher, teacher)
    assert itself["agreement"] == itself["retained"]["value"] == 1 and itself["difference"]["value"] == 0


def test_groups_of_both_splits_are_drawn_and_those_of_one_number_are_not_one(tmp_path: Path) -> None:
    assert numbered_apart([[0, 0, 1], [1, 0]]) == [0, 0, 1, 2, 3]
    assert numbered_apart([[0, 1], None]) is None, "rows of a release that stored no groups are drawn one by one"
    apart = {}
    for groups in (None, 20):
        place = tmp_path / str(groups)
        place.mkdir()
        rows = rows_of(place / "rows", groups)
        by_group = {split: own.labels_N ^ (np.arange(len(own)) % 20 < 5) for split, own in rows.items()}
        found = [Predictions(split, 0, rows[split].ids, values_N, {}) for split, values_N in by_group.items()]
        (place / "card").mkdir()
        write_predictions(place / "card", found)
        own = pooled(place, place / "card", place / "card")["metrics"]["accuracy"]
        apart[groups] = own["high"] - own["low"]
    assert apart[20] > 3 * apart[None], "whole groups are right or wrong"


def test_a_scorecard_of_other_rows_is_refused(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "rows")
    card = card_of(tmp_path / "card", rows, {"validation": (0.2,), "holdout": (0.1,)})
    (tmp_path / "rows" / "holdout.parquet").unlink()
    write_split(tmp_path / "rows", "holdout", rows["validation"])
    with pytest.raises(DataError, match="contains predictions for other rows of holdout"):
        pooled(tmp_path, card, card)
