"""A candidate of a run, with one checkpoint for each seed, and the artifacts that the branches of a run share."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

from tasks.contracts import Parcel
from tasks.recipe.slices import AnswerSlice, ContributionSlice, MixSlice, SignalSlice


@dataclass
class Goods:
    """What branches share; each is awaited only where a branch needs it, so that no branch waits for what it does not
    use."""

    rows: Parcel
    base: Parcel
    teacher: Awaitable[Parcel]
    colleagues: Sequence[Awaitable[Parcel]] = ()
    corpus: Awaitable[Parcel] | None = None
    candidates: Awaitable[Parcel] | None = None
    transfer: Parcel | None = None
    starts: dict[str, Parcel] = field(default_factory=dict)
    judging: dict[str, Parcel] = field(default_factory=dict)
    """The rows of judging sets, by name."""
    general: dict[Any, Awaitable[Parcel]] = field(default_factory=dict)
    signals: dict[SignalSlice, Awaitable[Parcel]] = field(default_factory=dict)
    answers: dict[tuple[AnswerSlice, int], Awaitable[Parcel]] = field(default_factory=dict)
    """By what is asked and by the number of the teacher, counted from 0."""
    mixtures: dict[tuple[AnswerSlice, MixSlice], Awaitable[Parcel]] = field(default_factory=dict)
    contributions: dict[tuple[ContributionSlice, str], Awaitable[Parcel]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One small model to be judged: its name, its role, and one checkpoint for each seed, in the order of the recipe.

    One of the seeds is the model: it is exported, registered, and judged by its own figures; the others say how far
    seeds spread.
    """

    name: str
    role: str
    models: list[Parcel]
    seeds: tuple[int, ...] = (0,)

    @property
    def chosen(self) -> int:
        """Say which of the seeds is the model: the best by its score on the selection rows, the first of equals and
        where seeds have no scores."""
        scores = self.selection_scores
        return 0 if None in scores else max(range(len(scores)), key=lambda number: (known(scores[number]), -number))

    @property
    def selection_scores(self) -> list[float | None]:
        """The score of every seed on the selection rows; None where it was not taken, or is not known yet."""
        return [model.facts.get("selection_score") for model in self.models]

    @property
    def model(self) -> Parcel:
        """The checkpoint of the chosen seed; in a plan that cannot know it, one that is not made yet, so that what
        waits for it is not called cached."""
        waiting = [model for model in self.models if not model.facts] if len(self.models) > 1 else []
        return waiting[0] if waiting else self.models[self.chosen]

    @property
    def chosen_first(self) -> list[Parcel]:
        """All checkpoints, that of the chosen seed first, as scorecards want them."""
        return [self.models[self.chosen], *(model for number, model in enumerate(self.models) if number != self.chosen)]

    def as_in_recipe(self, values: Sequence[float]) -> list[float]:
        """Return what was found of ``chosen_first`` in the order of the recipe."""
        others = [*values[1:]]
        return [*others[: self.chosen], values[0], *others[self.chosen :]] if values else []


def known(score: float | None) -> float:
    """Return a score; one that is not known is below all others."""
    return -math.inf if score is None else score


def label(name: str, seed: int, seeds: tuple[int, ...]) -> str:
    """Return a short static name for the run graph."""
    return name if len(seeds) == 1 else f"{name} s{seed}"


def deviation(per_seed: Sequence[float]) -> float | None:
    """Return the standard deviation over seeds (of the seeds there could be, not only of these); one seed has none."""
    return stdev(per_seed) if len(per_seed) > 1 else None
