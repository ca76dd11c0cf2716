"""What the vocabularies and the formats of a space cost the teacher on the selection rows: before shapes are ranked, so
that one which fits with few pieces, or in four bits, is not taken for as good as its whole self."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.export import export_one
from flows.branches.makers import one_candidate
from flows.branches.search.found import compared_by
from tasks.recipe.judging import Exports
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.shrinking import TrimmedCandidate
from tasks.recipe.recipe import Recipe
from tasks.results.facts import GraphFacts, ModelFacts
from tasks.search.expected_losses import losses_of_scores
from tasks.search.space import SizedVocabulary


async def losses_on_teacher(
    recipe: Recipe, search: ShapeSearch, vocabularies: Sequence[SizedVocabulary], shared: SharedArtifacts
) -> dict[str, float] | None:
    """Return the losses by the name of a vocabulary or a format; nothing of what has no choice, since it is as much for
    all shapes, and nothing where shapes are compared by another metric than these. None in a plan that does not know
    them."""
    if compared_by(recipe, search.training) != recipe.spec.headline:
        return {}
    pieces, formats = await asyncio.gather(
        losses_of_vocabularies(recipe, vocabularies, shared), losses_of_formats(recipe, search, shared)
    )
    return None if pieces is None or formats is None else pieces | formats


async def losses_of_vocabularies(
    recipe: Recipe, vocabularies: Sequence[SizedVocabulary], shared: SharedArtifacts
) -> dict[str, float] | None:
    """Return the loss of each vocabulary against the best. The whole one is scored by the same stage, so that nothing
    but pieces differs."""
    if len(vocabularies) < 2:
        return {}
    made = await asyncio.gather(*(one_candidate(recipe, trimmed_teacher(one), shared) for one in vocabularies))
    if not all(one.models[0].facts for one in made):
        return None
    scores = [one.models[0].read(ModelFacts).score for one in made]
    names = [one.pieces for one in vocabularies]
    return losses_of_scores(dict(zip(names, scores, strict=True)), recipe.spec.headline)


def trimmed_teacher(vocabulary: SizedVocabulary) -> TrimmedCandidate:
    """Return the candidate that is the teacher with a vocabulary."""
    return TrimmedCandidate(
        name=f"vocabulary-{vocabulary.pieces}",
        made_from=TEACHER,
        by="vocabulary-trimming",
        keep="used" if vocabulary.pieces == "used" else vocabulary.size,
        seeds=(0,),
    )


async def losses_of_formats(recipe: Recipe, search: ShapeSearch, shared: SharedArtifacts) -> dict[str, float] | None:
    """Return the loss of each quantized format against the fp32 graph; a format that scores better costs nothing. A
    teacher that has no graph of a format tells nothing about it."""
    quantized = tuple(one for one in search.space.formats if one not in ("torch", "onnx"))
    if len(search.space.formats) < 2 or not quantized:
        return {}
    knobs = (recipe.exports or Exports(formats=quantized)).model_copy(update={"formats": quantized, "of": ()})
    teacher = Candidate(TEACHER, TEACHER, [await shared.teacher])
    made = await export_one(recipe, knobs, teacher, shared.rows)
    graphs = {one.format: one.artifact for one in made if one.artifact is not None}
    if not all(one.facts for one in graphs.values()):
        return None
    return {name: max(0.0, float(one.read(GraphFacts).loss)) for name, one in graphs.items()}
