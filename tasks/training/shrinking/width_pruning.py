"""Width pruning: the importance of every dimension of the residual stream and of every attention head on training rows,
and the model without the least important ones.

Method: Muralidharan et al. 2024 (Minitron), arXiv:2407.14679, with the first-order terms of Michel et al. 2019,
arXiv:1905.10650. The model is not trained again. Shape letters: L layers, D width, H heads, N norms, B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.pruning.importance import most_important
from tasks.methods.pruning.stream_importance import OF_HEADS, OF_STREAM, norms_of_dimensions, norms_of_heads
from tasks.methods.pruning.widths import attention_maps, heads_to_keep, narrowed, width_and_heads_of
from tasks.recipe.makers.slices import NeuronSlice, WidthSlice
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.data.rows import Task, read_rows, task_and_tokenizer
from tasks.training.finetune import labelled_loss
from tasks.training.models.students import load_classifier, save_model, tables
from tasks.training.precision import device, make_deterministic
from tasks.training.selection import score_of_finished
from tasks.training.shrinking.neuron_pruning import ImportanceOfUnits, drawn_batches, require_differences


@dataclass
class StreamImportance:
    """The importance of the dimensions of the stream [D], and of the heads of each layer [L, H]."""

    of_dimensions_D: Tensor
    of_heads_LH: Tensor


@dataclass
class Seen:
    """The tensors of one pass: the outputs of all norms of the stream, and by layer the contexts of attention."""

    states: list[Tensor] = field(default_factory=list)
    contexts: list[tuple[int, Tensor]] = field(default_factory=list)


def cut_width(job: Job) -> dict[str, object]:
    """Write ``base`` without the least important dimensions and heads; return how many stay."""
    knobs, place = job.read(WidthSlice), device()
    make_deterministic(knobs.seed)
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "base")
    model = load_classifier(job.inputs["base"], task, place).eval()
    old_width, old_heads = width_and_heads_of(model.config)
    heads = heads_to_keep(old_heads, knobs.keep)
    width = old_width // old_heads * heads
    save_model(with_fewer_heads(job, knobs, task, model, tokenizer, heads), tokenizer, job.output)
    written = load_classifier(job.output, task, place).eval()  # the folder alone has to give the judged answers
    return {
        "width": width,
        "width_before": old_width,
        "heads": heads,
        "heads_before": old_heads,
        "selection_score": score_of_finished(job, knobs, task, written, tokenizer),
        "note": f"width {width:,} of {old_width:,} and {heads} of {old_heads} heads in each layer, by "
        f"{knobs.importance}",
    }


class KeptUnits(TypedDict):
    """Dimensions, and by layer heads, of the widest model of a chain that a narrower one has."""

    dimensions: list[int]
    heads: list[list[int]]


def with_fewer_heads(job: Job, knobs: NeuronSlice, task: Task, model: Any, tokenizer: Any, heads: int) -> Any:
    """Return the model with ``heads`` heads in each layer and the width that goes with them."""
    width, before = width_and_heads_of(model.config)
    found = importance_of_stream(job, knobs, task, model, tokenizer)
    kept_D = most_important(found.of_dimensions_D, width // before * heads)
    kept_LH = [most_important(importance_H, heads) for importance_H in found.of_heads_LH]
    with torch.no_grad():
        small = narrowed(model, kept_D, kept_LH)
    state_origin(small.config, model.config, kept_D, kept_LH)
    return small


def state_origin(config: Any, before: Any, kept_D: Sequence[int], kept_LH: Sequence[Sequence[int]]) -> None:
    """State in a config which dimensions and heads of the widest model of the chain it has, so that its numbers can be
    found in the others; ``before`` is the config of the model whose units are kept."""
    width, heads = width_and_heads_of(before)
    known: KeptUnits | None = getattr(before, "limbeck_kept", None)
    whole = known or KeptUnits(dimensions=list(range(width)), heads=[list(range(heads)) for _ in kept_LH])
    config.limbeck_kept = KeptUnits(
        dimensions=[whole["dimensions"][number] for number in kept_D],
        heads=[[own[head] for head in kept] for own, kept in zip(whole["heads"], kept_LH, strict=True)],
    )


def importance_of_stream(
    job: Job, knobs: ImportanceOfUnits, task: Task, model: Any, tokenizer: Any
) -> StreamImportance:
    """Return the importance of dimensions and heads by the measure that the knobs name."""
    if knobs.importance == "random":
        return drawn_importance(model, torch.Generator().manual_seed(knobs.seed))
    if knobs.importance == "magnitude":
        return importance_of_weights(model)
    rows = read_rows(job.inputs["rows"], "train", task.head)
    encoded = rows.tokens(tokenizer, knobs.max_length)
    loss = labelled_loss(model, task, rows, encoded, tokenizer.pad_token_id)
    batches = drawn_batches(encoded, rows, knobs)
    return importance_on_rows(knobs.importance, model, loss, encoded, batches, tokenizer.pad_token_id)


def drawn_importance(model: Any, generator: torch.Generator) -> StreamImportance:
    """Return a random importance: the control that every other importance has to beat."""
    width, heads = width_and_heads_of(model.config)
    heads_LH = torch.rand(len(attention_maps(model)), heads, generator=generator)
    return StreamImportance(torch.rand(width, generator=generator), heads_LH)


def importance_of_weights(model: Any) -> StreamImportance:
    """Return the importance by the size of weights alone: of the embeddings, attention and feed-forward maps."""
    maps, (width, heads) = attention_maps(model), width_and_heads_of(model.config)
    linear = [one for one in model.base_model.modules() if isinstance(one, nn.Linear)]
    outputs = {layer.output for layer in maps}
    reads = [one.weight for one in linear if one.in_features == width and one not in outputs]
    inputs = {one for layer in maps for one in layer.inputs}
    writes = [one.weight for one in linear if one.out_features == width and one not in inputs]
    writes += [table.T for table in tables(model).values() if table.shape[1] == width]
    of_heads = [norms_of_heads(layer.inputs[2].weight, layer.output.weight, heads) for layer in maps]
    of_dimensions_D = norms_of_dimensions(torch.cat([one.detach() for one in reads]), torch.cat(writes, 1).detach())
    return StreamImportance(of_dimensions_D.cpu(), torch.stack(of_heads).detach().cpu())


def importance_on_rows(
    name: str, model: Any, loss: Any, encoded: Encoded, batches: Sequence[np.ndarray], pad: int
) -> StreamImportance:
    """Return the importance summed over the rows of some batches; one pass backwards of the sum of the losses gives the
    gradients of every row, because rows do not mix; where a loss compares them, of all that depends on a row."""
    whole, (width, heads) = Epoch(0, encoded, []), width_and_heads_of(model.config)
    heads_LH, dimensions_D = torch.zeros(len(attention_maps(model)), heads), torch.zeros(width)
    for batch in batches:
        with stream_of(model) as seen, torch.enable_grad():
            total = loss(Indices(whole, batch)).mean() * len(batch)
        flat = [*seen.states, *(context for _, context in seen.contexts)]
        gradients = torch.autograd.grad(total, flat)
        mask_BT = collate(encoded, batch, pad, model.device).mask_BT
        states, contexts = gradients[: len(seen.states)], gradients[len(seen.states) :]
        own = [one.detach() for one in seen.states]
        dimensions_D += OF_STREAM[name](own, states, mask_BT).cpu()
        for (layer, context_BTC), gradients_BTC in zip(seen.contexts, contexts, strict=True):
            heads_LH[layer] += OF_HEADS[name](context_BTC.detach(), gradients_BTC, mask_BT, heads).cpu()
    if not bool(torch.isfinite(dimensions_D).all() and torch.isfinite(heads_LH).all()):
        raise ModelError("the importance of dimensions is not finite; the model diverged: train it with a lower rate")
    require_differences(bool(dimensions_D.any()))
    return StreamImportance(dimensions_D, heads_LH)


@contextmanager
def stream_of(model: Any) -> Iterator[Seen]:
    """Record the outputs of the norms of the residual stream, and the contexts that the output maps of attention
    read."""
    seen, (width, _) = Seen(), width_and_heads_of(model.config)

    def context_of(layer: int) -> Any:
        return lambda module, inputs: seen.contexts.append((layer, inputs[0]))

    def keep_state(module: nn.Module, inputs: Any, output: Tensor) -> None:
        seen.states.append(output)

    norms = [one for one in model.base_model.modules() if isinstance(one, nn.LayerNorm)]
    hooks = [norm.register_forward_hook(keep_state) for norm in norms if tuple(norm.normalized_shape) == (width,)]
    hooks += [
        layer.output.register_forward_pre_hook(context_of(number)) for number, layer in enumerate(attention_maps(model))
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
