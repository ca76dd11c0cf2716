"""Outputs of the teacher that several students use: computed once for all of them, with the same knobs.

Whether a run stores the inner layers of its teacher, or runs the teacher beside each training, is chosen once for each
layer map: by the reads of all trainings of the run, and by the room on the disk. The choice is part of a student's key
by the student's inputs, because stored values are rounded. Layers that are in the store already need no room, and
others have the room that they had before these were stored, so a repeated run chooses alike. That another recipe has
stored them changes nothing: results of students that learned beside their teacher would be made again.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping

from flows.branches.candidate import SharedArtifacts
from flows.branches.teacher import width_and_heads_of_teacher
from tasks.contracts import Artifact, StageInputs
from tasks.distill_task import record_signals
from tasks.drop_layers import measure_contributions
from tasks.finetune_teacher import answer_rows, answer_texts, mix_answers
from tasks.methods.layers.layer_maps import layer_map
from tasks.recipe.candidates import DistilledCandidate
from tasks.recipe.chains import depth_of
from tasks.recipe.distillation import Intermediate, Prediction
from tasks.recipe.layer_storage import StorageShape, TextSize
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import AnswerSlice, ContributionSlice, KeptSlice, MixSlice, PatienceOf, SignalSlice
from tasks.recipe.students import Student
from tasks.results.facts import AnswerFacts, LayerFacts
from tasks.results.teacher_layers import TeacherLayers
from tasks.stage.planning import computes_on_gpu, is_stored
from tasks.stage.session import Session, current_session
from tasks.task_types.types import TASK_TYPES

PAYS_FROM = 1.5
"""Reads of each row from which storing pays: it takes one pass of the teacher, and writing the disk."""
PARTS_OF_DISK = 3
"""Divisor of the free disk: an upload to a bucket holds stored layers twice, and others need room, too."""


async def contributions_of(
    knobs: ContributionSlice, origin: str, shared: SharedArtifacts, model: Artifact | None = None
) -> Artifact:
    """Return the contribution of each layer, measured once per run for the same knobs and origin; ``model`` is that of
    an origin that is a candidate."""
    if (knobs, origin) not in shared.contributions:
        base = model or (shared.base if origin == "pretrained" else await shared.teacher)
        shown = f"layers of {origin}" if model is not None else ""
        shared.contributions[knobs, origin] = shared.begin(
            measure_contributions(knobs, base=base, rows=shared.rows, label=shown)
        )
    return await shared.contributions[knobs, origin]


async def answers_for(
    recipe: Recipe, shared: SharedArtifacts, training: Prediction | LayerDropping, layers: int = 0
) -> Artifact | None:
    """Return the predictions of the teacher, or the ensemble, on every row that students train on, computed once for
    all trainings that need the same ones; None if the teacher answers beside its students.

    ``layers`` is the student's number of layers, which patience depends on.
    """
    if recipe.task_distillation.answers == "live":
        return None
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
        shared.mixtures[knobs, mixture] = shared.begin(mixture_of(mixture, knobs, shared))
    return await shared.mixtures[knobs, mixture]


async def texts_for(recipe: Recipe, shared: SharedArtifacts, training: Prediction) -> Artifact:
    """Return the texts that the teacher writes of all training sources, written once for all students of the run."""
    knobs = TextAnswerSlice(
        **dict(recipe.generation),
        task_type=recipe.spec.kind,
        source_length=training.max_length,
        precision=training.precision,
    )
    if knobs not in shared.texts:
        shared.texts[knobs] = shared.begin(answer_texts(knobs, teacher=await shared.teacher, rows=shared.rows))
    return await shared.texts[knobs]


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
    ways, kept = recipe.task_distillation, None
    if TASK_TYPES[recipe.spec.kind].keeps_words:
        kept = KeptSlice(words=ways.kept_words, temperature=training.temperature, bits=ways.answer_bits)
    return AnswerSlice(
        task_type=recipe.spec.kind,
        max_length=training.max_length,
        precision=training.precision,
        transfer_alone=recipe.transfer is not None and recipe.transfer.alone,
        patience=None if patience is None else PatienceOf(layer_map=patience.layer_map, layers=layers),
        kept=kept,
    )


async def mixture_of(mixture: MixSlice, knobs: AnswerSlice, shared: SharedArtifacts) -> Artifact:
    """Return the mixture of all teachers' predictions, each softened at the temperature of the mixture's students."""
    said = (answers_of(number, f"teacher {number + 1}", knobs, shared) for number in range(1 + len(shared.colleagues)))
    return await mix_answers(mixture, answers=list(await asyncio.gather(*said)))


async def answers_of(number: int, shown: str, knobs: AnswerSlice, shared: SharedArtifacts) -> Artifact:
    """Return one teacher's predictions; students of all temperatures share them."""
    if (knobs, number) not in shared.answers:
        shared.answers[knobs, number] = shared.begin(asked(number, shown, knobs, shared))
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
        shared.signals[knobs] = shared.begin(signals_of(recipe, knobs, student, phase, shared, text))
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
    choice = claim_storage(
        recipe, knobs, shared, inputs, text_size(answered.read(AnswerFacts), prediction.max_length, phase)
    )
    found = await record_signals(knobs, **inputs, label=choice.label) if choice.kept else None
    choices = current_session().teacher_layers
    choices.append(choice if found is None else finished(choice, found))
    choices.sort(key=lambda one: one.label)
    return found


