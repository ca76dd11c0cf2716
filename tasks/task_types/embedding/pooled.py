"""Encoders that return one vector of unit length for each text: a plain encoder of transformers, the pooling over its
last hidden states, and the three small files by which sentence-transformers loads the same folder.

Paper: Reimers and Gurevych 2019, Sentence-BERT, arXiv:1908.10084. Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig
from transformers import AutoModel as PlainAutoModel

from tasks.errors import ModelError
from tasks.task_types.common_head import LoadedByConfig, PartOfModel, class_with, plain_class_for
from tasks.task_types.embedding.modules import (
    ENCODER_FILE,
    MODULES_FILE,
    POOLING_FILE,
    PROMPTS_IN_CONFIG,
    content,
    further_steps,
    prompts_in,
)

POOLING_IN_CONFIG = "limbeck_pooling"
"""Where a config states how token states become a vector (one of ``POOLING_WAYS``)."""
OF_SENTENCE_TRANSFORMERS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
SAME_AT_UNIT_LENGTH = {"mean_sqrt_len_tokens": "mean"}
"""Ways that differ by the length of their vectors alone: both are a sum of states, divided by another number."""
ENCODER_SETTINGS: dict[str, object] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}


def token_states_at(states_BTD: Tensor, places_B: Tensor) -> Tensor:
    """Return the state at one place of each text [B, D]; a graph has no other number of texts than its input, which
    counting them while it is traced would fix."""
    return states_BTD.gather(1, places_B[:, None, None].expand(-1, 1, states_BTD.shape[-1])).squeeze(1)


def state_of_first(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the state of the first token of each text [B, D]."""
    return token_states_at(states_BTD, mask_BT.long().argmax(1))


