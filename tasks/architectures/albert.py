"""ALBERT (Lan et al. 2019, arXiv:1909.11942): layers are passes through shared weights, and embeddings are
factorised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures import ModelConfig
from tasks.architectures.architecture import Architecture, as_bias
from tasks.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor


def no_more_groups_than_turns(config: Any, kept: Sequence[int]) -> None:
    """Limit the number of groups of shared weights to the number of layers."""
    config.num_hidden_groups = min(config.num_hidden_groups, len(kept))


def groups(config: ModelConfig, layers: int) -> int:
    """Return the number of groups of shared weights, among which all layers are divided."""
    return config.get("num_hidden_groups") or 1


def keep_turns(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Reduce the number of passes; the model has no layers of its own to delete, only groups that no kept layer uses.

    Raises ModelError if the remaining layers would be divided among the groups in another way.
    """
    depth, groups = int(model.config.num_hidden_layers), int(model.config.num_hidden_groups)
    used = [int(index / (depth / groups)) for index in kept]
    left = sorted(set(used))
    rebuilt = [left[int(turn / (len(kept) / len(left)))] for turn in range(len(kept))]
    if rebuilt != used:
        raise ModelError(
            f"this ALBERT shares {groups} groups among {depth} layers and cannot keep layers {list(kept)}; "
            "keep the same number of layers from each group"
        )
    modules = [stack[group] for group in left]
    del stack[:]
    stack.extend(modules)
    model.config.num_hidden_groups = len(left)


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of ALBERT's masked-LM head."""
    logits_NV: Tensor = model.predictions(states_ND)
    return logits_NV


ALBERT = Architecture(
    feed_forward=("albert_layers.0.ffn", "albert_layers.0.ffn_output"),
    follow=no_more_groups_than_turns,
    distinct_layers=groups,
    layers=("encoder.albert_layer_groups",),
    keep_layers=keep_turns,
    on_dropping="ALBERT's layers share their weights: dropping layers repeats them fewer times, which saves time but "
    "no parameters",
    plain=True,
    always_widens=True,
    word_head=words,
    export_mask=as_bias,
)
