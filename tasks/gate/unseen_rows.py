"""Rows on which two evaluated models are compared: those that both answered and that neither has learned from.

Shape letters: N rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.errors import DataError
from tasks.ports.rows.seen import are_seen
from tasks.scoring.evaluation import Evaluation, require_same_rows
from tasks.scoring.writing.sealed_texts import SEALED, behind_place
from tasks.task_types.answers import ANSWERS

FEWEST = 200  # rows unseen by both, if some had to be left out; a difference on fewer rows is mostly chance


@dataclass(frozen=True)
class Common:
    """Two evaluations restricted to the rows that both models answered and neither was trained on."""

    ours: Evaluation
    theirs: Evaluation
    of: int
    """The number of rows of our evaluation."""

    @property
    def whole(self) -> bool:
        """Return whether no row had to be left out."""
        return len(self.ours.labels_N) == self.of

    @property
    def row_scope(self) -> str:
        """Return a phrase that names the compared rows; empty if no row was left out."""
        return (
            ""
            if self.whole
            else f" on {len(self.ours.labels_N):,} of {self.of:,} rows, those with predictions of both and in the "
            f"training data of neither"
        )


def unseen_by_both(ours: Evaluation, theirs: Evaluation) -> Common:
    """Restrict two evaluations to the rows that both answered and whose sentences are in neither's training data.

    A sentence that recurs in very many rows counts for none of them (``are_seen``). Raises DataError where too few rows
    are left for a verdict, where numbers of classes stand for others, and where a version of an older release does not
    record its training sentences: it may have learned from every row.
    """
    names, others = (one.about.get("labels") for one in (ours, theirs))
    if names is not None and others is not None and list(names) != list(others):
        raise DataError(f"its classes are others ({', '.join(names)}; the champion's are {', '.join(others)})")
    pairs = shared_rows(ours, theirs)
    if ours.sentences_N is None or ours.learned is None or theirs.learned is None:
        whose = "the champion's" if theirs.learned is None else "this version's"
        raise DataError(
            f"{whose} training rows are not recorded, as by an older release, and may be among the evaluation rows"
        )
    sentences_N = ours.sentences_of_rows
    asked = np.unique(np.fromiter((number for row in sentences_N for number in row), np.int64))
    is_known = np.isin(asked, ours.learned) | np.isin(asked, theirs.learned)
    seen_N = are_seen(sentences_N, set(asked[is_known].tolist()))
    pairs = [(here, there) for here, there in pairs if not seen_N[here]]
    found = Common(
        at_rows(ours, [here for here, _ in pairs]), at_rows(theirs, [there for _, there in pairs]), len(ours.labels_N)
    )
    if not found.whole and len(pairs) < FEWEST:
        other = "" if ours.rows == theirs.rows else f"evaluated on other rows ({ours.rows[:8]} and {theirs.rows[:8]}): "
        raise DataError(
            f"{other}of {found.of:,}, {len(pairs):,} have predictions of both and are in the training data of "
            f"neither, and {FEWEST} are needed"
        )
    return found


def shared_rows(ours: Evaluation, theirs: Evaluation) -> list[tuple[int, int]]:
    """Return the positions, in both evaluations, of the rows that both answered: the first of rows with equal texts,
    and only if its labels agree. Raises DataError for other rows whose answers depend on each other, as ranks do among
    all texts of a split: with other texts, they are others for the same model."""
    if ours.rows == theirs.rows:
        return [(row, row) for row in range(len(ours.labels_N))]
    if ours.sentences_N is None or theirs.sentences_N is None or is_among_all(ours):
        require_same_rows(ours, theirs)
        return []
    labels, others = (labels_of_all(one) for one in (ours, theirs))
    places = {row: number for number, row in reversed([*enumerate(theirs.sentences_of_rows)])}
    first = {row: number for number, row in reversed([*enumerate(ours.sentences_of_rows)])}
    found = [
        (here, places[row]) for row, here in first.items() if row in places and labels[here] == others[places[row]]
    ]
    return sorted(found)


def is_among_all(one: Evaluation) -> bool:
    """Tell whether the answers of an evaluation depend on all of its rows."""
    answers = ANSWERS.get(str(one.about.get("kind")))
    return answers is not None and answers.among_all


def labels_of_all(one: Evaluation) -> Sequence[object]:
    """Return labels that are equal in two evaluations where the rows' are."""
    return [behind_place(label) for label in one.labels_N] if one.about.get(SEALED) else one.labels_N.tolist()


def at_rows(one: Evaluation, rows: Sequence[int]) -> Evaluation:
    """Return an evaluation restricted to some of its rows; the digest of the full set of rows is removed."""
    kept = np.asarray(rows, dtype=np.int64)
    groups_N, units_N = (None if each_N is None else each_N[kept] for each_N in (one.groups_N, one.units_N))
    labels_N, predictions_SN = one.labels_N[kept], one.predictions_SN[:, kept]
    return Evaluation({**one.about, "rows_sha256": "common"}, labels_N, predictions_SN, groups_N, units_N=units_N)
