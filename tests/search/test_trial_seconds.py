"""The minutes of a search over ways: a phase that several ways share is trained once, and counts once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.branches.candidate import Candidate
from flows.branches.search.trials import find_recipes
from tasks.contracts import Artifact
from tasks.recipe.candidates import DistilledCandidate
from tasks.recipe.makers.trials import RecipeTrials, Trial
from tasks.results.trials import TrialsResult
from tasks.search.trials import PhaseSeconds, fits_first_round, seconds_beyond
from tests.search.test_space import record
from tests.search.test_trials import recipe_with, trials_with

RATES = [1e-4, 2e-4, 3e-4, 5e-4, 1e-3, 2e-3]
INNER, LAST = 24.0, 6.0
"""Seconds of both phases of each way."""


def test_a_phase_that_ways_share_is_paid_once() -> None:
    """Counted for each learning rate, it let fewer ways into the first round than the minutes allow."""
    trials = trials_with(minutes=2)
    first, second, third, fourth = (Trial("teacher", "layers", rate) for rate in RATES[:4])
    took = {first.cost: PhaseSeconds(30.0, 10.0)}
    assert fits_first_round(third, [first, second], took, trials), "30 + 3 x 10 seconds of a minute"
    assert not fits_first_round(fourth, [first, second, third], took, trials)
    other = Trial("random", "layers", 1e-4)
    assert not fits_first_round(other, [first, second], took, trials), "another start has inner layers of its own"
    shared = [{"inner": 30.0, "a": 10.0}, {"inner": 30.0, "b": 11.0}, {"other": 30.0, "c": 12.0}]
    assert seconds_beyond(shared) == [40.0, 11.0, 42.0]


class Trainings:
    """Trainings that take no time and state their seconds, recorded as a session does: by the label of each way."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.trained: set[str] = set()

    def is_guess(self, artifact: Any) -> bool:
        return True

    async def made(self, recipe: Any, candidates: Sequence[DistilledCandidate], shared: Any) -> dict[str, Candidate]:
        return {one.name: self.candidate(one) for one in candidates}

    def candidate(self, planned: DistilledCandidate) -> Candidate:
        """Record both phases; the key of the first does not know the learning rate."""
        *_, method, _ = planned.name.split("-", 2)
        inner = self.stage(planned.name, f"{method} {planned.intermediate and planned.intermediate.steps}", INNER)
        assert inner is not None and planned.prediction is not None
        score = planned.prediction.learning_rate
        last = self.stage(planned.name, f"{planned.name} {planned.prediction.steps}", LAST, selection_score=score)
        return Candidate(planned.name, "student", [last])

    def stage(self, label: str, key: str, seconds: float, **facts: float) -> Artifact:
        self.trained.add(key)
        digest = sha256(key.encode()).hexdigest()
        artifact = Artifact("checkpoint", digest, "", 1, {"train_seconds": seconds, **facts})
        one = record("distil", label, seconds)
        one.key, one.artifact = key, artifact
        self.records.append(one)
        return artifact


def searched(minutes: float, monkeypatch: pytest.MonkeyPatch) -> tuple[TrialsResult, Trainings]:
    """Search six learning rates of one start and one method."""
    ways = {"shape": {"layers": 2}, "starts": ["teacher"], "methods": ["layers"], "learning_rates": RATES}
    recipe, session = recipe_with(Path("rows"), Path("bert")), Trainings()
    assert recipe.search is not None
    trials = RecipeTrials.model_validate({**ways, "minutes": minutes, "rounds": 3, "steps": 90})
    search = recipe.search.model_copy(update={"recipes": trials})
    monkeypatch.setattr("flows.branches.search.trials.trained_briefly", session.made)
    monkeypatch.setattr("flows.branches.search.trials.with_trials", lambda *given: recipe)
    shared: Any = SimpleNamespace(layers=4, base=None)
    found = asyncio.run(find_recipes(recipe.model_copy(update={"search": search}), shared, session))  # type: ignore[arg-type]
    assert isinstance(found.result, TrialsResult)
    return found.result, session


def test_a_search_spends_the_seconds_of_what_it_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six ways with one phase on inner layers: 24 + 6 x 6 seconds, which are a minute, and were taken for three."""
    result, session = searched(3.5, monkeypatch)
    tried = [one for one in result.trials if one.scores]
    assert len(tried) == 6, "all fit half of the minutes"
    spent = sum(INNER if key.startswith("layers") else LAST for key in session.trained)
    assert result.spent == pytest.approx(spent / 60) and spent == (INNER + 6 * LAST) + (INNER + 2 * LAST)
    assert all(float(one.seconds) >= INNER + LAST for one in tried), "each way alone takes both of its phases"
    assert [one.learning_rate for one in result.trials if one.state == "candidate"] == [2e-3]


def test_more_ways_than_the_minutes_allow_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = searched(1.4, monkeypatch)
    assert sum(1 for one in result.trials if one.scores) == 3, "24 + 3 x 6 seconds of 42"
