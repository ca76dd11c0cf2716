"""A shape as candidates of a recipe: cut to its width and its neurons, trained with its layers, then trimmed; or taken
out of a supernet, trained, then trimmed.

Order: importance is measured on the whole depth, cuts come before the one training, and the vocabulary last, because
a teacher's answers to pieces need its tokenizer.
"""

from __future__ import annotations

from typing import Any

from tasks.recipe.candidates import DistilledCandidate, DroppedCandidate
from tasks.recipe.distillation import Prediction
from tasks.recipe.makers.candidate_knobs import TEACHER, CandidateKnobs
from tasks.recipe.makers.dropping import DroppedTraining
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.shrinking import NarrowedCandidate, PrunedCandidate, TrimmedCandidate
from tasks.recipe.makers.supernets import WHOLE, SubNetworkCandidate, SupernetKnobs
from tasks.recipe.students import Shape
from tasks.recipe.training import TaskTraining
from tasks.results.search import JudgedShape
from tasks.search.ranking import ROUND_FACTOR
from tasks.search.space import cut_names


def chain_of_shape(
    shape: JudgedShape,
    search: ShapeSearch,
    training: DroppedTraining,
    layers: int,
    seeds: tuple[int, ...],
    suffix: str = "",
    supernet: SupernetKnobs | None = None,
) -> list[CandidateKnobs]:
    """Return the candidates by whose chain a shape is made of a teacher with ``layers``; the last one is the shape.
    Shapes with the same cuts share the first ones. ``suffix`` marks the trainings of a round; with a ``supernet`` a
    shape begins with its part of that."""
    names = cut_names(float(shape.width), shape.hidden, float(shape.neurons), shape.feed_forward)
    trained = "-".join([f"l{shape.layers}", *names]) + suffix
    if supernet is None:
        made = cuts_of_shape(shape, search, seeds, names)
        origin = made[-1].name if made else TEACHER
    else:
        made = [part_of_supernet(shape, supernet, seeds, f"{trained}-of-supernet")]
        origin = made[-1].name
    made.append(trained_shape(shape, search, training, layers, seeds, trained, origin, whole=supernet is None))
    if shape.pieces != "whole":
        keep: Any = shape.pieces if shape.pieces == "used" else int(shape.pieces)
        made.append(
            TrimmedCandidate(
                name=shape.name + suffix,
                made_from=trained,
                by="vocabulary-trimming",
                keep=keep,
                max_length=training.max_length,  # ranked beside shapes with all pieces, on inputs of one length
                seeds=seeds,
            )
        )
    return made


def part_of_supernet(shape: JudgedShape, supernet: SupernetKnobs, seeds: tuple[int, ...], name: str) -> CandidateKnobs:
    """Return the candidate that is a shape with the weights of a supernet."""
    return SubNetworkCandidate(
        name=name,
        made_from=TEACHER,
        by="supernet",
        role="step",
        layers=shape.layers,
        width=float(shape.width),
        neurons=float(shape.neurons),
        supernet=supernet,
        seeds=seeds,
    )


def cuts_of_shape(
    shape: JudgedShape, search: ShapeSearch, seeds: tuple[int, ...], names: list[str]
) -> list[CandidateKnobs]:
    """Return the candidates that are cut to the width and the neurons of a shape, with the teacher's layers."""
    made: list[CandidateKnobs] = []
    origin = TEACHER
    if shape.width < WHOLE:
        origin, before = names[0], origin
        made.append(
            NarrowedCandidate(
                name=origin,
                made_from=before,
                by="width-pruning",
                role="step",
                keep=float(shape.width),
                importance=search.importance,
                max_length=search.training.max_length,
                seeds=seeds,
            )
        )
    if shape.neurons < WHOLE:
        origin, before = "-".join(names), origin
        made.append(
            PrunedCandidate(
                name=origin,
                made_from=before,
                by="neuron-pruning",
                role="step",
                keep=float(shape.neurons),
                importance=search.importance,
                max_length=search.training.max_length,
                seeds=seeds,
            )
        )
    return made


def trained_shape(
    shape: JudgedShape,
    search: ShapeSearch,
    training: DroppedTraining,
    layers: int,
    seeds: tuple[int, ...],
    name: str,
    origin: str,
    *,
    whole: bool,
) -> CandidateKnobs:
    """Return the candidate that is trained: with fewer layers where the shape has fewer and its origin the ``whole``
    depth, else distilled as it is."""
    if whole and shape.layers < layers:
        own = {knob: getattr(training, knob) for knob in DroppedTraining.model_fields}
        return DroppedCandidate(
            **own,
            name=name,
            made_from=origin,
            by="layer-dropping",
            strategy=search.strategy,
            drop=layers - shape.layers,
            seeds=seeds,
        )
    return DistilledCandidate(
        name=name,
        made_from=origin,
        by="distillation",
        shape=Shape(layers=layers) if origin == TEACHER else None,
        stages=(),
        signal=training.signal,
        prediction=as_prediction(training),
        seeds=seeds,
    )


def as_prediction(training: DroppedTraining) -> Prediction:
    """Return a training of dropped models as the second phase of a student."""
    names = [*TaskTraining.model_fields, "temperature", "hard_weight"]
    return Prediction(**{name: getattr(training, name) for name in names})


def part_of_training(training: DroppedTraining, rounds_left: int) -> DroppedTraining:
    """Return the training of a round, of which ``rounds_left`` follow: a third of the next one's steps or epochs."""
    factor = ROUND_FACTOR**rounds_left
    length: dict[str, float] = (
        {"steps": max(1, training.steps // factor)} if training.steps else {"epochs": training.epochs / factor}
    )
    return training.model_copy(update=length)


def each_once(chains: list[list[CandidateKnobs]]) -> tuple[CandidateKnobs, ...]:
    """Return the candidates of several chains, each once."""
    found: dict[str, CandidateKnobs] = {}
    for chain in chains:
        for one in chain:
            found.setdefault(one.name, one)
    return tuple(found.values())
