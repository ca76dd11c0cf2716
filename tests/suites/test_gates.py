"""The gate keeps what it promises, in simulated runs: the real gate and the real intervals on rows drawn anew."""

from __future__ import annotations

import numpy as np
import pytest

from tests.suites.gates import BY_MEAN, DEFAULT, MOST_ACCEPTED, MOST_REFUSED, World, simulate, table


def test_rows_are_drawn_as_they_are_said_to_be() -> None:
    teacher_N, right_KN = World(0.92, 0.9, 100_000).draw(np.random.default_rng(0), 0.02, 2)
    assert teacher_N.mean() == pytest.approx(0.92, abs=0.004) and right_KN.mean(1) == pytest.approx(0.9, abs=0.004)
    assert (right_KN == teacher_N).mean(1) == pytest.approx(0.9, abs=0.004)


def test_luck_does_not_pass_the_gate_and_the_mean_would_let_it() -> None:
    """A candidate that is worse by exactly the margin came through every second time while the gate read the mean."""
    world = World(rows=800)
    assert simulate(DEFAULT, world, 0.02, gates=60)[0] <= MOST_ACCEPTED
    assert simulate(BY_MEAN, world, 0.02 * 0.92, gates=20)[0] > 0.3


def test_of_five_weak_candidates_none_gets_in_because_there_are_five() -> None:
    assert simulate(DEFAULT, World(rows=800), 0.02, gates=20, candidates=5)[0] <= MOST_ACCEPTED


def test_an_equal_candidate_passes_on_two_thousand_rows() -> None:
    assert 1 - simulate(DEFAULT, World(agreement=0.95), 0.0, gates=20)[0] <= MOST_REFUSED


@pytest.mark.slow
def test_two_thousand_gates_of_two_thousand_rows() -> None:
    found = table(World(), 2000)
    assert all(met is not False for *_, met in found), found
