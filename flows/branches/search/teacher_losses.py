"""What the vocabularies and the formats of a space cost the teacher on the selection rows: before shapes are ranked, so
that one which fits with few pieces, or in four bits, is not taken for as good as its whole self."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.export import export_one
from flows.branches.makers import one_candidate
from flows.branches.search.found import compared_by
from tasks.contracts import Artifact
from tasks.recipe.judging import Exports
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.shrinking import TrimmedCandidate
from tasks.recipe.recipe import Recipe
from tasks.results.facts import GraphFacts, ModelFacts
from tasks.results.search import JudgedShape
from tasks.search.expected_losses import OF_PIECES, losses_of_scores, without_unknown
from tasks.search.space import SizedVocabulary

IN_FULL_PRECISION = ("torch", "onnx")


class LossesOfTeacher(NamedTuple):
    """Losses by the name of a vocabulary or a format, and notes on those that could not be measured."""

    losses: dict[str, float] | None = {}
    """None in a plan that does not know them."""
    notes: tuple[str, ...] = ()


class TrimmedTeachers:
    """The teacher with each vocabulary that was asked for: made once in a run."""

    def __init__(self, recipe: Recipe, shared: SharedArtifacts) -> None:
        self.recipe, self.shared, self.made = recipe, shared, dict[str, Artifact]()

    async def of(self, vocabulary: SizedVocabulary) -> Artifact:
        """Return the teacher with a vocabulary; it is scored on inputs as long as the teacher's own."""
        if vocabulary.pieces not in self.made:
            planned = trimmed_teacher(vocabulary, self.recipe.teacher.max_length)
            found = await one_candidate(self.recipe, planned, self.shared)
            self.made[vocabulary.pieces] = found.models[0]
        return self.made[vocabulary.pieces]


def trimmed_teacher(vocabulary: SizedVocabulary, max_length: int) -> TrimmedCandidate:
    """Return the candidate that is the teacher with a vocabulary, scored on inputs of at most ``max_length`` tokens."""
    return TrimmedCandidate(
        name=f"vocabulary-{vocabulary.pieces}",
        made_from=TEACHER,
        by="vocabulary-trimming",
        keep="used" if vocabulary.pieces == "used" else int(vocabulary.pieces),
        max_length=max_length,
        seeds=(0,),
    )


async def losses_on_teacher(
    recipe: Recipe,
    search: ShapeSearch,
    fitting: Sequence[JudgedShape],
    trimmed: TrimmedTeachers,
    shared: SharedArtifacts,
) -> LossesOfTeacher:
    """Return the losses of the vocabularies and formats of shapes that fit; none where all have the same, since it is
    as much for each, and none where shapes are compared by another metric than these."""
    if compared_by(recipe, search.training) != recipe.spec.headline:
        return LossesOfTeacher()
    sizes = {one.pieces: SizedVocabulary(one.pieces, one.vocabulary) for one in fitting}
    every = [*dict.fromkeys(one.format for one in fitting)]
    pieces, formats = await asyncio.gather(
        losses_of_vocabularies(recipe, sizes, trimmed, shared), losses_of_formats(recipe, every, shared)
    )
    if pieces is None or formats.losses is None:
        return LossesOfTeacher(None)
    unknown = [one for one in every if formats.notes and one not in IN_FULL_PRECISION]
    return LossesOfTeacher(without_unknown(pieces | formats.losses, unknown), formats.notes)


async def losses_of_vocabularies(
    recipe: Recipe, sizes: Mapping[str, SizedVocabulary], trimmed: TrimmedTeachers, shared: SharedArtifacts
) -> dict[str, float] | None:
    """Return the loss of each vocabulary against the teacher's own."""
    if len(sizes) < 2 or recipe.spec.headline in OF_PIECES:
        return {}
    smaller = [size for size in sizes.values() if size.pieces != "whole"]
    teacher, *made = await asyncio.gather(shared.teacher, *map(trimmed.of, smaller))
    if not all(one.facts for one in (teacher, *made)):
        return None
    scores = {size.pieces: one.read(ModelFacts).score for size, one in zip(smaller, made, strict=True)}
    found = losses_of_scores(scores, teacher.read(ModelFacts).score, recipe.spec.headline)
    return {"whole": 0.0, **found} if "whole" in sizes else found


async def losses_of_formats(recipe: Recipe, formats: Sequence[str], shared: SharedArtifacts) -> LossesOfTeacher:
    """Return the loss of each quantized format against the fp32 graph, and notes on formats without a graph."""
    quantized = tuple(one for one in formats if one not in IN_FULL_PRECISION)
    if len(formats) < 2 or not quantized:
        return LossesOfTeacher()
    knobs = (recipe.exports or Exports(formats=("onnx",))).model_copy(update={"formats": quantized, "of": ()})
    teacher = Candidate(TEACHER, TEACHER, [await shared.teacher])
    made = await export_one(recipe, knobs, teacher, shared.rows)
    graphs = {one.format: one.artifact for one in made if one.artifact is not None}
    if not all(one.facts for one in graphs.values()):
        return LossesOfTeacher(None)
    notes = tuple(
        f"the teacher has no graph in {one.format}, so this format counts as much as what costs most: {one.because}"
        for one in made
        if one.artifact is None
    )
    return LossesOfTeacher({name: max(0.0, float(one.read(GraphFacts).loss)) for name, one in graphs.items()}, notes)
