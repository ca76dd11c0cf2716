"""How functions and classes of ``tasks/methods`` are called with the arguments that stand in the golden files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tasks.methods.layers.layer_maps import LayerMap
from tasks.methods.layers.layer_similarity import linear_cka_of, moments_of
from tasks.methods.losses.means import mean_of
from tasks.methods.pruning.importance import most_important, norms_of_weights
from tasks.methods.pruning.neurons import feed_forward_maps
from tasks.methods.pruning.sub_networks import SubShape
from tasks.methods.pruning.weight_masks import masks_of
from tests.methods.oracles import ROOT

METHODS = ROOT / "tasks" / "methods"


def as_given(value: Any) -> Any:
    """Return a stored tensor: whole numbers as they are, all others in float64."""
    tensor = torch.tensor(value, dtype=torch.float64)
    return tensor.long() if whole(value) else tensor


def whole(value: Any) -> bool:
    return all(map(whole, value)) if isinstance(value, list) else isinstance(value, int)


def as_stored(made: Any) -> Any:
    """Return a value in the form in which it is stored."""
    if isinstance(made, list):
        return [as_stored(one) for one in made]
    if isinstance(made, tuple):
        return list(made)
    if isinstance(made, LayerMap):
        return [list(made.hidden), list(made.attention)]
    if isinstance(made, Tensor) and made.dtype == torch.bool:
        return made.int().tolist()
    return made.tolist() if hasattr(made, "tolist") else made


# --- losses and layers ---


def projected(
    function: Callable[..., Tensor], weight_ED: Tensor | None = None, bias_E: Tensor | None = None, **given: Tensor
) -> Tensor:
    """Hand the projection over as a module whose parameters are the given tensors."""
    if weight_ED is None:
        return function(**given)
    return function(**given, projection=lambda states: nn.functional.linear(states, weight_ED, bias_E))


def over_processes(parts: list[list[float]]) -> float:
    """Let every process take its mean, and average them as gradients are averaged."""
    everybody = torch.tensor(max(1, sum(map(len, parts))) / len(parts), dtype=torch.float64)
    losses = [mean_of(torch.tensor(part, dtype=torch.float64).sum(), len(part)) for part in parts]
    return float(sum(loss.mean(lambda count: everybody) for loss in losses)) / len(parts)


def in_two_batches(first_ND: Tensor, second_NE: Tensor, cut: int) -> float:
    return linear_cka_of(moments_of(first_ND[:cut], second_NE[:cut]) + moments_of(first_ND[cut:], second_NE[cut:]))


def with_growth(
    head: Any, states_BD: Tensor, weight_1D: Tensor, bias_1: Tensor, growth_1: Tensor, deviation: float
) -> Tensor:
    """Put the given tensors in place of a head's parameters."""
    parameters = {"weight": weight_1D, "bias": bias_1, "growth": growth_1}
    return functional_call(head(nn.Linear(weight_1D.shape[1], 1), 0.0, deviation), parameters, states_BD)


# --- what stays ---


def of_tensors(function: Callable[..., Any], of: str, dtype: torch.dtype = torch.float64) -> Callable[..., Any]:
    """Hand over lists of numbers as tensors."""
    return lambda **given: function(**{**given, of: [torch.tensor(one, dtype=dtype) for one in given[of]]})


def masked(mask: Any, weight_OI: Tensor, share: float, scores_OI: Tensor | None = None) -> Tensor:
    """Let a share of the weights stay, as ``training/shrinking`` does; the scores are the given tensor."""
    module = mask(weight_OI.detach(), None if scores_OI is None else scores_OI.detach())
    module.mask.copy_(masks_of([weight_OI.abs() if scores_OI is None else scores_OI], share, "matrix")[0])
    return functional_call(module, {} if scores_OI is None else {"scores": scores_OI}, weight_OI)


def pruned_blocks(
    keep: Callable[..., None], states_ND: Tensor, first_LFD: Tensor, bias_LF: Tensor, second_LDF: Tensor, count: int
) -> Tensor:
    """Prune the feed-forward blocks of a BERT with these weights, and return what they make of states."""
    from transformers import BertConfig, BertModel

    layers, neurons, width = first_LFD.shape
    shape = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": neurons, "vocab_size": 2}
    model = BertModel(BertConfig(**shape, num_attention_heads=1)).double()
    kept_LF = []
    for (first, second), *given in zip(feed_forward_maps(model), first_LFD, bias_LF, second_LDF, strict=True):
        first.weight.data, first.bias.data, second.weight.data = given
        nn.init.zeros_(second.bias)
        kept_LF.append(most_important(norms_of_weights(first.weight, second.weight), count))
    keep(model, kept_LF)
    assert model.config.intermediate_size == count
    return torch.stack([second(first(states_ND).relu()) for first, second in feed_forward_maps(model)])


