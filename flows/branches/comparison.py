"""Comparison of every candidate with the recipe's labels-only baselines of its own size, with its controls, with those
that it names, and with no other models.

A control differs from a candidate in nothing but the choice that it is to judge: what it removes is drawn at random, or
it is rounded after its training. What is made from a control in the same way is one, too. A labels-only baseline is a
student of role baseline that learns from labels alone: the model that a user would get without any method. If a recipe
has neither for a candidate, no claim is made about that candidate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from flows.branches.candidate import Candidate, SharedArtifacts
from tasks.contracts import Artifact
from tasks.contrast_models import contrast_models
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContrastSlice
from tasks.recipe.students import Shape
from tasks.results.facts import ContrastFacts, ScoreFacts
from tasks.results.row import Comparison
from tasks.scoring.quality.verdicts import verdicts


async def contrast_all(
    recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact], shared: SharedArtifacts
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
    controls = [(ours.name, control) for ours in candidates for control in controls_of(recipe, ours.name)]
    named = {(ours.name, other): knobs for ours in candidates for other, knobs in named_by(recipe, ours.name).items()}
    pairs = list(dict.fromkeys([*pairs, *controls, *named]))
    found = await asyncio.gather(
        *(
            contrast_models(
                knobs,
                candidate=scored[name],
                baseline=scored[baseline],
                rows=shared.rows,
                label=f"{name} against {baseline}",
            )
            for name, baseline in pairs
        )
    )
    known = {
        pair: artifact.read(ContrastFacts) for pair, artifact in zip(pairs, found, strict=True) if artifact.facts
    }  # a plan has no figures
    said = verdicts(known, recipe.scoring.confidence, shared.groups)
    for name, other in {*controls, *named}:
        also = {"control": (name, other) in controls, "differs": named.get((name, other), ())}
        for split, one in said.get(name, {}).get(other, {}).items():
            said[name][other][split] = one.model_copy(update=also)
    return said


def named_by(recipe: Recipe, name: str) -> dict[str, tuple[str, ...]]:
    """Return the candidates to which one is compared because it names them, with the knobs in which both differ."""
    known = {one.name: one for one in recipe.planned}
    return {other: known[name].differs_in(known[other]) for other in known[name].compared_to} if name in known else {}


def controls_of(recipe: Recipe, name: str) -> list[str]:
    """Return the controls of a candidate."""
    known = {one.name: one for one in recipe.planned}
    return [other.name for other in known.values() if name in known and is_control(known, other, known[name])]


def is_control(known: Mapping[str, CandidateKnobs], other: CandidateKnobs, ours: CandidateKnobs) -> bool:
    """Return whether a candidate is another one's control, or made in the same way from a control of its origin."""
    if other.is_control_of(ours):
        return True
    theirs, origin = known.get(other.made_from), known.get(ours.made_from)
    same = type(other) is type(ours) and other.knobs_but("made_from") == ours.knobs_but("made_from")
    return theirs is not None and origin is not None and same and is_control(known, theirs, origin)


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
