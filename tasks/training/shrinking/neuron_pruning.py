"""Neuron pruning: the importance of every neuron of the feed-forward blocks on training rows, and the model without the
least important ones.

Methods: Molchanov et al. 2019, arXiv:1906.10771; Hou et al. 2020 (DynaBERT), arXiv:2004.04037. The model is not trained
again. Shape letters: L blocks, F neurons, B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.pruning.importance import OF_ROWS, OF_WEIGHTS, OfBatch, most_important
from tasks.methods.pruning.neurons import feed_forward_maps, keep_neurons, neurons_to_keep
from tasks.recipe.makers.slices import NeuronSlice, SupernetSlice
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.epochs import Epoch, Indices, batches_of_rows
from tasks.training.data.rows import Rows, Task, read_rows, task_and_tokenizer
from tasks.training.finetune import labelled_loss
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import score_of_finished

BATCH, TOKENS = 32, 4096
"""Rows and tokens of one pass."""
ImportanceOfUnits = NeuronSlice | SupernetSlice
"""Knobs of a measurement of importance."""


def prune_neurons(job: Job) -> dict[str, object]:
    """Write ``base`` without the least important neurons of each block; return how many stay."""
    knobs = job.read(NeuronSlice)
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, device()).eval()
    before = feed_forward_maps(model)[0][0].out_features
    count = neurons_to_keep(before, knobs.keep)
    importance_LF = importance_of(job, knobs, task, model, tokenizer)
    keep_neurons(model, [most_important(importance_F, count) for importance_F in importance_LF])
    save_model(model, tokenizer, job.output)
    return {
        "neurons": count,
        "neurons_before": before,
        "selection_score": score_of_finished(job, knobs, task, model, tokenizer),
        "note": f"{count:,} of {before:,} neurons in each layer, by {knobs.importance}",
    }


def importance_of(job: Job, knobs: ImportanceOfUnits, task: Task, model: Any, tokenizer: Any) -> list[Tensor]:
    """Return the importance of the neurons of each block, L of [F]."""
    if knobs.importance in OF_WEIGHTS:
        generator = torch.Generator().manual_seed(knobs.seed)
        measure = OF_WEIGHTS[knobs.importance]
        return [
            measure(first.weight.cpu(), second.weight.cpu(), generator) for first, second in feed_forward_maps(model)
        ]
    rows = read_rows(job.inputs["rows"], "train", task.head)
    encoded = rows.tokens(tokenizer, knobs.max_length)
    loss = labelled_loss(model, task, rows, encoded, tokenizer.pad_token_id)
    batches = drawn_batches(encoded, rows, knobs)
    return measured_on(OF_ROWS[knobs.importance], model, loss, encoded, batches, tokenizer.pad_token_id)


def drawn_batches(encoded: Encoded, rows: Rows, knobs: ImportanceOfUnits) -> list[np.ndarray]:
    """Return batches of drawn rows; where a loss reads the two texts of a pair, of drawn pairs."""
    together = rows.together()
    some = drawn_rows(encoded, len(rows) if together is None else len(together) - 1, knobs)
    return batches_of_rows(encoded, some, size=BATCH, tokens=TOKENS, together=together)


def drawn_rows(encoded: Encoded, rows: int, knobs: ImportanceOfUnits) -> np.ndarray:
    """Return the numbers of drawn rows [K], sorted; of rows that are read in windows, those of windows in which
    anything is answered, whichever row they are of."""
    legal = np.arange(rows)
    windows = encoded.windows
    if windows is not None and windows.unit_S is not None and encoded.written is None:
        window_S = np.repeat(np.arange(len(encoded.lengths_N)), encoded.lengths_N)
        legal = np.unique(window_S[windows.unit_S >= 0])
    return np.sort(legal[np.random.default_rng(knobs.seed).permutation(len(legal))[: knobs.rows]])


def measured_on(
    measure: OfBatch, model: Any, loss: Any, encoded: Encoded, batches: Sequence[np.ndarray], pad: int
) -> list[Tensor]:
    """Return the importance of the neurons of each block, L of [F], summed over the rows of some batches.

    One pass backwards of the sum of the losses gives the gradients of every row, because rows do not mix; where a loss
    compares them, of all that depends on a row.
    """
    whole = Epoch(0, encoded, [])
    sums_LF = [torch.zeros(first.out_features) for first, _ in feed_forward_maps(model)]
    for batch in batches:
        with activations_of(model) as seen, torch.enable_grad():
            total = loss(Indices(whole, batch)).mean() * len(batch)
        flat = [(block, each) for block, found in enumerate(seen) for each in found]
        gradients = torch.autograd.grad(total, [each for _, each in flat])
        mask_BT = collate(encoded, batch, pad, model.device).mask_BT
        for (block, activations_BTF), gradients_BTF in zip(flat, gradients, strict=True):
            sums_LF[block] += measure(activations_BTF.detach(), gradients_BTF, mask_BT).cpu()
    if not all(bool(torch.isfinite(one).all()) for one in sums_LF):
        raise ModelError("the importance of neurons is not finite; the model diverged: train it with a lower rate")
    require_differences(any(bool(one.any()) for one in sums_LF))
    return sums_LF


def require_differences(found: bool) -> None:
    """Raise ModelError where nothing is important: units that stay would be the first ones, and not chosen."""
    if not found:
        raise ModelError(
            "no unit changes the loss on the training rows, whose labels teach nothing here; set importance: "
            "activation, or magnitude"
        )


@contextmanager
def activations_of(model: Any) -> Iterator[list[list[Tensor]]]:
    """Record the activations [B, T, F] that the second map of each block reads; a shared block has several."""
    maps = feed_forward_maps(model)
    seen: list[list[Tensor]] = [[] for _ in maps]

    def recorder(block: int) -> Any:
        def record(module: Any, inputs: tuple[Tensor, ...]) -> None:
            seen[block].append(inputs[0])

        return record

    hooks = [second.register_forward_pre_hook(recorder(block)) for block, (_, second) in enumerate(maps)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
