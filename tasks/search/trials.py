"""Ways to train one shape as candidates of a recipe, and how many of them the minutes allow. Plain values in and
out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tasks.recipe.candidates import DistilledCandidate
from tasks.recipe.distillation import Intermediate, Prediction, TaskDistillation
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.trials import RecipeTrials, Trial
from tasks.results.trials import TriedRecipe
from tasks.search.ranking import ROUND_FACTOR


def steps_of_rounds(trials: RecipeTrials) -> list[int]:
    """Return the steps of a training in each round; the last are those of a whole one."""
    factors = [ROUND_FACTOR**left for left in reversed(range(trials.rounds))]
    return [max(2, trials.steps // factor) for factor in factors]


def candidate_of_trial(
    trial: Trial,
    trials: RecipeTrials,
    section: TaskDistillation,
    steps: int,
    seeds: tuple[int, ...],
    suffix: str = "",
) -> DistilledCandidate:
    """Return a way to train the shape as a candidate that takes ``steps`` in all; ``suffix`` marks a round. What it
    does not vary is as in the recipe's ``section`` on task distillation."""
    with_layers = trial.inner_phase is not None
    first = steps // 2 if with_layers else 0
    prediction = section.prediction.model_copy(
        update={"steps": steps - first, "learning_rate": trial.learning_rate, "evaluations": 1}
    )
    intermediate = None
    if with_layers:
        own = dict(section.intermediate or Intermediate())
        intermediate = Intermediate.model_validate({**own, "method": trial.method, "steps": first, "evaluations": 0})
    return DistilledCandidate(
        name=trial.name + suffix,
        made_from=TEACHER,
        by="distillation",
        shape=trials.shape,
        start=trial.start,
        stages=(*(("augmentation",) if trial.augmented else ()), *(("intermediate",) if with_layers else ())),
        signal="labels" if trial.method == "labels" else "teacher",
        intermediate=intermediate,
        prediction=Prediction.model_validate(dict(prediction)),
        seeds=seeds,
    )


def tried_recipe(trial: Trial) -> TriedRecipe:
    """Return a way that was not tried yet."""
    return TriedRecipe(
        name=trial.name,
        start=trial.start,
        method=trial.method,
        learning_rate=trial.learning_rate,
        augmented=trial.augmented,
        state="not tried",
    )


def in_order_of_trial(trials: RecipeTrials) -> list[Trial]:
    """Return all ways in the order in which they are tried: the first values of each choice, then any, by the seed, so
    that each choice is met early."""
    every = trials.all_trials
    order = np.random.default_rng(trials.seed).permutation(len(every) - 1) + 1
    return [every[0], *(every[int(number)] for number in order)]


class PhaseSeconds(NamedTuple):
    """The seconds of a way: of its phase on inner layers, and of its last phase, which is its own."""

    inner: float
    last: float


def fits_first_round(
    trial: Trial, going: Sequence[Trial], seconds: Mapping[tuple[str, bool], PhaseSeconds], trials: RecipeTrials
) -> bool:
    """Tell whether the first round may try a way beside those that are ``going``: together they take a like part of the
    minutes in every round before the last, each the ``seconds`` that a way of its cost took; one of a cost that was
    not met yet at least as many as the cheapest. As many ways as there are candidates are tried in any case."""
    if len(going) < trials.candidates:
        return True
    known = {**seconds, trial.cost: seconds.get(trial.cost, PhaseSeconds(0.0, min(map(sum, seconds.values()))))}
    return seconds_together([*going, trial], known) <= 60 * trials.minutes / max(1, trials.rounds - 1)


def seconds_together(ways: Sequence[Trial], seconds: Mapping[tuple[str, bool], PhaseSeconds]) -> float:
    """Return the seconds of ways in one round; a phase on inner layers that several share is trained once."""
    inner = {one.inner_phase: seconds[one.cost].inner for one in ways}
    return sum(inner.values()) + sum(seconds[one.cost].last for one in ways)


def seconds_beyond(ways: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the seconds of each way's stages, which have them by key, that no way before it has."""
    known, found = set[str](), list[float]()
    for stages in ways:
        found.append(sum(value for key, value in stages.items() if key not in known))
        known |= stages.keys()
    return found


def next_round(
    ranked: Sequence[TriedRecipe], trials: RecipeTrials, spent: float, last: Sequence[float], *, is_last: bool
) -> int:
    """Return how many of the best ways go on: a third, or as many as the seconds that are left allow, each for three
    times the seconds that it took in this round beyond those before it (``last``), and at least the candidates."""
    if is_last:
        return min(len(ranked), trials.candidates)
    most = max(trials.candidates, math.ceil(len(ranked) / ROUND_FACTOR))
    left, count = 60 * trials.minutes - spent, 0
    for seconds in last[:most]:
        left -= ROUND_FACTOR * seconds
        if left < 0:
            break
        count += 1
    return min(len(ranked), max(count, trials.candidates))
