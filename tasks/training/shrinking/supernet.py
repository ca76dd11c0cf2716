"""Training of a supernet, and what is taken out of it: one shape as a plain folder, or the scores of many.

Method: Hou et al. 2020, DynaBERT, arXiv:2004.04037: units in the order of their importance; in every step the largest
shape, the smallest and two others learn the predictions and the hidden states of the frozen model. Here the width of
the hidden states is cut, too, and compared at the dimensions that a shape has.
Shape letters: B batch, T tokens, D width, L layers, H heads, F neurons.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.methods.layers.layer_strategies import kept_layers
from tasks.methods.losses.means import Loss
from tasks.methods.pruning.neurons import feed_forward_maps, keep_neurons, neurons_to_keep
from tasks.methods.pruning.sub_networks import DRAWS, ShapeAxes, SubShape, put_in_order, sandwich
from tasks.methods.pruning.widths import heads_to_keep, narrowed, width_and_heads_of
from tasks.recipe.makers.slices import JudgedShapesSlice, ShapeSlice, SubNetworkSlice, SupernetSlice
from tasks.training.data.encoded import collate
from tasks.training.data.epochs import Epoch, Indices, planned
from tasks.training.data.rows import Task, student_rows, task_and_tokenizer
from tasks.training.distill import contributions
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.students import freeze, load_classifier, save_model
from tasks.training.models.supernet import Supernet, read_supernet
from tasks.training.objectives.capture import Capture
from tasks.training.objectives.sub_networks import SupernetObjective
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.selection import score_of_finished, scorer_of_finished
from tasks.training.shrinking.neuron_pruning import importance_of
from tasks.training.shrinking.width_pruning import KeptUnits, importance_of_stream, state_origin

SHAPE_SCORES = "shape_scores.json"


def train_in_sandwich(job: Job) -> dict[str, object]:
    """Write ``base`` as a supernet: its units in the order of their importance, trained so that every shape of the
    space answers."""
    knobs, place = job.read(SupernetSlice), device()
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, place, seed=knobs.seed).eval()
    axes = axes_of(model, knobs)
    order_units(job, knobs, task, model, tokenizer, axes)
    depth = model.config.num_hidden_layers
    measured = contributions(job)
    kept = {one: kept_layers(knobs.strategy, depth, depth - one, measured) for one in axes.layers}
    supernet = Supernet(model, kept, axes.heads)
    frozen = freeze(copy.deepcopy(model))
    facts = train(job, knobs, spec_of(job, knobs, task, tokenizer, supernet, frozen, axes), place)
    save_model(model, tokenizer, job.output)
    supernet.write(job.output)
    shapes = len(axes.layers) * len(axes.heads) * len(axes.neurons)
    return facts | {"shapes": shapes, "note": f"{shapes} shapes in one set of weights, in order by {knobs.importance}"}


def axes_of(model: Any, knobs: SupernetSlice) -> ShapeAxes:
    """Return the sizes of each axis; those of the whole model are always among them."""
    depth, heads = model.config.num_hidden_layers, width_and_heads_of(model.config)[1]
    neurons = feed_forward_maps(model)[0][0].out_features
    return ShapeAxes(
        tuple(sorted({*(one for one in knobs.layers or range(1, depth + 1) if one <= depth), depth})),
        tuple(sorted({heads, *(units_of_share(heads, share, heads_to_keep) for share in knobs.width)})),
        tuple(sorted({neurons, *(units_of_share(neurons, share, neurons_to_keep) for share in knobs.neurons)})),
    )


def units_of_share(whole: int, share: float, to_keep: Callable[[int, float], int]) -> int:
    """Return how many of ``whole`` units a share is."""
    return whole if share == 1 else to_keep(whole, share)


def order_units(job: Job, knobs: SupernetSlice, task: Task, model: Any, tokenizer: Any, axes: ShapeAxes) -> None:
    """Put neurons, heads and dimensions in the order of their importance, the most important first, in place."""
    neurons_LF = importance_of(job, knobs, task, model, tokenizer)
    stream = importance_of_stream(job, knobs, task, model, tokenizer) if len(axes.heads) > 1 else None
    keep_neurons(model, [descending(one) for one in neurons_LF])
    if stream is None:
        return
    order_D, order_LH = descending(stream.of_dimensions_D), [descending(one) for one in stream.of_heads_LH]
    width, heads = width_and_heads_of(model.config)
    fewest = axes.heads[0]
    narrower = narrowed(model, range(width // heads * fewest), [range(fewest)] * len(order_LH))
    put_in_order(model, narrower, order_D, order_LH)
    state_origin(model.config, model.config, order_D, order_LH)


def descending(importance_F: Tensor) -> list[int]:
    """Return the units from the most to the least important; of equals, the first ones first."""
    return [int(unit) for unit in torch.argsort(importance_F.double(), descending=True, stable=True)]


def spec_of(
    job: Job, knobs: SupernetSlice, task: Task, tokenizer: Any, supernet: Supernet, frozen: Any, axes: ShapeAxes
) -> TrainingSpec:
    """Return the definition of the training; embeddings are trained as a whole, because each width reads a part of
    each row."""
    rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
    encoded, place = rows.tokens(tokenizer, knobs.max_length), supernet.model.device
    store_as_multiplied(frozen, knobs.precision)
    objective = SupernetObjective(
        knobs, task, supernet, Capture(frozen, task.head, hidden=range(len(supernet.model_layers) + 1))
    )
    targets, shapes = torch.from_numpy(rows.targets_in(encoded)).to(place), list[SubShape]()
    together = rows.together(knobs.hard_weight)
    drawn = DRAWS[knobs.draw](axes, supernet.width_of(1))

    def begin(step: int, total: int) -> None:
        shapes[:] = sandwich(axes, np.random.default_rng([knobs.seed, step]), drawn)

    def loss(indices: Indices) -> Loss:
        batch = collate(indices.epoch.encoded, indices.rows_B, tokenizer.pad_token_id, place)
        return objective.loss(batch, targets[batch.at_B], shapes)

    def epoch(number: int) -> Epoch:
        return replace(planned(number, encoded, knobs, together=together), tokens_S=None)

    return TrainingSpec(modules=supernet, epoch=epoch, loss=loss, pad=tokenizer.pad_token_id, begin=begin)


def write_shape(job: Job) -> dict[str, object]:
    """Write one shape of ``supernet`` as a plain folder."""
    knobs, place = job.read(SubNetworkSlice), device()
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "supernet")
    supernet = loaded_supernet(job, task)
    shape = shape_of_knobs(supernet, knobs)
    small = supernet.cut_shape(shape)
    state_units(small.config, supernet, shape)
    save_model(small, tokenizer, job.output)
    written = load_classifier(job.output, task, place).eval()  # the folder alone has to give the judged answers
    width = supernet.width_of(shape.heads)
    return {
        "layers": shape.layers,
        "width": width,
        "heads": shape.heads,
        "neurons": shape.neurons,
        "selection_score": score_of_finished(job, knobs, task, written, tokenizer),
        "note": f"{shape.layers} layers, width {width:,} and {shape.neurons:,} neurons of a supernet",
    }


def score_shapes(job: Job) -> dict[str, object]:
    """Score shapes of ``supernet`` on the selection rows, with its weights."""
    knobs = job.read(JudgedShapesSlice)
    make_deterministic(0)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "supernet")
    supernet, scores = loaded_supernet(job, task), list[float | None]()
    score = scorer_of_finished(job, knobs, task, tokenizer)
    for number, one in enumerate(knobs.shapes, start=1):
        scores.append(score(supernet.cut_shape(shape_of_knobs(supernet, one)).eval()))
        job.progress(number, len(knobs.shapes), unit="shapes")
    (job.output / SHAPE_SCORES).write_text(json.dumps(scores))
    return {"scores": scores}


def loaded_supernet(job: Job, task: Task) -> Supernet:
    """Return the supernet that a job reads."""
    folder = job.inputs["supernet"]
    return read_supernet(load_classifier(folder, task, device()).eval(), folder)


def shape_of_knobs(supernet: Supernet, knobs: ShapeSlice) -> SubShape:
    """Return a shape as numbers of units; raise RecipeError for layers that the supernet has not learnt."""
    whole = feed_forward_maps(supernet.model)[0][0].out_features
    layers = knobs.layers or len(supernet.model_layers)
    if layers not in supernet.kept:
        raise RecipeError(
            f"the supernet contains shapes of {', '.join(map(str, sorted(supernet.kept)))} layers, and {layers} are "
            f"asked; add {layers} to its layers, or ask for fewer than the model has"
        )
    heads = units_of_share(supernet.heads, knobs.width, heads_to_keep)
    return SubShape(layers, heads, units_of_share(whole, knobs.neurons, neurons_to_keep))


def state_units(config: Any, supernet: Supernet, shape: SubShape) -> None:
    """State in a config which dimensions and heads of the widest model a sub-network has."""
    whole: KeptUnits | None = getattr(supernet.model.config, "limbeck_kept", None)
    if whole is not None:
        config.limbeck_kept = {
            "dimensions": whole["dimensions"][: supernet.width_of(shape.heads)],
            "heads": [whole["heads"][layer][: shape.heads] for layer in supernet.kept[shape.layers]],
        }
