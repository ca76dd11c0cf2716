"""Pruning of single weights while a model is trained, on the teacher's predictions or on labels.

Methods: Zhu, Gupta 2017, arXiv:1710.01878 (magnitude, with a cubic schedule); Sanh et al. 2020, arXiv:2005.07683
(movement); Mishra et al. 2021, arXiv:2104.08378 (two of every four weights). The result is a plain folder in which the
weights that went are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tasks.engine.job import Job
from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_dropping import encoder_layers
from tasks.methods.losses.means import Loss, mean_of
from tasks.methods.pruning.semi_structured import GROUP, two_of_four
from tasks.methods.pruning.weight_masks import LAST_THRESHOLD, WeightMask, cubic, masks_of, pressure, share_above
from tasks.recipe.makers.slices import WeightSlice
from tasks.recipe.slices import PredictionSlice
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.epochs import Epoch, Indices, planned
from tasks.training.data.rows import Task, read_rows, student_rows, task_and_tokenizer
from tasks.training.distill import answered_loss, augmented_epochs, pair_of, substitutes
from tasks.training.finetune import labelled_loss
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.students import load_classifier, save_model, set_dropout
from tasks.training.precision import device, make_deterministic, store_as_multiplied
from tasks.training.selection import selector


def prune_while_training(job: Job) -> dict[str, object]:
    """Write ``start`` trained, with zeros; return how many weights stay."""
    knobs = job.read(WeightSlice)
    make_deterministic(knobs.seed)
    training = model_in_training(job, knobs)
    pruning = PATTERNS[knobs.pattern](training.model, knobs)
    spec = TrainingSpec(
        modules=training.model,
        epoch=training.epoch,
        loss=lambda indices: training.loss(indices) + pruning.loss(),
        pad=training.tokenizer.pad_token_id,
        begin=pruning.begin,
        after_step=(pruning.after_step,),
    )
    with training.task.head.start_from_labels(training.model, training.labels):
        facts = train(job, knobs, spec, training.model.device)
    pruning.finish()
    return facts | saved_with_zeros(job, knobs, training, f"by {knobs.scores}{pruning.note}")


@dataclass(frozen=True)
class ModelInTraining:
    """A model with the rows, the loss and the score of a training on a teacher's predictions or on labels."""

    task: Task
    model: Any
    tokenizer: Any
    epoch: Callable[[int], Epoch]
    loss: Callable[[Indices], Loss]
    labels: Callable[[], Any]


def model_in_training(job: Job, knobs: PredictionSlice) -> ModelInTraining:
    """Load ``start`` and all that its training needs."""
    place = device()
    if knobs.signal == "teacher":
        pair = pair_of(job, knobs, place)
        task, model, tokenizer = pair.task, pair.student, pair.tokenizer
        store_as_multiplied(pair.teacher, knobs.precision)
        rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
        augmented = AugmentedRows(rows, tokenizer, knobs.max_length, knobs.seed, knobs.sampling, substitutes(job))
        epoch = augmented_epochs(augmented, knobs, together=rows.together(knobs.hard_weight))
        loss = answered_loss(job, knobs, pair, augmented)
    else:
        task, tokenizer = task_and_tokenizer(job, knobs.task_type, "start")
        model = load_classifier(job.inputs["start"], task, place, seed=knobs.seed)
        rows = read_rows(job.inputs["rows"], "train", task.head)
        encoded = rows.tokens(tokenizer, knobs.max_length)
        loss, together = labelled_loss(model, task, rows, encoded, tokenizer.pad_token_id), rows.together()

        def epoch(number: int) -> Epoch:
            return planned(number, encoded, knobs, together=together)

    set_dropout(model, knobs.dropout)
    return ModelInTraining(
        task, model, tokenizer, epoch, loss, lambda: read_rows(job.inputs["rows"], "train", task.head).labels_N
    )


def matrices_of(model: Any) -> list[nn.Linear]:
    """Return the linear maps of all layers, shared ones once; raise ModelError for a model that has none."""
    found = [module for layer in encoder_layers(model) for module in layer.modules() if isinstance(module, nn.Linear)]
    if not found:
        raise ModelError(
            f"weights of a model of type {model.config.model_type} cannot be pruned: its layers have no linear maps; "
            "drop layers instead"
        )
    return list(dict.fromkeys(found))


