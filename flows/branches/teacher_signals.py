"""Outputs of the teacher that several students use: computed once for all of them, with the same knobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from flows.branches.candidate import SharedArtifacts
from flows.branches.kept_layers import choose_storage, finished, signal_knobs, text_size
from tasks.contracts import Artifact
from tasks.distill_task import record_signals
from tasks.drop_layers import measure_contributions
from tasks.finetune_teacher import answer_rows, mix_answers
from tasks.recipe.distillation import Intermediate, Prediction
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import AnswerSlice, ContributionSlice, MixSlice, PatienceOf, SignalSlice
from tasks.recipe.students import LayerDropping, Student
from tasks.results.facts import AnswerFacts
from tasks.stage.session import current_session
from tasks.task_types.types import TASK_TYPES


async def contributions_of(
    knobs: ContributionSlice, origin: str, shared: SharedArtifacts, model: Artifact | None = None
) -> Artifact:
    """Return the contribution of each layer, measured once per run for the same knobs and origin; ``model`` is that of
    an origin that is a candidate."""
    if (knobs, origin) not in shared.contributions:
        base = model or (shared.base if origin == "pretrained" else await shared.teacher)
        shown = f"layers of {origin}" if model is not None else ""
        shared.contributions[knobs, origin] = asyncio.ensure_future(
            measure_contributions(knobs, base=base, rows=shared.rows, label=shown)
        )
    return await shared.contributions[knobs, origin]


async def answers_for(
    recipe: Recipe, shared: SharedArtifacts, training: Prediction | LayerDropping, layers: int = 0
) -> Artifact:
    """Return the predictions of the teacher, or the ensemble, on every row that students train on, computed once for
    all trainings that need the same ones.

    ``layers`` is the student's number of layers, which patience depends on.
    """
    if recipe.ensemble is None:
        return await own_answers(recipe, shared, training, layers)
    knobs = answer_knobs(recipe, training, layers)
    mixture = MixSlice(
        task_type=recipe.spec.kind,
        combine=recipe.ensemble.combine,
        weights=(1.0, *(colleague.weight for _, colleague in recipe.colleagues)),
        # Where no temperature softens an answer, students of all temperatures share one mixture.
        temperature=training.temperature if TASK_TYPES[recipe.spec.kind].is_softened else 1.0,
    )
    if (knobs, mixture) not in shared.mixtures:
        shared.mixtures[knobs, mixture] = asyncio.ensure_future(mixture_of(mixture, knobs, shared))
    return await shared.mixtures[knobs, mixture]


async def own_answers(
    recipe: Recipe, shared: SharedArtifacts, training: Prediction | LayerDropping, layers: int = 0
) -> Artifact:
    """Return the predictions of the first teacher alone."""
    knobs = answer_knobs(recipe, training, layers)
    shown = f"patience {knobs.patience.layer_map}, {knobs.patience.layers} layers" if knobs.patience else ""
    return await answers_of(0, shown if recipe.ensemble is None else "teacher 1", knobs, shared)


def answer_knobs(recipe: Recipe, training: Prediction | LayerDropping, layers: int) -> AnswerSlice:
    """Return the knobs of a teacher's predictions for a student of this many layers."""
    patience = training.patience if isinstance(training, Prediction) else None
    return AnswerSlice(
        task_type=recipe.spec.kind,
        max_length=training.max_length,
        precision=training.precision,
        transfer_alone=recipe.transfer is not None and recipe.transfer.alone,
        patience=None if patience is None else PatienceOf(layer_map=patience.layer_map, layers=layers),
    )


async def mixture_of(mixture: MixSlice, knobs: AnswerSlice, shared: SharedArtifacts) -> Artifact:
    """Return the mixture of all teachers' predictions, each softened at the temperature of the mixture's students."""
    said = (answers_of(number, f"teacher {number + 1}", knobs, shared) for number in range(1 + len(shared.colleagues)))
    return await mix_answers(mixture, answers=list(await asyncio.gather(*said)))


async def answers_of(number: int, shown: str, knobs: AnswerSlice, shared: SharedArtifacts) -> Artifact:
    """Return one teacher's predictions; students of all temperatures share them."""
    if (knobs, number) not in shared.answers:
        shared.answers[knobs, number] = asyncio.ensure_future(asked(number, shown, knobs, shared))
    return await shared.answers[knobs, number]


async def asked(number: int, shown: str, knobs: AnswerSlice, shared: SharedArtifacts) -> Artifact:
    """Compute one teacher's predictions."""
    teacher = await [shared.teacher, *shared.colleagues][number]
    text = {"transfer": shared.transfer} if shared.transfer is not None else {}
    return await answer_rows(knobs, teacher=teacher, rows=shared.rows, **text, label=shown)


async def kept_signals(
    recipe: Recipe, student: Student, phase: Intermediate, shared: SharedArtifacts, text: Mapping[str, Artifact]
) -> Artifact | None:
    """Return the stored signals of the teacher's layers for a student's first phase; students and seeds with the same
    knobs share them. None if the teacher runs beside the training."""
    if not recipe.task_distillation.can_keep(phase):
        return None
    knobs = signal_knobs(recipe, student, phase)
    if knobs not in shared.signals:
        shared.signals[knobs] = asyncio.ensure_future(signals_of(recipe, knobs, student, phase, shared, text))
    return await shared.signals[knobs]


async def signals_of(
    recipe: Recipe,
    knobs: SignalSlice,
    student: Student,
    phase: Intermediate,
    shared: SharedArtifacts,
    text: Mapping[str, Artifact],
) -> Artifact | None:
    """Run the teacher once for all students that share a layer map, if that pays and the disk has room."""
    prediction = student.prediction or recipe.task_distillation.prediction
    answered = await own_answers(recipe, shared, prediction, student.layers)
    inputs = {"teacher": await shared.teacher, "rows": shared.rows, **text}
    choice = choose_storage(
        recipe, knobs, shared, inputs, text_size(answered.read(AnswerFacts), prediction.max_length, phase)
    )
    found = await record_signals(knobs, **inputs, label=choice.label) if choice.kept else None
    choices = current_session().teacher_layers
    choices.append(choice if found is None else finished(choice, found))
    choices.sort(key=lambda one: one.label)
    return found
