"""The makers of candidates, by the name that a recipe's ``by`` has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import JsonValue

from flows.branches.candidate import Candidate, EarlierCandidate, SharedArtifacts
from flows.branches.dropped import make_dropped_candidate
from flows.branches.shrinking.pretrained import make_pretrained
from flows.branches.shrinking.quantized import make_quantized
from flows.branches.shrinking.shrunk import make_narrowed, make_pruned, make_trimmed, make_with_fewer_heads
from flows.branches.shrinking.sparse import make_lottery, make_sparse
from flows.branches.shrinking.supernets import make_sub_network
from flows.branches.student import make_student
from flows.branches.subflow import as_page, has_branches
from tasks.distill_general import distill_general
from tasks.distill_task import distill_layers, distill_predictions, record_signals
from tasks.drop_layers import drop_layers, measure_contributions
from tasks.prepare_corpus import pretrain_encoder
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.recipe import Recipe
from tasks.shrink_model import (
    cut_supernet,
    judge_shapes,
    prune_heads,
    prune_in_rounds,
    prune_neurons,
    prune_weights,
    prune_width,
    train_quantized,
    train_supernet,
    train_ticket,
    train_with_static_ranges,
    trim_vocabulary,
)

Make = Callable[[Recipe, Any, SharedArtifacts], Awaitable[Candidate]]
"""Makes a planned candidate, whose knobs are the maker's own; another candidate that it is made from is in
``shared.made``."""
StageTask = Callable[..., Any]


@dataclass(frozen=True)
class Maker:
    """A way to make candidates."""

    make: Make
    stages: tuple[StageTask, ...]
    """Its stages that run models: a remote worker computes them on a GPU, if there is one."""


MAKERS = {
    "distillation": Maker(make_student, (distill_general, record_signals, distill_layers, distill_predictions)),
    "layer-dropping": Maker(make_dropped_candidate, (measure_contributions, drop_layers)),
    "vocabulary-trimming": Maker(make_trimmed, (trim_vocabulary,)),
    "neuron-pruning": Maker(make_pruned, (prune_neurons, prune_in_rounds)),
    "width-pruning": Maker(make_narrowed, (prune_width, prune_in_rounds)),
    "head-pruning": Maker(make_with_fewer_heads, (prune_heads,)),
    "weight-pruning": Maker(make_sparse, (prune_weights,)),
    "lottery-ticket": Maker(make_lottery, (train_ticket,)),
    "quantization": Maker(make_quantized, (train_quantized, train_with_static_ranges)),
    "pretraining": Maker(make_pretrained, (pretrain_encoder,)),
    "supernet": Maker(make_sub_network, (train_supernet, cut_supernet, judge_shapes)),
}


async def all_candidates(recipe: Recipe, shared: SharedArtifacts) -> list[Candidate]:
    """Make all candidates of a recipe, as branches of one run; a follower waits for the one that it is made from."""
    shared.planned = {one.name: one for one in recipe.planned}
    one = candidate_on_page if has_branches(recipe) else one_candidate
    for planned in shared.planned.values():  # no branch begins before all are known: this loop awaits nothing
        made = made_earlier(planned, shared) or asyncio.ensure_future(one(recipe, planned, shared))
        shared.made[planned.name] = made
        shared.earlier[planned.name] = EarlierCandidate(planned, made, shared.made.get(planned.made_from))
    return list(await asyncio.gather(*shared.made.values()))


def made_earlier(planned: CandidateKnobs, shared: SharedArtifacts) -> asyncio.Future[Candidate] | None:
    """Return a candidate with these knobs, from the same candidate, that an earlier round of a search made; None if
    there is none. Its stages are in the cache, and would be planned and verified once more in each round."""
    known, origin = shared.earlier.get(planned.name), shared.made.get(planned.made_from)
    if known is None or known.knobs != planned or (planned.is_follower and (origin is None or origin != known.origin)):
        return None
    return known.made


async def one_candidate(recipe: Recipe, planned: CandidateKnobs, shared: SharedArtifacts) -> Candidate:
    """Make one candidate."""
    return await MAKERS[planned.by].make(recipe, planned, shared)


async def candidate_on_page(recipe: Recipe, planned: CandidateKnobs, shared: SharedArtifacts) -> Candidate:
    """Make one candidate as a branch, which is drawn after what nearly every candidate waits for, and begins after
    it."""
    if planned.is_follower:
        await shared.made[planned.made_from]
    after = [shared.rows, *([await shared.teacher] if recipe.general_distillation is None else [])]
    about: dict[str, JsonValue] = {"by": planned.by, "from": planned.made_from, "seeds": list(planned.planned_seeds)}
    return await as_page(planned.name, partial(one_candidate, recipe, planned, shared), after, about)
