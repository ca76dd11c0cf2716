"""A model with some of its pieces alone: rows of the word embeddings, and the numbers of special tokens.

Source: Abdaoui et al. 2020, arXiv:2010.05609. Shape letters: V pieces, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError


def keep_pieces(model: Any, kept: Sequence[int]) -> None:
    """Keep these rows of the word embeddings, in order, and renumber the special tokens of the config, and of the
    settings by which a model writes."""
    table, new_ids = model.get_input_embeddings(), {old: new for new, old in enumerate(kept)}
    pad, config = model.config.pad_token_id, model.config
    if pad is not None and architecture_of(config).reserved_positions and new_ids.get(pad) != pad:
        raise ModelError(
            f"a model of type {config.model_type} counts positions from its padding token, whose number {pad} would "
            "change; this vocabulary cannot be trimmed"
        )
    chosen_V = torch.tensor(kept, device=table.weight.device)
    rows_VD = table.weight.detach()[chosen_V].clone()
    smaller = nn.Embedding.from_pretrained(rows_VD, freeze=False, padding_idx=new_ids.get(pad))
    keep_answered_pieces(model, table, smaller, chosen_V)
    model.set_input_embeddings(smaller)
    config.vocab_size = len(kept)
    for settings in filter(None, (config, getattr(model, "generation_config", None))):
        for name, old in list(settings.to_dict().items()):
            if name.endswith("_token_id") and isinstance(old, list):  # several ends of a text
                setattr(settings, name, [new_ids[one] for one in old if one in new_ids])
            elif name.endswith("_token_id") and old in new_ids:
                setattr(settings, name, new_ids[old])


def keep_answered_pieces(model: Any, table: nn.Embedding, smaller: nn.Embedding, chosen_V: Tensor) -> None:
    """Keep these rows of the map that answers about the vocabulary, if the model has one, in place; it shares the
    weights of ``smaller`` where it shared those of ``table``. Raises ModelError for a model with a further table of its
    vocabulary."""
    head = model.get_output_embeddings()
    if head is None:
        return
    known = [table.weight, head.weight, head.bias]
    further = [
        name
        for name, value in model.named_parameters()
        if table.num_embeddings in value.shape and not any(value is one for one in known)
    ]
    if further:
        raise ModelError(
            f"a model of type {model.config.model_type} has a further table of its vocabulary ({further[0]}), so its "
            "vocabulary cannot be trimmed; prune neurons or drop layers instead"
        )
    tied, bias = head.weight is table.weight, head.bias
    head.weight = smaller.weight if tied else nn.Parameter(head.weight.detach()[chosen_V].clone())
    head.out_features = len(chosen_V)
    if bias is None:
        return
    fewer = nn.Parameter(bias.detach()[chosen_V].clone())
    for module in model.modules():  # the bias stands in the map, and in several families also beside it
        for name, value in list(module.named_parameters(recurse=False)):
            if value is bias:
                setattr(module, name, fewer)