# --- the choice to store layers ---------------------------------------------------------------------------------------


def signal_knobs(recipe: Recipe, student: Student, phase: Intermediate) -> SignalSlice:
    """Return the knobs of the stored layers that a student's first phase would read; students with the same knobs share
    them."""
    return SignalSlice(
        task_type=recipe.spec.kind,
        layer_map=phase.matching.layer_map,
        layers=student.layers,
        hidden=phase.matching.hidden > 0,
        attention=phase.matching.attention > 0,
        max_length=phase.max_length,
        precision=phase.precision,
        signal_bits=recipe.task_distillation.signal_bits,
        transfer_alone=learns_from_transfer_alone(recipe, student),
    )


def learns_from_transfer_alone(recipe: Recipe, student: Student) -> bool:
    """Return whether a student trains on the transfer text and no training row."""
    return recipe.transfer is not None and recipe.transfer.alone and student.signal == "teacher"


def claim_storage(
    recipe: Recipe,
    knobs: SignalSlice,
    shared: SharedArtifacts,
    inputs: StageInputs,
    text: TextSize | None,
) -> TeacherLayers:
    """Return the choice for a layer map, and claim its bytes of the disk; ``text`` is the size of the rows, None in a
    plan that cannot know it."""
    reads, stored = reads_of_rows(recipe, knobs, shared, text), is_stored(record_signals, knobs, inputs)
    choice = TeacherLayers(
        label=f"{knobs.layers} layers",
        kept=False,
        why="",
        reads=None if reads is None else round(reads, 2),
        bits=knobs.signal_bits,
        sizes={} if text is None else sizes_by_bits(recipe, knobs, shared, text),
        room=room_for_layers(recipe, shared, current_session()),
    )
    against = reason_against(recipe, choice, stored=stored)
    if not against and choice.size is not None:
        shared.claimed += choice.size
        if stored and shared.free is not None:  # they had taken their bytes when the free disk was measured
            shared.free += choice.size
    return choice.replaced(kept=not against, why=against or "stored once, and read by every training")