class Pruning:
    """The masks of a model in training; ``begin``, ``loss`` and ``after_step`` are the loop's."""

    note = ""
    """What is said of the places of the zeros."""

    def __init__(self, model: Any, knobs: WeightSlice) -> None:
        self.knobs = knobs
        self.maps: list[Any] = list(matrices_of(model))
        self.total, self.step = 0, 0
        generator = torch.Generator().manual_seed(knobs.seed)
        for matrix in self.maps:
            mask = WeightMask(matrix.weight.detach(), self.first_scores(matrix.weight, generator))
            if knobs.scores == "random" and mask.scores is not None:
                mask.scores.requires_grad_(False)
            parametrize.register_parametrization(matrix, "weight", mask)
        self.masks: list[Any] = [matrix.parametrizations.weight[0] for matrix in self.maps]

    def first_scores(self, weight: Tensor, generator: torch.Generator) -> Tensor | None:
        """Return the scores of a matrix before the first step; None where its weights are their own scores."""
        if self.knobs.scores == "magnitude":
            return None
        if self.knobs.scores == "random":
            return torch.rand(weight.shape, generator=generator).to(weight)
        return torch.zeros_like(weight)

    def begin(self, step: int, total: int) -> None:
        """Learn the number of a step and of all steps."""
        self.step, self.total = step, total
        if not self.last_step > self.first_step:
            raise RecipeError(
                f"with {total:,} steps, all weights would go at step {self.last_step:,}; give the training more steps, "
                f"or begin and end further apart"
            )

    @property
    def first_step(self) -> int:
        """The step after which the first weight goes."""
        return int(self.knobs.begin * self.total)

    @property
    def last_step(self) -> int:
        """The step after which the last weight goes."""
        return round(self.knobs.end * self.total)

    def scores(self) -> list[Tensor]:
        """Return the scores by which weights are ranked."""
        if self.knobs.scores == "magnitude":
            return [matrix.parametrizations.weight.original.abs() for matrix in self.maps]
        return [mask.scores for mask in self.masks]

    @property
    def scale(self) -> float:
        """The number of times that scores learn faster than the parameters that hold them: one optimizer trains all."""
        return self.knobs.score_rate / self.knobs.learning_rate

    def loss(self) -> Loss:
        """Return the pressure of soft movement, which grows with its threshold; nothing for other scores.

        It is divided by the scale, so that the parameters get the gradients of the scores.
        """
        if self.knobs.scores != "soft-movement":
            return Loss()
        share = self.ramp(self.step, 0.0, 1.0)
        held = pressure([self.scale * scores for scores in self.scores()])
        return (self.knobs.pressure * share / self.scale) * mean_of(held, 1)

    def ramp(self, step: int, first: float, last: float) -> float:
        """Return a value of a step that goes from ``first`` to ``last`` while weights go."""
        return cubic(step, self.first_step, self.last_step, first, last)

    def after_step(self, step: int) -> None:
        """Choose the weights anew where that is due."""
        due = self.first_step < step < self.last_step and step % self.knobs.every == 0
        if not due and step != self.last_step:
            return
        scores = self.scores()
        share = self.ramp(step, 1.0, self.knobs.keep)
        if self.knobs.scores == "soft-movement" and step < self.last_step:
            threshold = self.ramp(step, 0.0, LAST_THRESHOLD)
            share = max(self.knobs.keep, share_above([self.scale * one for one in scores], threshold))
        for mask, chosen in zip(self.masks, masks_of(scores, share, self.knobs.scope), strict=True):
            mask.mask.copy_(chosen)

    def finish(self) -> None:
        """Write the zeros into the weights, and forget masks and scores."""
        for matrix in self.maps:
            parametrize.remove_parametrizations(matrix, "weight", leave_parametrized=True)


class PatternPruning(Pruning):
    """Masks that end in the pattern 2:4: until then, weights go that are among the two smallest of their group."""

    note = ", two of every four in a row"

    def __init__(self, model: Any, knobs: WeightSlice) -> None:
        divided = next((one for one in matrices_of(model) if one.in_features % GROUP), None)
        if divided is not None:
            raise ModelError(
                f"pattern 2:4 needs rows of whole groups of {GROUP} weights, and a linear map of this "
                f"{model.config.model_type} has {divided.in_features} inputs; use the pattern unstructured"
            )
        super().__init__(model, knobs)

    def scores(self) -> list[Tensor]:
        """Return the scores by which weights are ranked: those that the pattern keeps are above all others, so that
        nothing else is left where half of the weights stays."""
        return [one.masked_fill(two_of_four(one), torch.inf) for one in super().scores()]


PATTERNS = {"unstructured": Pruning, "2:4": PatternPruning}
"""Where zeros may stand, by the name in a recipe."""


def saved_with_zeros(job: Job, knobs: PredictionSlice, training: ModelInTraining, how: str) -> dict[str, object]:
    """Save a model with zeros as a plain folder; return its facts, counted in the file that was written."""
    model = training.model
    save_model(model, training.tokenizer, job.output)
    written = load_classifier(job.output, training.task, model.device).eval()
    held = read_rows(job.inputs["rows"], "selection", training.task.head)
    encoded = held.tokens(training.tokenizer, knobs.max_length)
    score = selector(written, training.task, held, encoded, training.tokenizer.pad_token_id, knobs)
    of_layers = zeros_and_size([matrix.weight for matrix in matrices_of(written)])
    zeros, size = zeros_and_size(list(written.parameters()))
    left, prunable = of_layers[1] - of_layers[0], of_layers[1]
    return {
        "weights_left": left,
        "weights_before": prunable,
        "nonzero_share": (size - zeros) / size,
        "selection_score": None if score is None else score(),
        "note": f"{left:,} of {prunable:,} weights of the layers' matrices are not 0, {how}",
    }


def zeros_and_size(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Return the number of zeros, and of all numbers."""
    return sum(int((one == 0).sum()) for one in tensors), sum(one.numel() for one in tensors)
