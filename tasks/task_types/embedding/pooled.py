"""Encoders that return one vector of unit length for each text: a plain encoder of transformers, the pooling over its
last hidden states, and the three small files by which sentence-transformers loads the same folder.

Paper: Reimers and Gurevych 2019, Sentence-BERT, arXiv:1908.10084. Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig
from transformers import AutoModel as PlainAutoModel

from tasks.errors import ModelError
from tasks.task_types.common_head import LoadedByConfig, class_with, plain_class_for
from tasks.task_types.embedding.modules import ENCODER_FILE, MODULES_FILE, POOLING_FILE, further_steps

POOLING_IN_CONFIG = "limbeck_pooling"
"""Where a config states how token states become a vector: ``mean`` over all tokens, or ``cls``, the first token."""
POOLING_WAYS = ("mean", "cls")
OF_SENTENCE_TRANSFORMERS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
ENCODER_SETTINGS: dict[str, object] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}


def pooled(states_BTD: Tensor, mask_BT: Tensor, way: str) -> Tensor:
    """Return the vectors of texts at unit length [B, D], from states of tokens."""
    if way == "cls":
        first_B = mask_BT.long().argmax(1)
        return F.normalize(states_BTD[torch.arange(len(states_BTD), device=states_BTD.device), first_B].float(), dim=-1)
    weights_BT1 = mask_BT[..., None].to(states_BTD.dtype)
    mean_BD = (states_BTD * weights_BT1).sum(1) / weights_BT1.sum(1).clamp(min=1e-9)
    return F.normalize(mean_BD.float(), dim=-1)


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
        return str(getattr(config, POOLING_IN_CONFIG, POOLING_WAYS[0]))
    said = json.loads(path.read_text())
    named = [said["pooling_mode"]] if isinstance(said.get("pooling_mode"), str) else []
    ways = named or [OF_SENTENCE_TRANSFORMERS.get(key, key) for key, is_on in said.items() if is_on is True]
    ways = [way for way in ways if way in POOLING_WAYS or way.startswith("pooling_mode") or named]
    if len(ways) != 1 or ways[0] not in POOLING_WAYS:
        raise ModelError(
            f"{path} pools by {' and '.join(ways) or 'nothing'}; mean and cls are known: name a model that uses one of "
            f"them"
        )
    return ways[0]


def token_mask(inputs: Mapping[str, Tensor | None], states_BTD: Tensor) -> Tensor:
    """Return 1 for the tokens of a text and 0 for padding [B, T], from the inputs of a model: its mask or, in a traced
    graph, the bias of its scores [B, 1, 1, T]; for XLNet the mask of padding. Without any, nothing is padded."""
    mask: Tensor | None = inputs.get("attention_mask")
    padding_BT: Tensor | None = inputs.get("input_mask")
    if mask is not None:
        return (mask[:, 0, 0, :] == 0).to(states_BTD.dtype) if mask.dim() == 4 else mask
    return torch.ones_like(states_BTD[..., 0]) if padding_BT is None else 1 - padding_BT


class Pooled:
    """The part of a pooled encoder that is not of transformers; the other is the encoder's own class."""

    config: Any

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


class AutoModel(LoadedByConfig, PlainAutoModel):
    """Loads encoders with their pooling; a folder is the one that transformers' own ``AutoModel`` loads."""

    @classmethod
    def class_for(cls, config: Any) -> Any:
        """Return the class with pooling. Raises ModelError for a model that is no encoder of transformers."""
        plain = plain_class_for(PlainAutoModel, config)
        if plain is None:
            raise ModelError(f"a {config.model_type} model has no encoder in transformers; name a BERT-like encoder")
        return class_with(Pooled, plain)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *model_args: Any, **options: Any) -> Any:
        """Load a folder with the pooling that it states."""
        folder, config = pretrained_model_name_or_path, options.pop("config", None)
        config = config or AutoConfig.from_pretrained(folder, local_files_only=True)
        setattr(config, POOLING_IN_CONFIG, pooling_of(Path(folder), config))
        return super().from_pretrained(folder, config=config, **options)

    @classmethod
    def from_config(cls, config: Any, **options: Any) -> Any:
        """Build a model with random weights."""
        setattr(config, POOLING_IN_CONFIG, getattr(config, POOLING_IN_CONFIG, POOLING_WAYS[0]))
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
    pooling |= {key: name == way for key, name in OF_SENTENCE_TRANSFORMERS.items()}
    files: dict[str, object] = {
        MODULES_FILE: modules,
        POOLING_FILE: pooling,
        ENCODER_FILE: ENCODER_SETTINGS,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
