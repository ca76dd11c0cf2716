"""Rows on which two versions are compared where one row says less than a pair, or more than itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.errors import DataError
from tasks.gate.unseen_rows import unseen_by_both
from tasks.scoring.evaluation import Evaluation


def pairs_of(kind: str, seconds: range, *, digest: str, learned: tuple[int, ...] = ()) -> Evaluation:
    """Return answers about pairs: the first texts are 0, 1 and so on, the second ones have the given numbers."""
    both = [(number,) for pair in enumerate(seconds) for number in pair]
    answers = np.repeat(np.linspace(0.1, 0.9, len(seconds)), 2)
    known = np.asarray(learned, np.int64)
    return Evaluation({"rows_sha256": digest, "kind": kind}, np.full(len(both), 4.0), answers[None], None, both, known)


def test_ranks_among_other_passages_are_not_compared() -> None:
    """With a tenth of the passages the same model finds more: it would have been certainly better than itself."""
    ours, theirs = (pairs_of("retrieval", range(1000, 1000 + count), digest=str(count)) for count in (300, 3000))
    with pytest.raises(DataError, match=r"evaluated on other rows \(300 and 3000\)"):
        unseen_by_both(ours, theirs)
    assert unseen_by_both(ours, ours).whole


def test_pairs_that_share_a_text_alone_are_other_pairs() -> None:
    ours, theirs = (pairs_of("embedding", range(start, start + 300), digest=str(start)) for start in (1000, 2000))
    with pytest.raises(DataError, match="of 600, 0 have predictions of both"):
        unseen_by_both(ours, theirs)
    longer = pairs_of("embedding", range(1000, 1400), digest="longer")
    common = unseen_by_both(ours, longer)
    np.testing.assert_allclose(common.ours.predictions_SN[0], np.linspace(0.1, 0.9, 300))
    assert len(common.theirs.labels_N) == 300, "each pair is one row"


def test_a_pair_of_which_one_text_was_learned_is_left_out_whole() -> None:
    ours = pairs_of("embedding", range(1000, 1300), digest="d")
    common = unseen_by_both(ours, replace(ours, learned=np.asarray([7, 1008])))
    left = np.delete(np.linspace(0.1, 0.9, 300), [7, 8])
    np.testing.assert_allclose(common.ours.predictions_SN[0], np.repeat(left, 2))
