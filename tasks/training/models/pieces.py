"""A model with some of its pieces alone: rows of the word embeddings, and the numbers of special tokens.

Source: Abdaoui et al. 2020, arXiv:2010.05609. Shape letters: V pieces, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError


def keep_pieces(model: Any, kept: Sequence[int]) -> None:
    """Keep these rows of the word embeddings, in order, and renumber the config's special tokens."""
    table, new_ids = model.get_input_embeddings(), {old: new for new, old in enumerate(kept)}
    pad, config = model.config.pad_token_id, model.config
    if pad is not None and architecture_of(config).reserved_positions and new_ids.get(pad) != pad:
        raise ModelError(
            f"a {config.model_type} counts positions from its padding token, whose number {pad} would change; this "
            f"vocabulary cannot be trimmed"
        )
    rows_VD = table.weight.detach()[torch.tensor(kept, device=table.weight.device)].clone()
    model.set_input_embeddings(nn.Embedding.from_pretrained(rows_VD, freeze=False, padding_idx=new_ids.get(pad)))
    config.vocab_size = len(kept)
    for name, old in list(config.to_dict().items()):
        if name.endswith("_token_id") and old in new_ids:
            setattr(config, name, new_ids[old])
