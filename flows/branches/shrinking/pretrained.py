"""The maker of models that are pretrained on the corpus, before they learn the task."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from attrs import evolve

from flows.branches.candidate import Candidate, SharedArtifacts, candidate_of_seeds, label
from flows.branches.student import train_student
from flows.branches.teacher import text_of_pretraining
from tasks.contracts import Artifact
from tasks.prepare_corpus import pretrain_encoder
from tasks.recipe.chains import depth_of
from tasks.recipe.makers.candidate_knobs import PRETRAINED, TEACHER
from tasks.recipe.makers.pretraining import PretrainedCandidate
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Student
from tasks.results.facts import ModelFacts

OF_PRETRAINING = ("words", "most_frequent_word", "sop", "nsp")
"""What accuracies on held-back documents are of, in the order of their table."""


async def make_pretrained(recipe: Recipe, planned: PretrainedCandidate, shared: SharedArtifacts) -> Candidate:
    """Pretrain a candidate with each of its seeds, and train it on the task."""
    assert recipe.pretraining is not None and shared.source is not None
    section = recipe.pretraining
    if shared.pretraining is None:
        shared.pretraining = shared.begin(text_of_pretraining(recipe, shared.source))
    text = await shared.pretraining
    start = shared.base if planned.start == PRETRAINED else None
    student = Student(
        name=planned.name,
        layers=depth_of(planned, shared.planned, shared.layers),
        start=TEACHER,
        stages=(),
        role=planned.role,
        signal=planned.signal,
        prediction=planned.prediction,
        seeds=planned.planned_seeds,
    )

    async def one(seed: int) -> Artifact:
        shown = label(planned.name, seed, planned.planned_seeds)
        encoder = await pretrain_encoder(planned.pretraining_of(section, seed), start=start, label=shown, **text)
        model = await train_student(recipe, student, seed, shared, encoder)
        known = {name: encoder.facts[name] for name in OF_PRETRAINING if name in encoder.facts}
        return evolve(model, facts={**model.facts, "pretraining": known}) if model.facts else model

    return await candidate_of_seeds(planned, one)


def accuracies_of_pretraining(models: Sequence[Artifact]) -> dict[str, float]:
    """Return the accuracies of pretrained models on held-back documents, means over seeds; empty for other models."""
    found = [model.read(ModelFacts).pretraining for model in models]
    return {name: fmean(one[name] for one in found) for name in OF_PRETRAINING if all(name in one for one in found)}
