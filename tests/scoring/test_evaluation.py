"""Evaluations: what travels is what was judged, and only equal rows are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.errors import DataError
from tasks.gate.unseen_rows import unseen_by_both
from tasks.metrics.metrics import METRICS
from tasks.scoring.evaluation import (
    Evaluation,
    JudgedRows,
    bound_interval,
    paired_gain,
    read_evaluation,
    read_judged_rows,
    write_evaluation,
)
from tasks.scoring.predictions import Predictions, write_predictions
from tasks.scoring.quality.intervals import paired_difference

COUNT = 60
IDS = list(range(100, 100 + COUNT))
LABELS = np.arange(COUNT) % 2


def evaluation(
    folder: Path,
    wrong: int,
    *,
    seeds: int = 2,
    kind: str = "classification",
    digest: str = "d" * 64,
    groups: np.ndarray | None = None,
) -> Path:
    """Write an evaluation whose seeds are wrong in the first few rows; the scorecard has its rows in another order, and
    another split beside."""
    order = np.random.default_rng(wrong).permutation(COUNT)
    truth = LABELS if kind == "classification" else LABELS.astype(float)
    found = np.where(np.arange(COUNT) < wrong, 1 - truth, truth)
    logits = (
        np.eye(2, dtype=np.float32)[found.astype(int)]
        if kind == "classification"
        else found[:, None].astype(np.float32)
    )
    values = found.astype(float)
    given = [
        Predictions("validation", seed, [IDS[row] for row in order], values[order], {"logits": logits[order]})
        for seed in range(seeds)
    ]
    (folder / f"card-{wrong}").mkdir(parents=True, exist_ok=True)
    write_predictions(folder / f"card-{wrong}", [*given, replace(given[0], split="holdout")])
    rows = JudgedRows("validation", IDS, truth, digest, groups)
    return write_evaluation(
        folder / f"evaluation-{wrong}-{digest[:2]}", folder / f"card-{wrong}", rows, {"candidate": "small"}
    )


def test_what_was_written_is_read_back_in_the_order_of_the_rows(tmp_path: Path) -> None:
    found = read_evaluation(evaluation(tmp_path, 6))
    assert found.predictions_SN.shape == (1, COUNT) and (found.labels_N == LABELS).all(), (
        "of two seeds, the model's own answers"
    )
    assert [(row != LABELS).nonzero()[0].tolist() for row in found.predictions_SN] == [list(range(6))]
    assert found.about["candidate"] == "small" and found.rows == "d" * 64 and found.about["rows"] == COUNT


def test_the_gain_is_the_paired_difference_and_errors_are_turned(tmp_path: Path) -> None:
    good, bad = read_evaluation(evaluation(tmp_path, 2)), read_evaluation(evaluation(tmp_path, 12))
    gain, same = (
        paired_gain("accuracy", good, bad),
        paired_difference(METRICS["accuracy"], good.predictions_SN, bad.predictions_SN, LABELS),
    )
    assert (
        (gain.value, gain.low, gain.high) == (same.value, same.low, same.high)
        and gain.value == pytest.approx(10 / COUNT)
        and gain.low > 0
    )
    fine, poor = (read_evaluation(evaluation(tmp_path / "numbers", wrong, kind="regression")) for wrong in (2, 12))
    turned = paired_gain("mse", fine, poor)
    assert turned.value == pytest.approx(10 / COUNT) and turned.low < turned.value < turned.high, (
        "a smaller error is a gain"
    )


def test_the_groups_of_rows_travel_with_the_answers_and_widen_the_gain(tmp_path: Path) -> None:
    groups = np.arange(COUNT) // 6
    good, bad = (read_evaluation(evaluation(tmp_path, wrong, groups=groups)) for wrong in (2, 12))
    alone = [read_evaluation(evaluation(tmp_path / "alone", wrong)) for wrong in (2, 12)]
    assert good.groups_N is not None and good.groups_N.tolist() == groups.tolist() and alone[0].groups_N is None
    wide, narrow = paired_gain("accuracy", good, bad), paired_gain("accuracy", *alone)
    assert wide.value == narrow.value and wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_few_groups_have_no_interval(tmp_path: Path) -> None:
    """Rows of one group, drawn as if they were independent, let a lucky group decide."""
    one, nine = "of 1 group, and an interval needs", "of 9 groups, and an interval needs 10: hold out more groups"
    for count, test, bound in ((1, f"{one} 2", f"{one} 10"), (9, "", nine), (10, "", "")):
        groups = np.arange(COUNT) * count // COUNT
        ours, theirs = (read_evaluation(evaluation(tmp_path / str(count), wrong, groups=groups)) for wrong in (2, 12))
        for refusal, asked in (
            (test, partial(paired_gain, "accuracy", ours, theirs)),
            (bound, partial(bound_interval, "accuracy", ours, theirs, "retained", 0.95)),
        ):
            if refusal:
                with pytest.raises(DataError, match=refusal):
                    asked()
            else:
                assert asked().low < asked().high


def seen(rows: range, learned: tuple[int, ...] | None = (), *, wrong: int = 0, digest: str = "d") -> Evaluation:
    """Return answers to rows that have their number as their only sentence."""
    labels = np.asarray([row % 2 for row in rows])
    answers = np.where(np.arange(len(rows)) < wrong, 1 - labels, labels)
    known = None if learned is None else np.asarray(sorted(learned), np.int64)
    return Evaluation(
        {"rows_sha256": digest},
        labels,
        answers[None].astype(float),
        None,
        None if learned is None else [(row,) for row in rows],
        known,
    )


def test_a_champion_that_learned_from_rows_that_judge_is_compared_on_the_others() -> None:
    """It knew 700 of the 1,000 rows, was right on all of them, and would have beaten every honest challenger."""
    honest, cheat = seen(range(1000), (5000,), wrong=100), seen(range(1000), tuple(range(700)), wrong=0)
    assert paired_gain("accuracy", honest, cheat).high < 0
    common = unseen_by_both(honest, cheat)
    assert (
        len(common.ours.labels_N) == 300
        and not common.whole
        and "on 300 of 1,000 rows, those with predictions of both and in" in common.row_scope
    )
    assert paired_gain("accuracy", common.ours, common.theirs).value == 0
    turned = unseen_by_both(cheat, honest)
    assert (turned.ours.labels_N == common.ours.labels_N).all(), "nor may a challenger have learned from them"


def test_pairs_with_a_text_that_recurs_are_compared_by_the_other_one() -> None:
    """With one of three questions in each row, all of them learned, no row was left to compare with a champion; a
    premise that a few rows share still counts."""
    rows = seen(range(1000), (-1, -2, -3, 7, 20_003))
    pairs = replace(rows, sentences_N=[(row, -1 - row % 3) for row in range(1000)])
    assert len(unseen_by_both(pairs, replace(pairs, learned=np.asarray([8]))).ours.labels_N) == 998
    premises = replace(rows, sentences_N=[(row, 20_000 + row // 5) for row in range(1000)])
    assert len(unseen_by_both(premises, premises).ours.labels_N) == 1000 - 1 - 5
    alone = replace(rows, sentences_N=[(-1,)] * 1000)
    with pytest.raises(DataError, match="of 1,000, 0 have predictions of both"):
        unseen_by_both(alone, alone)


def test_an_error_may_be_bound_by_the_teachers_and_retains_the_teachers_over_it() -> None:
    """The squared errors of ours are 2.25 times the teacher's on every resample. What is retained of an error was
    undefined, so that no gate of a language model could ask for it."""
    labels = np.zeros(50)
    theirs = Evaluation({"rows_sha256": "d"}, labels, np.linspace(0.5, 1.5, 50)[None])
    ours = replace(theirs, predictions_SN=1.5 * theirs.predictions_SN)
    found, other = bound_interval("mse", ours, theirs, "share", 0.95), METRICS["mse"](theirs.answers_1N[0], labels)
    assert (found.low, found.value, found.high) == pytest.approx([2.25 * other] * 3)
    kept = bound_interval("mse", ours, theirs, "retained", 0.95)
    assert (kept.low, kept.value, kept.high) == pytest.approx([1 / 2.25] * 3)
    right = replace(theirs, predictions_SN=np.zeros((1, 50)))
    with pytest.raises(DataError, match="a share of 0 mse is not meaningful"):
        bound_interval("mse", ours, right, "share", 0.95)
    with pytest.raises(DataError, match="one of 0 and 2.45 mse is 0, on all rows or on some drawn ones; write a bound"):
        bound_interval("mse", ours, right, "retained", 0.95)


def test_rows_of_two_splits_are_compared_where_they_meet() -> None:
    ours, theirs = seen(range(1000)), seen(range(600, 1600), (650,), digest="e")
    common = unseen_by_both(ours, theirs)
    assert (
        common.ours.labels_N.tolist()
        == common.theirs.labels_N.tolist()
        == [row % 2 for row in range(600, 1000) if row != 650]
    )


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (
            seen(range(1000), tuple(range(950))),
            "of 1,000, 50 have predictions of both and are in the training data of neither, and 200 are needed",
        ),
        (seen(range(900, 1900), digest="e"), "evaluated on other rows .*: of 1,000, 100 have predictions of both"),
        (seen(range(1000), None, digest="e"), "evaluated on other rows"),
    ],
)
def test_too_few_rows_are_no_comparison(theirs: Evaluation, said: str) -> None:
    with pytest.raises(DataError, match=said):
        unseen_by_both(seen(range(1000)), theirs)


def test_a_version_that_does_not_say_what_it_learned_from_is_not_compared() -> None:
    """It may have learned from every row that judges, and would beat each honest version."""
    for ours, theirs, whose in (
        (seen(range(1000)), seen(range(1000), None), "the champion's"),
        (seen(range(1000), None), seen(range(1000)), "this version's"),
    ):
        with pytest.raises(DataError, match=f"^{whose} training rows are not recorded, as by an older release, and"):
            unseen_by_both(ours, theirs)
    assert unseen_by_both(seen(range(60)), seen(range(60))).whole, "one that learned from nothing says so"


def test_digests_travel_and_are_read_back(tmp_path: Path) -> None:
    evaluation(tmp_path, 6)
    rows = JudgedRows(
        "validation",
        IDS,
        LABELS,
        "d",
        None,
        [[number, -number] for number in range(1, 1 + COUNT)],
        np.asarray([-7, 3, 2**62]),
    )
    found = read_evaluation(write_evaluation(tmp_path / "with", tmp_path / "card-6", rows, {}))
    assert found.sentences_N == [(number, -number) for number in range(1, 1 + COUNT)] and found.learned is not None
    assert found.learned.tolist() == [-7, 3, 2**62] and read_evaluation(evaluation(tmp_path / "old", 6)).learned is None


def test_other_rows_are_not_compared(tmp_path: Path) -> None:
    first, second = read_evaluation(evaluation(tmp_path, 2)), read_evaluation(evaluation(tmp_path, 3, digest="e" * 64))
    with pytest.raises(DataError, match=r"evaluated on other rows \(dddddddd and eeeeeeee\)"):
        paired_gain("accuracy", first, second)


def test_a_scorecard_of_other_rows_is_refused(tmp_path: Path) -> None:
    evaluation(tmp_path, 2)
    for ids in (IDS[:-1], [*IDS[:-1], 7]):
        with pytest.raises(DataError, match="contains predictions for other rows of validation"):
            write_evaluation(
                tmp_path / f"new-{len(ids)}",
                tmp_path / "card-2",
                JudgedRows("validation", ids, LABELS[: len(ids)], "d"),
                {},
            )


@pytest.mark.parametrize("spoil", ["missing", "changed", "nonsense", "schema"])
def test_an_evaluation_that_is_not_whole_is_one_sentence(tmp_path: Path, spoil: str) -> None:
    folder = evaluation(tmp_path, 2)
    about: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())
    if spoil == "missing":
        (folder / "predictions.parquet").unlink()
    elif spoil == "changed":
        (folder / "predictions.parquet").write_bytes((evaluation(tmp_path, 3) / "predictions.parquet").read_bytes())
    elif spoil == "nonsense":
        (folder / "evaluation.json").write_text("[]")
    else:
        (folder / "evaluation.json").write_text(json.dumps(about | {"schema": 2}))
    with pytest.raises(DataError, match="cannot be read|are not the evaluated ones"):
        read_evaluation(folder)


def test_judged_rows_are_read_by_split(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"id": IDS, "text": ["a"] * COUNT, "pair": pa.nulls(COUNT, pa.string()), "label": LABELS}),
        tmp_path / "holdout.parquet",
    )
    found = read_judged_rows(tmp_path, "holdout", "d")
    assert found.ids == IDS and (found.labels_N == LABELS).all() and found.sha256 == "d"