def heads_that_stay(
    function: Callable[..., Any], importance_LH: Any, sounding_LH: Any, share: float, scope: str
) -> Any:
    return function(torch.tensor(importance_LH), torch.tensor(sounding_LH, dtype=torch.bool), share, scope)


# --- steps of an optimizer, and of grids ---


def three_steps(
    optimizer_class: Any,
    matrix_OI: Tensor,
    zeros_OI: Tensor,
    bias_O: Tensor,
    gradients_SW: Tensor,
    weight_decay: float,
    grad_scale: float | None = None,
    **knobs: Any,
) -> Tensor:
    """Return all weights after each step, the bias in a group that is neither decayed nor adapted."""
    weights = [nn.Parameter(one) for one in (matrix_OI, zeros_OI, bias_O)]
    groups = [{"params": weights[:2]}, {"params": weights[2:], "weight_decay": 0.0, "adapted": False}]
    optimizer, made = optimizer_class(groups, weight_decay=weight_decay, **knobs), []
    optimizer.grad_scale = None if grad_scale is None else torch.tensor(grad_scale)
    for gradients_W in gradients_SW:
        for weight, part in zip(weights, gradients_W.split([one.numel() for one in weights]), strict=True):
            weight.grad = part.view(weight.shape)
        optimizer.step()
        made.append(torch.cat([one.detach().flatten() for one in weights]))
    return torch.stack(made)


def on_grid(grid: Any, weight_OI: Tensor, **knobs: Any) -> Tensor:
    """Round a matrix to a grid, with its own steps or those that are given."""
    steps = {name: knobs.pop(name) for name in ("step",) if name in knobs}
    return functional_call(grid(weight_OI.detach(), **knobs), steps, weight_OI)


OWN_WAY: dict[str, Callable[..., Callable[..., Any]]] = {
    "hidden_states.hidden_state_loss": lambda function: partial(projected, function),
    "hidden_states.hidden_state_loss_paper": lambda function: partial(projected, function),
    "attention_scores.attention_score_loss": lambda function: (
        lambda far_1TT=None, **given: function(**given, far_1TT=None if far_1TT is None else far_1TT.bool())
    ),
    "attention_distributions.log_shares": lambda function: (
        lambda kept_BT, **given: function(**given, kept_BT=kept_BT.bool())
    ),
    "in_batch.in_batch_loss": lambda function: (
        lambda is_second_B, answers_B, **given: function(
            **given, is_second_B=is_second_B.bool(), answers_B=answers_B.bool()
        )
    ),
    "means.mean_of": lambda function: over_processes,
    "layer_similarity.linear_cka_of": lambda function: in_two_batches,
    "value_head.ValueHead": lambda head: partial(with_growth, head),
    "importance.most_important": lambda function: (
        lambda importance_F, count: function(torch.tensor(importance_F, dtype=torch.float64), count)
    ),
    "neurons.keep_neurons": lambda function: partial(pruned_blocks, function),
    "silent_heads.kept_heads": lambda function: partial(heads_that_stay, function),
    "sub_networks.flops_of_token": lambda function: lambda head_size, **sizes: function(SubShape(**sizes), head_size),
    "tickets.ticket": lambda function: of_tensors(function, "trained"),
    "weight_masks.largest": lambda function: of_tensors(function, "scores"),
    "weight_masks.masks_of": lambda function: of_tensors(function, "scores"),
    "weight_masks.pressure": lambda function: lambda first_OI, second_OI: function([first_OI, second_OI]),
    "weight_masks.share_above": lambda function: of_tensors(function, "scores"),
    "weight_masks.WeightMask": lambda mask: partial(masked, mask),
    "lamb.Lamb": lambda optimizer: partial(three_steps, optimizer),
    "grids.of_each_text": lambda function: lambda states, mask_BT=None: function(states, mask_BT),
    "grids.step_and_zero": lambda function: lambda low, high: torch.stack(function(low, high)),
    "grids.OutputGrid": lambda grid: lambda weight_OI, largest: grid(largest)(weight_OI),
    "learned_steps.LearnedGrid": lambda grid: partial(on_grid, grid),
    "ternary.TernaryGrid": lambda grid: grid(),
    "sentence_order.pieces": lambda function: (
        lambda **given: function(**{key: one.numpy() for key, one in given.items()})
    ),
    "word_vectors.nearest_words": lambda function: (
        lambda vectors_VE, rows, k: function(vectors_VE.numpy(), rows.numpy(), k)
    ),
}
"""Functions and classes that are not simply called by the names of their arguments."""


def called(of: str) -> Callable[..., Any]:
    """Return what calls a function of the product with stored arguments."""
    method, name = of.split(".")
    [room] = [path.parent.name for path in METHODS.rglob(f"{method}.py")]
    function = getattr(import_module(f"tasks.methods.{room}.{method}"), name)
    return OWN_WAY.get(of, lambda plain: plain)(function)
