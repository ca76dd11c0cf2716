"""Comparison of every candidate with the recipe's labels-only baselines of its own size, with its controls, with those
that it names, and with no other models.

A control differs from a candidate in nothing but the choice that it is to judge: what it removes is drawn at random, or
it is rounded after its training. What is made from a control in the same way is one, too. A labels-only baseline is a
student of role baseline that learns from labels alone: the model that a user would get without any method. If a recipe
has neither for a candidate, no claim is made about that candidate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.judging_sets import on_set, score_slice
from tasks.contracts import Artifact
from tasks.contrast_models import contrast_models
from tasks.ports.rows.row_files import read_split
from tasks.recipe.candidates import DistilledCandidate
from tasks.recipe.makers.candidate_knobs import CandidateKnobs, unlike_knobs
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContrastSlice
from tasks.recipe.student_checks import general_phase
from tasks.recipe.students import Shape
from tasks.results.facts import ContrastFacts, ScoreFacts
from tasks.results.row import Comparison
from tasks.scoring.judging_sets import SET_SPLIT
from tasks.scoring.quality.verdicts import Pair, verdicts
from tasks.stage.session import current_session

Comparisons = dict[str, dict[str, dict[str, Comparison]]]
"""Verdicts by candidate, by the model that it is compared to, and by split."""


@dataclass(frozen=True)
class ComparedPairs:
    """The pairs of a run that are compared, each a candidate and a baseline, a control, or one that it names."""

    baselines: Sequence[Pair]
    controls: Sequence[Pair]
    named: Mapping[Pair, tuple[str, ...]]
    """With the knobs in which both differ."""

    def __iter__(self) -> Iterator[Pair]:
        return iter(dict.fromkeys([*self.baselines, *self.controls, *self.named]))

    def marked(self, said: Mapping[str, Mapping[str, Mapping[str, Comparison]]]) -> Comparisons:
        """Return comparisons that say which models are controls, and the knobs in which those that are named differ."""
        return {
            name: {
                other: {split: self.marked_one((name, other), one) for split, one in splits.items()}
                for other, splits in found.items()
            }
            for name, found in said.items()
        }

    def marked_one(self, pair: Pair, one: Comparison) -> Comparison:
        """Return one comparison in the same way; that with a labels-only baseline says nothing of both."""
        if pair not in self.controls and pair not in self.named:
            return one
        return one.replaced(control=pair in self.controls, differs=self.named.get(pair, ()))


def pairs_to_compare(recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact]) -> ComparedPairs:
    """Return the pairs of a recipe; ``cards`` are the scorecards of the candidates on the task's own rows."""
    scored = cards_by_name(candidates, cards)
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
    return ComparedPairs(pairs, controls, named)


def cards_by_name(candidates: Sequence[Candidate], cards: Sequence[Artifact]) -> dict[str, Artifact]:
    """Return the scorecards of candidates by their names."""
    return {candidate.name: card for candidate, card in zip(candidates, cards, strict=True)}


async def contrast_all(
    recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact], shared: SharedArtifacts
) -> Comparisons:
    """Return the verdicts of comparing each candidate with each labels-only baseline, on every split, by candidate."""
    pairs, scored = pairs_to_compare(recipe, candidates, cards), cards_by_name(candidates, cards)
    found = await contrasts_on(recipe, pairs, scored, shared.rows)
    return pairs.marked(verdicts(found, recipe.scoring.confidence, shared.groups))


async def contrast_on_sets(
    recipe: Recipe,
    candidates: Sequence[Candidate],
    cards: Sequence[Artifact],
    on_sets: Mapping[str, Mapping[str, Artifact]],
    shared: SharedArtifacts,
) -> dict[str, Comparisons]:
    """Return the verdicts of the same comparisons by judging set, where sets stand for splits; ``on_sets`` are the
    scorecards by candidate and set."""
    pairs = pairs_to_compare(recipe, candidates, cards)
    found = await asyncio.gather(
        *(
            contrasts_on(recipe, pairs, {one: known[name] for one, known in on_sets.items()}, rows, name)
            for name, rows in shared.judging.items()
        )
    )
    said = {}
    for (name, rows), known in zip(shared.judging.items(), found, strict=True):
        groups = await asyncio.to_thread(groups_of_set, rows) if known else {}
        said[name] = pairs.marked(verdicts(known, recipe.scoring.confidence, groups))
    return said


def groups_of_set(rows: Artifact) -> dict[str, int]:
    """Return the number of groups of a judging set's rows; empty if they do not come in groups."""
    groups_N = read_split(current_session().store.folder(rows), SET_SPLIT).groups_N
    count = 0 if groups_N is None else len(set(groups_N.tolist()))
    return {SET_SPLIT: count} if groups_N is not None and count < len(groups_N) else {}


async def contrasts_on(
    recipe: Recipe, pairs: Iterable[Pair], scored: Mapping[str, Artifact], rows: Artifact, on: str = ""
) -> dict[Pair, ContrastFacts]:
    """Return the differences of all pairs by the headline metric, on the task's own rows, or ``on`` a judging set; none
    in a plan, which has no figures."""
    knobs = ContrastSlice(
        metric=score_slice(recipe, on).headline if on else recipe.spec.headline,
        resamples=recipe.scoring.resamples,
        confidence=recipe.scoring.confidence,
    )
    both = list(pairs)
    found = await asyncio.gather(
        *(
            contrast_models(
                knobs,
                candidate=scored[name],
                baseline=scored[other],
                rows=rows,
                label=on_set(f"{name} against {other}", on),
            )
            for name, other in both
        )
    )
    return {pair: artifact.read(ContrastFacts) for pair, artifact in zip(both, found, strict=True) if artifact.facts}


def named_by(recipe: Recipe, name: str) -> dict[str, tuple[str, ...]]:
    """Return the candidates to which one is compared because it names them, with the knobs in which both differ."""
    known = {one.name: one for one in recipe.planned}
    if name not in known:
        return {}
    ours = as_made(recipe, known[name])
    return {other: unlike_knobs(ours, as_made(recipe, known[other])) for other in known[name].compared_to}


def as_made(recipe: Recipe, one: CandidateKnobs) -> dict[str, object]:
    """Return all that decides what a candidate is, with the recipe's phases where it has none of its own."""
    made = one.knobs_but()
    if isinstance(one, DistilledCandidate):
        student = recipe.as_student(one)
        phases = {
            "general": general_phase(recipe, student),
            "intermediate": recipe.inner_phase(student),
            "prediction": student.prediction or recipe.task_distillation.prediction,
        }
        made |= {name: phase.model_dump() if phase is not None else None for name, phase in phases.items()}
    return made


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