def reason_against(recipe: Recipe, choice: TeacherLayers, *, stored: bool) -> str:
    """Return why layers are not kept; empty if they are. Those that are stored already need no room."""
    if computes_on_gpu(record_signals):
        return "a GPU runs the teacher faster than a disk reads its layers"
    if recipe.task_distillation.keep_signals == "auto":
        if choice.reads is None:
            return "decided when the rows are counted"
        if choice.reads < PAYS_FROM:
            return f"each row would be read {choice.reads:g} times, and storing pays from {PAYS_FROM:g} times on"
    if choice.size is not None and choice.size > choice.room and not stored:
        return (
            f"they take {choice.size / 1e9:.3g} GB, and there is room for {choice.room / 1e9:.3g} GB: a third of the "
            f"free disk, and at most signal_budget_gb"
        )
    return ""


def sizes_by_bits(recipe: Recipe, knobs: SignalSlice, shared: SharedArtifacts, text: TextSize) -> dict[str, int]:
    """Return the size of the stored layers in bytes, by the bits of a value."""
    mapped = layer_map(knobs.layer_map, knobs.layers, shared.layers)
    counts = len(mapped.hidden) if knobs.hidden else 0, len(mapped.attention) if knobs.attention else 0
    wide = width_and_heads_of_teacher(recipe, current_session().store, shared.base)
    return {str(bits): StorageShape(*counts, *wide, bits).bytes(text) for bits in (16, 8)}


def room_for_layers(recipe: Recipe, shared: SharedArtifacts, session: Session) -> int:
    """Return the largest size in bytes that another map's layers may have: the free disk is measured once, as it was
    before the layers that are known to be in the store, and shared by all maps of the run."""
    if shared.free is None:
        shared.free = shutil.disk_usage(session.store.workspace()).free
    budget = int(recipe.task_distillation.signal_budget_gb * 1e9)
    return max(0, min(budget, shared.free // PARTS_OF_DISK - shared.claimed))


def reads_of_rows(recipe: Recipe, knobs: SignalSlice, shared: SharedArtifacts, text: TextSize | None) -> float | None:
    """Return how often the trainings of the run read a row's own text, on average; None if that depends on the number
    of rows, and it is not known."""
    known = {one.name: one for one in recipe.planned}
    total = 0.0
    for planned in recipe.planned:
        if not isinstance(planned, DistilledCandidate):
            continue
        student = recipe.as_student(planned, depth_of(planned, known, shared.layers))
        phase = recipe.inner_phase(student)
        if phase is None or not recipe.task_distillation.can_keep(phase):
            continue
        if signal_knobs(recipe, student, phase) != knobs:
            continue
        if text is None and phase.steps is not None:
            return None
        rows = 1 if text is None else text.rows
        total += len(student.seeds) * passes(phase, rows) * share_of_own_text(recipe, student, phase, rows)
    return total


def passes(phase: Intermediate, rows: int) -> float:
    """Return how often a training passes its rows."""
    return phase.epochs if phase.steps is None else phase.steps * phase.batch_size / max(1, rows)


def share_of_own_text(recipe: Recipe, student: Student, phase: Intermediate, rows: int) -> float:
    """Return the share of a training's reads that augmentation leaves alone, at least."""
    if recipe.augmentation is None or not recipe.takes(student, "augmentation"):
        return 1.0
    some = recipe.augmentation.rows
    return 1.0 - phase.sampling.share * (1.0 if some is None else min(1.0, some / max(1, rows)))


def text_size(facts: AnswerFacts, predicted: int, phase: Intermediate) -> TextSize | None:
    """Return the size of the rows, or an upper bound if the phase reads longer rows than ``predicted`` tokens, with
    which they were counted; None if they were not counted yet."""
    if facts.tokens is None or facts.pairs is None:
        return None
    return TextSize(facts.rows, facts.tokens, facts.pairs).widened(predicted, phase.max_length, facts.truncated)


def finished(choice: TeacherLayers, artifact: Artifact) -> TeacherLayers:
    """Return a choice after its layers were computed: values that the format does not have are not stored."""
    facts = artifact.read(LayerFacts)
    return choice if facts.kept else choice.replaced(kept=False, why=facts.reason)
