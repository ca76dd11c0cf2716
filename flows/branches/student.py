"""The maker of students: from the initialisation, or another candidate, through the phases of the recipe to the last
checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from flows.branches.candidate import Candidate, SharedArtifacts, label, origin_of_seed
from flows.branches.teacher_signals import (
    answers_for,
    contributions_of,
    kept_signals,
    learns_from_transfer_alone,
    texts_for,
)
from tasks.contracts import Artifact
from tasks.distill_general import distill_general
from tasks.distill_task import distill_layers, distill_predictions
from tasks.recipe.candidates import DistilledCandidate
from tasks.recipe.chains import depth_of
from tasks.recipe.distillation import WRITTEN_SIGNALS
from tasks.recipe.knobs import Knobs
from tasks.recipe.methods import sections_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContributionSlice, GeneralSlice, IntermediateSlice, PredictionSlice
from tasks.recipe.student_checks import general_phase
from tasks.recipe.students import Shape, Student, general_start, takes_layers

OF_ANSWERS = {"temperature", "hard_weight", "formula", "patience", "sampling"}
"""Knobs of a training that only matter with a teacher's predictions."""


async def make_student(recipe: Recipe, planned: DistilledCandidate, shared: SharedArtifacts) -> Candidate:
    """Train one student with all its seeds concurrently; return the candidate."""
    student = recipe.as_student(planned, depth_of(planned, shared.planned, shared.layers))

    async def one(seed: int) -> Artifact:
        new = not planned.is_follower
        begun = await (starting_point(recipe, student, shared) if new else origin_of_seed(planned, seed, shared))
        return await train_student(recipe, student, seed, shared, begun)

    models = await asyncio.gather(*(one(seed) for seed in student.seeds))
    return Candidate(student.name, student.role, list(models), student.seeds)


async def train_student(
    recipe: Recipe, student: Student, seed: int, shared: SharedArtifacts, made: Artifact | None
) -> Artifact:
    """Run one student with one seed through the phases of its recipe; return its last checkpoint. ``made`` is the
    checkpoint that it starts from, or None if the engine builds it from the teacher."""
    augmented = (
        await shared.substitutes if shared.substitutes is not None and recipe.takes(student, "augmentation") else None
    )
    text = {"transfer": shared.transfer} if shared.transfer is not None and student.signal == "teacher" else {}
    common = {
        "teacher": await shared.teacher,
        "rows": shared.rows,
        "candidates": augmented,
        **text,
        "label": label(student.name, seed, student.seeds),
    }
    phase = recipe.inner_phase(student)
    if phase is not None:
        kept = await kept_signals(recipe, student, phase, shared, text)
        own = {**knobs_with_seed(phase, seed), **of_student(recipe, student, made)}
        knobs = IntermediateSlice.model_validate(own)
        made = await distill_layers(
            knobs, start=made, signals=kept, **await origin_of(recipe, student, made, shared), **common
        )
    prediction = student.prediction or recipe.task_distillation.prediction
    prediction_knobs = PredictionSlice.model_validate(
        {
            **by_signal(knobs_with_seed(prediction, seed), student.signal),
            **of_student(recipe, student, made),
            "signal": student.signal,
        }
    )
    answers = await answers_for(recipe, shared, prediction, student.layers) if student.signal == "teacher" else None
    if student.signal in WRITTEN_SIGNALS:
        common["texts"] = await texts_for(recipe, shared, prediction)
    return await distill_predictions(
        prediction_knobs, answers=answers, start=made, **await origin_of(recipe, student, made, shared), **common
    )


async def origin_of(
    recipe: Recipe, student: Student, made: Artifact | None, shared: SharedArtifacts
) -> dict[str, Artifact]:
    """Return the inputs from which a student is built beside its teacher; empty if an earlier stage built it."""
    if made is not None or not takes_layers(student.start):
        return {}
    origin = {"base": shared.base} if student.origin == "pretrained" else {}
    if student.start != "contribution":
        return origin
    knobs = ContributionSlice(task_type=recipe.spec.kind, max_length=recipe.task_distillation.prediction.max_length)
    return {**origin, "contributions": await contributions_of(knobs, student.origin, shared)}


async def starting_point(recipe: Recipe, student: Student, shared: SharedArtifacts) -> Artifact | None:
    """Return the checkpoint that a student starts from, or None if the engine builds it from the teacher."""
    if student.name in shared.starts:
        return shared.starts[student.name]
    phase = general_phase(recipe, student)
    if phase is None or not general_start(student) or shared.corpus is None:
        return None
    shape = shape_of(student)
    key = (shape, student.start, phase)
    if key not in shared.general:
        own = {**without_other_methods(phase), "shape": shape, "start": student.start}
        knobs = GeneralSlice.model_validate(own)
        shared.general[key] = shared.begin(general_student(knobs, shared))
    return await shared.general[key]


async def general_student(knobs: GeneralSlice, shared: SharedArtifacts) -> Artifact:
    """Distil one shape on general text; students of the same shape, start and phase share the checkpoint."""
    assert shared.corpus is not None
    shown = f"{knobs.shape.layers}x{knobs.shape.hidden or 'teacher'}"
    return await distill_general(knobs, base=shared.base, corpus=await shared.corpus, label=shown)


def shape_of(student: Student) -> Shape:
    """Return only a student's architecture."""
    return Shape(**{name: getattr(student, name) for name in Shape.model_fields})


def of_student(recipe: Recipe, student: Student, made: Artifact | None) -> dict[str, object]:
    """Return the knobs of a phase that depend on the task and the student; without its shape and start if an earlier
    stage built it."""
    fresh = {"shape": shape_of(student), "start": student.start, "origin": student.origin} if made is None else {}
    alone = learns_from_transfer_alone(recipe, student)
    return {"task_type": recipe.spec.kind, "transfer_alone": alone, **fresh}


def knobs_with_seed(knobs: Knobs, seed: int) -> dict[str, object]:
    """Return a section's knobs with a seed of its own."""
    return {**without_other_methods(knobs), "seed": seed}


def without_other_methods(knobs: Knobs) -> dict[str, object]:
    """Return a section's knobs without those of methods that it does not use."""
    others = {
        section for method, section in sections_of(type(knobs)).items() if method != getattr(knobs, "method", None)
    }
    return {name: value for name, value in dict(knobs).items() if name not in others}


def by_signal(knobs: Mapping[str, object], signal: str) -> dict[str, object]:
    """Return the knobs without those that only a training on a teacher's predictions reads, so that a labels-only
    baseline stays the same model when these change."""
    return {name: value for name, value in knobs.items() if signal == "teacher" or name not in OF_ANSWERS}
