"""Graphs of decoders that continue texts: one graph reads the beginning of a text, where nothing was read before, and
every further token.

Decoders of transformers keep the keys and values of a text in a cache, which torch cannot trace as an input. Here they
are tensors, and the cache is made of them in the graph. Shape letters: B batch, T tokens, P tokens that were read
before, H heads, D size of a head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError
from tasks.scoring.memory import NEXT_WORD, Memory, keys_and_values, past_names, presents

READ_BEFORE = 3
"""Tokens that were read before in the traced example: with none, or one, their number would be fixed in the graph."""


class Remembering(torch.nn.Module):
    """A decoder that takes and returns what it remembers as tensors."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.model = architecture_of(model.config).for_export(model)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs of the task type [B, T], the logits of the token behind the last one, and the memory of
        all tokens. The mask [B, P + T] is that of all tokens, too."""
        from transformers import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, cache=cache, use_cache=True)
        found = tuple(outputs[name] for name in self.names)
        present = keys_and_values(outputs.cache)
        assert present is not None  # ``memory_of`` has refused other caches
        return (*found, outputs.logits[:, -1], *present)


def memory_of(model: Any, ids_BT: Tensor) -> dict[str, Tensor]:
    """Return what a decoder remembers of some tokens, by the names of a graph's inputs. Raises ModelError for one that
    remembers anything else than the keys and values of all tokens."""
    with torch.no_grad():
        parts = keys_and_values(model(input_ids=ids_BT, use_cache=True).cache)
    if parts is None:
        raise ModelError(
            f"a model of type {model.config.model_type} remembers other things than the keys and values of all tokens, "
            "such as those of a window, and such graphs are not built"
        )
    return dict(zip(past_names(len(parts) // 2), parts, strict=True))


def heads_by_input(memory: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """Return heads and their size by input, as the card states them."""
    return {name: [int(part.shape[1]), int(part.shape[3])] for name, part in memory.items()}


def traced_inputs(given: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> dict[str, object]:
    """Return the traced example: tokens behind others that were read before."""
    ids_BT, mask_BT = given["input_ids"], given["attention_mask"]
    before_BP = torch.ones(len(ids_BT), READ_BEFORE, dtype=mask_BT.dtype)
    return {
        "input_ids": ids_BT,
        "attention_mask": torch.cat([before_BP, mask_BT], 1),
        "past": list(memory.values()),
    }


def sizes_to_leave_open(memory: Mapping[str, Tensor]) -> dict[str, object]:
    """Return the sizes of the inputs that differ from call to call."""
    open_size = torch.export.Dim.DYNAMIC
    both = {0: open_size, 1: open_size}
    return {"input_ids": both, "attention_mask": both, "past": [{0: open_size, 2: open_size} for _ in memory]}


def outputs_with_memory(outputs: Sequence[str], memory: Memory) -> list[str]:
    """Return the names of a graph's outputs."""
    return [*outputs, NEXT_WORD, *presents(memory)]
