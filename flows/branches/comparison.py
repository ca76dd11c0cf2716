"""Comparison of every candidate with the recipe's labels-only baselines of its own size, of a lottery ticket with its
controls too, and with no other models.

A labels-only baseline is a student of role baseline that learns from labels alone: the model that a user would get
without any method. If a recipe has none of a candidate's size, no claim is made about that candidate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from flows.branches.candidate import Candidate
from tasks.contracts import Artifact
from tasks.contrast_models import contrast_models
from tasks.recipe.makers.weights import LotteryCandidate
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContrastSlice
from tasks.recipe.students import Shape
from tasks.results.facts import ContrastFacts, ScoreFacts
from tasks.results.row import Comparison
from tasks.scoring.quality.verdicts import verdicts


async def contrast_all(
    recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact], rows: Artifact
) -> dict[str, dict[str, dict[str, Comparison]]]:
    """Return the verdicts of comparing each candidate with each labels-only baseline, on every split, by candidate."""
    scored = {candidate.name: card for candidate, card in zip(candidates, cards, strict=True)}
    knobs = ContrastSlice(
        metric=recipe.spec.headline, resamples=recipe.scoring.resamples, confidence=recipe.scoring.confidence
    )
    students = recipe.new_students
    baselines = [one.name for one in students if one.role == "baseline" and one.signal == "labels"]
    shapes = {one.name: [getattr(one, name) for name in Shape.model_fields] for one in students}
    pairs = [
        (ours.name, theirs)
        for ours in candidates
        if ours.role not in ("teacher", "export") and ours.name not in baselines
        for theirs in baselines
        if are_of_one_size(ours.name, theirs, scored, shapes)
    ]
    pairs += [(ours.name, control) for ours in candidates for control in controls_of(recipe, ours.name)]
    found = await asyncio.gather(
        *(
            contrast_models(
                knobs, candidate=scored[name], baseline=scored[baseline], rows=rows, label=f"{name} against {baseline}"
            )
            for name, baseline in pairs
        )
    )
    known = {
        pair: artifact.read(ContrastFacts) for pair, artifact in zip(pairs, found, strict=True) if artifact.facts
    }  # a plan has no figures
    return verdicts(known, recipe.scoring.confidence)


def controls_of(recipe: Recipe, name: str) -> list[str]:
    """Return the controls of a lottery ticket: those that differ from it in nothing else; none for other models."""
    lotteries = {one.name: one for one in recipe.planned if isinstance(one, LotteryCandidate)}
    ours = lotteries.get(name)
    if ours is None or ours.control != "ticket":
        return []
    return [other.name for other in lotteries.values() if other.is_control_of(ours)]


def plain_students(recipe: Recipe) -> list[str]:
    """Return the names of the new students of any role that learn from labels alone; what is made from another
    candidate may have learned more."""
    return [student.name for student in recipe.new_students if student.signal == "labels"]


def are_of_one_size(
    ours: str, baseline: str, scored: Mapping[str, Artifact], shapes: Mapping[str, Sequence[object]]
) -> bool:
    """Return whether a candidate has a baseline's number of parameters and of FLOPs (an ALBERT's layers share their
    weights). A plan compares the ``shapes`` of the recipe's new students."""
    cards = [scored[name] for name in (ours, baseline)]
    if all(card.facts for card in cards):
        one, other = (card.read(ScoreFacts) for card in cards)
        return (one.parameters, one.flops) == (other.parameters, other.flops)
    return ours in shapes and shapes[ours] == shapes[baseline]
