"""The makers of models with zeros: single weights go while a model is trained, or between the rounds of a lottery."""

from __future__ import annotations

from typing import Any

from flows.branches.candidate import Candidate, SharedArtifacts, candidate_of_seeds, label, origin_of_seed
from flows.branches.student import by_signal, knobs_with_seed, of_student
from flows.branches.teacher_signals import answers_for
from tasks.contracts import Artifact
from tasks.recipe.chains import depth_of
from tasks.recipe.makers.bits import QuantizedCandidate
from tasks.recipe.makers.candidate_knobs import TEACHER
from tasks.recipe.makers.slices import TicketSlice, WeightSlice
from tasks.recipe.makers.weights import LotteryCandidate, MaskKnobs, SparseCandidate
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Student
from tasks.shrink_model import prune_weights, train_ticket

TrainedFurther = SparseCandidate | LotteryCandidate | QuantizedCandidate
"""The knobs of models that are there, and are trained again while they become smaller."""


async def make_sparse(recipe: Recipe, planned: SparseCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate that is trained from its origin while weights of it go."""
    masks = {name: getattr(planned, name) for name in MaskKnobs.model_fields}

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        knobs = WeightSlice.model_validate({**training_of(recipe, planned, shared, base, seed), **masks})
        named = label(planned.name, seed, planned.planned_seeds)
        return await prune_weights(knobs, start=base, label=named, **await inputs_of_training(recipe, planned, shared))

    return await candidate_of_seeds(planned, one)


async def make_lottery(recipe: Recipe, planned: LotteryCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a ticket or a control after all rounds; each round is a stage, so that a stopped run goes on with the next
    one, and candidates share the rounds that are the same."""
    training = await inputs_of_training(recipe, planned, shared)

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        common = training_of(recipe, planned, shared, base, seed) | {"rewind_to": planned.rewind_to}
        named = label(planned.name, seed, planned.planned_seeds)
        shares = planned.share_of_rounds
        first = TicketSlice.model_validate(common)
        shown = f"{named} dense" if shares else named
        made = dense = await train_ticket(first, start=base, label=shown, **training)
        for number, left in enumerate(shares, 1):
            last = number == len(shares)
            own = {"left": left, "control": control_of(planned) if last else "ticket"}
            shown = named if last else f"{named} round {number}"
            knobs = TicketSlice.model_validate({**common, **own})
            made = await train_ticket(knobs, start=base, dense=dense, before=made, label=shown, **training)
        return made

    return await candidate_of_seeds(planned, one)


def control_of(planned: LotteryCandidate) -> str:
    """Return what the last round is; a mask of one round is a ticket of the first training."""
    return "ticket" if planned.control == "one-shot" else planned.control


def training_of(
    recipe: Recipe, planned: TrainedFurther, shared: SharedArtifacts, base: Artifact, seed: int
) -> dict[str, Any]:
    """Return the knobs of a training of a model that is there: those of the second phase of a student."""
    student = Student(
        name=planned.name,
        layers=depth_of(planned, shared.planned, shared.layers),
        start=TEACHER,
        stages=(),
        signal=planned.signal,
        seeds=planned.planned_seeds,
    )
    prediction = planned.prediction or recipe.task_distillation.prediction
    own = by_signal(knobs_with_seed(prediction, seed), planned.signal)
    return {**own, **of_student(recipe, student, base), "signal": planned.signal}


async def inputs_of_training(
    recipe: Recipe, planned: SparseCandidate | LotteryCandidate, shared: SharedArtifacts
) -> dict[str, Artifact]:
    """Return the inputs of a training beside the model: rows, and what it learns from."""
    if planned.signal == "labels":
        return {"rows": shared.rows}
    prediction = planned.prediction or recipe.task_distillation.prediction
    layers = depth_of(planned, shared.planned, shared.layers)
    text = {"transfer": shared.transfer} if shared.transfer is not None else {}
    answers = await answers_for(recipe, shared, prediction, layers)
    said = {} if answers is None else {"answers": answers}
    return {"rows": shared.rows, "teacher": await shared.teacher, **said, **text}