def state_of_last(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the state of the last token of each text [B, D]."""
    return token_states_at(states_BTD, mask_BT.long().cumsum(1).argmax(1))


def mean_of_tokens(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean of the states of each text [B, D]."""
    weights_BT1 = mask_BT[..., None].to(states_BTD.dtype)
    return (states_BTD * weights_BT1).sum(1) / weights_BT1.sum(1).clamp(min=1e-9)


def mean_by_places(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the mean of states in which each counts by its place in its text, from 1 (Muennighoff 2022, SGPT,
    arXiv:2202.08904) [B, D]."""
    return mean_of_tokens(states_BTD, mask_BT * mask_BT.long().cumsum(1))


def most_of_tokens(states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the largest value of each unit in a text [B, D]."""
    least = torch.finfo(states_BTD.dtype).min
    return states_BTD.masked_fill(mask_BT[..., None] == 0, least).max(1).values


POOLING_WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean_of_tokens,
    "cls": state_of_first,
    "max": most_of_tokens,
    "weightedmean": mean_by_places,
    "lasttoken": state_of_last,
}


def pooled(states_BTD: Tensor, mask_BT: Tensor, way: str) -> Tensor:
    """Return the vectors of texts at unit length [B, D], from states of tokens."""
    return F.normalize(POOLING_WAYS[way](states_BTD, mask_BT).float(), dim=-1)


def pooling_of(folder: Path, config: Any) -> str:
    """Return how a model pools: as sentence-transformers' file in its folder says, or its config; by the mean where
    neither does. Raises ModelError for another way, and for a model that does more with a text."""
    for name, step in further_steps(folder).items():
        raise ModelError(
            f"the model in {folder} has {step} ({name}), by which its vectors would be others than those that are "
            "distilled; name a model whose vectors are the pooled states of its encoder"
        )
    path = folder / POOLING_FILE
    if not path.is_file():
        return str(getattr(config, POOLING_IN_CONFIG, "mean"))
    said = content(path, {})
    marked = [key for key, is_on in said.items() if key.startswith("pooling_mode_") and is_on is True]
    named = said.get("pooling_mode", [OF_SENTENCE_TRANSFORMERS.get(key, key) for key in marked])
    ways = [named] if isinstance(named, str) else list(named) or ["mean"]  # as that library reads it
    way = SAME_AT_UNIT_LENGTH.get(ways[0], ways[0])
    if len(ways) != 1 or way not in POOLING_WAYS:
        raise ModelError(
            f"{path} pools by {' and '.join(map(str, ways))}; {', '.join(POOLING_WAYS)} are known, one at a time: name "
            f"a model that uses one of them"
        )
    return way


def token_mask(inputs: Mapping[str, Tensor | None], states_BTD: Tensor) -> Tensor:
    """Return 1 for the tokens of a text and 0 for padding [B, T], from the inputs of a model: its mask or, in a traced
    graph, the bias of its scores [B, 1, 1, T]; for XLNet the mask of padding. Without any, nothing is padded."""
    mask: Tensor | None = inputs.get("attention_mask")
    padding_BT: Tensor | None = inputs.get("input_mask")
    if mask is not None:
        return (mask[:, 0, 0, :] == 0).to(states_BTD.dtype) if mask.dim() == 4 else mask
    return torch.ones_like(states_BTD[..., 0]) if padding_BT is None else 1 - padding_BT


class Pooled(PartOfModel):
    """The part of a pooled encoder that is not of transformers; the other is the encoder's own class."""

    config: Any
    stated = "{}"
    """What the configs of its models state of pooling and prompts, as JSON: students of other architectures, whose
    configs are new, take it from the class of their teacher."""

    @classmethod
    def with_head_of(cls, student: Any) -> Any:
        """Give a student of another architecture the pooling and the prompts of its teacher; return it."""
        for name, value in json.loads(cls.stated).items():
            setattr(student.config, name, value)
        return super().with_head_of(student)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the encoder and, as ``sentence_embedding``, the vectors of the texts [B, D]."""
        encoder: Any = super()
        found = encoder.forward(*args, **{**kwargs, "return_dict": True})
        mask_BT = token_mask(kwargs, found.last_hidden_state)
        found["sentence_embedding"] = pooled(found.last_hidden_state, mask_BT, getattr(self.config, POOLING_IN_CONFIG))
        return found

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Write a plain folder of transformers that sentence-transformers loads, too."""
        encoder: Any = super()
        encoder.save_pretrained(save_directory, *args, **kwargs)
        write_modules(Path(save_directory), self.config)


@cache
def part_stating(stated: str) -> Any:
    """Return the part of models whose configs state this, as JSON."""

    class Stating(Pooled):
        pass

    Stating.stated = stated
    return Stating


class AutoModel(LoadedByConfig, PlainAutoModel):
    """Loads encoders with their pooling; a folder is the one that transformers' own ``AutoModel`` loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class with pooling. Raises ModelError for a model that is no encoder of transformers."""
        plain = plain_class_for(PlainAutoModel, config)
        if plain is None:
            raise ModelError(
                f"a model of type {config.model_type} has no encoder in transformers; name a BERT-like encoder"
            )
        stated = {
            name: getattr(config, name) for name in (POOLING_IN_CONFIG, PROMPTS_IN_CONFIG) if hasattr(config, name)
        }
        return class_with(part_stating(json.dumps(stated, sort_keys=True)), plain)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **options: Any) -> Any:
        """Load a folder with the pooling and the prompts that it states."""
        folder, config = pretrained_model_name_or_path, options.pop("config", None)
        config = config or AutoConfig.from_pretrained(folder, local_files_only=True)
        setattr(config, POOLING_IN_CONFIG, pooling_of(Path(folder), config))
        if prompts := prompts_in(Path(folder)).stated:
            setattr(config, PROMPTS_IN_CONFIG, prompts)
        return super().from_pretrained(folder, config=config, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """Build a model with random weights."""
        setattr(config, POOLING_IN_CONFIG, getattr(config, POOLING_IN_CONFIG, "mean"))
        return super().from_config(config, **options)


def write_modules(folder: Path, config: Any) -> None:
    """Write the files by which sentence-transformers reads a folder: encoder, pooling, unit length."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for number, (place, kind) in enumerate(kinds.items())
    ]
    way = getattr(config, POOLING_IN_CONFIG)
    pooling = {"word_embedding_dimension": config.hidden_size}
    pooling |= {key: name == way for key, name in OF_SENTENCE_TRANSFORMERS.items() if name in ("mean", "cls", way)}
    files: dict[str, object] = {
        MODULES_FILE: modules,
        POOLING_FILE: pooling,
        ENCODER_FILE: ENCODER_SETTINGS | getattr(config, PROMPTS_IN_CONFIG, {}),
    }
    for name, stated in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(stated, indent=2) + "\n")
