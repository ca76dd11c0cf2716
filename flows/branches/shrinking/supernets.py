"""The maker of parts of a supernet, which all candidates with the same section share, and the scores of its shapes."""

from __future__ import annotations

from collections.abc import Sequence

from flows.branches.candidate import Candidate, SharedArtifacts, candidate_of_seeds, label, origin_of_seed
from flows.branches.shrinking.quantized import UNREAD
from flows.branches.teacher_signals import contributions_of
from tasks.contracts import Artifact
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.makers.slices import JudgedShapesSlice, ShapeSlice, SubNetworkSlice, SupernetSlice
from tasks.recipe.makers.supernets import SubNetworkCandidate, SupernetKnobs
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContributionSlice
from tasks.shrink_model import cut_supernet, judge_shapes, train_supernet

TRAINING = ("prediction",)
"""Knobs of a supernet that are sections of their own."""


async def make_sub_network(recipe: Recipe, planned: SubNetworkCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate that is one shape of the supernet of the model that it is made from."""
    knobs = SubNetworkSlice(
        task_type=recipe.spec.kind,
        layers=planned.layers,
        width=planned.width,
        neurons=planned.neurons,
        max_length=planned.supernet.prediction.max_length,
    )

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        trained = await supernet_of(recipe, planned.supernet, planned, seed, base, shared)
        named = label(planned.name, seed, planned.planned_seeds)
        return await cut_supernet(knobs, supernet=trained, rows=shared.rows, label=named)

    return await candidate_of_seeds(planned, one)


async def supernet_of(
    recipe: Recipe, supernet: SupernetKnobs, planned: CandidateKnobs, seed: int, base: Artifact, shared: SharedArtifacts
) -> Artifact:
    """Return a supernet of ``base``, trained once for all candidates that take a shape out of it."""
    training = {name: value for name, value in dict(supernet.prediction).items() if name not in UNREAD}
    own = {name: getattr(supernet, name) for name in SupernetKnobs.model_fields if name not in TRAINING}
    knobs = SupernetSlice(
        **{**training, **own, "seed": seed},
        task_type=recipe.spec.kind,
        transfer_alone=recipe.transfer is not None and recipe.transfer.alone,
    )
    if (knobs, planned.made_from) not in shared.supernets:
        shared.supernets[knobs, planned.made_from] = shared.begin(trained(knobs, planned, seed, base, shared))
    return await shared.supernets[knobs, planned.made_from]


async def trained(
    knobs: SupernetSlice, planned: CandidateKnobs, seed: int, base: Artifact, shared: SharedArtifacts
) -> Artifact:
    """Train a supernet; its layers are measured first where their contribution decides which of them a shape has."""
    measured = None
    if knobs.strategy == "contribution":
        slice_ = ContributionSlice(task_type=knobs.task_type, max_length=knobs.max_length)
        behind = label(planned.made_from, seed, planned.planned_seeds)
        where = (behind, shared, base) if planned.is_follower else ("finetuned", shared)
        measured = await contributions_of(slice_, *where)
    text = {} if shared.transfer is None else {"transfer": shared.transfer}
    named = label("supernet", seed, planned.planned_seeds)
    return await train_supernet(knobs, base=base, rows=shared.rows, contributions=measured, label=named, **text)


async def scores_of_shapes(
    recipe: Recipe, supernet: Artifact, shapes: Sequence[ShapeSlice], max_length: int, shared: SharedArtifacts
) -> Artifact:
    """Return the scores of shapes of a supernet on the selection rows."""
    knobs = JudgedShapesSlice(task_type=recipe.spec.kind, shapes=tuple(shapes), max_length=max_length)
    return await judge_shapes(knobs, supernet=supernet, rows=shared.rows, label="supernet")
