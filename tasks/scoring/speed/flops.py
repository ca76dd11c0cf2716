"""Size of a model and FLOPs of one forward pass, computed from its config, not measured.

Two floating-point operations per multiply-add, at a stated length; BERT-base at 128 tokens gives about 22.4 G, as in
the literature.
"""

from __future__ import annotations

import json
from pathlib import Path

from tasks.architectures import ModelConfig
from tasks.architectures.known_architectures import architecture_of, shape_of
from tasks.scoring.onnx_models import card_of, graph_of, is_export
from tasks.scoring.speed.counted_products import further_products
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.units import Writing


def flops_of(folder: Path, length: int, task_type: str) -> int:
    """Return the FLOPs of a task type's model: by formula for a plain encoder, else counted operation by operation. The
    formula knows no head over a vocabulary, which may cost more than all layers of a small model."""
    config = read_config(folder)
    known = not config.get("model_type") or architecture_of(config).plain
    plain = known and not TASK_TYPES[task_type].keeps_words
    return forward_flops(config, length) if plain else counted_flops(folder, length, task_type)


def counted_flops(folder: Path, length: int, task_type: str) -> int:
    """Return the FLOPs of the products of one input, counted while running a model of this config with random
    weights."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig

    from tasks.task_types.heads import HEADS

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if 0 < getattr(config, "max_position_embeddings", 0) < length + 2:
        config.max_position_embeddings = length + 2  # as in the formula, an input longer than the model's limit counts
    # Eager attention is plain matrix products; torch cannot count every fused kernel.
    write = HEADS[task_type].write
    model = HEADS[task_type].auto_class().from_config(config, attn_implementation="eager").eval()
    # the counter requests the gradient of a weight that is passed to a module, as in DeBERTa, and finds none
    model.requires_grad_(False)
    ids_BT = torch.ones(1, length, dtype=torch.long)
    with FlopCounterMode(display=False, custom_mapping=further_products()) as counter, torch.inference_mode():
        if write is None:
            model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
        else:  # as many tokens as it reads
            write(model, ids_BT, torch.ones_like(ids_BT), Writing(most=length, least=length))
    return int(counter.get_total_flops())


def forward_flops(config: ModelConfig, length: int) -> int:
    """Return the FLOPs of one input of ``length`` tokens through a plain encoder, pooler and head."""
    shape = shape_of(config)
    width, layers, inner = (int(shape[knob] or 0) for knob in ("hidden", "layers", "feed_forward"))
    labels = len(config.get("id2label") or {0: "", 1: ""})
    projections = 4 * width * width  # query, key, value, output
    feed_forward = 2 * width * inner
    attention = 2 * length * width  # scores, and the weighted sum of values
    pooler = width * width + width * labels
    # ALBERT and ELECTRA widen their embeddings once, below the first layer
    narrow = config.get("embedding_size") or width
    # ALBERT has this projection even if both widths are equal.
    widening = length * narrow * width if narrow != width or architecture_of(config).always_widens else 0
    return int(2 * (layers * length * (projections + feed_forward + attention) + widening + pooler))


def read_config(folder: Path) -> ModelConfig:
    """Return a model folder's config."""
    found: ModelConfig = json.loads((folder / "config.json").read_text())
    return found


def parameters_of(folder: Path) -> int:
    """Return a model's number of parameters, from its safetensors headers without loading the weights; copies of shared
    weights are counted once. For an export, return the number recorded for its checkpoint."""
    from safetensors import safe_open

    if is_export(folder):
        return int(card_of(folder)["parameters"])
    total, config = 0, read_config(folder)
    is_copy = architecture_of(config).is_copy
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                if is_copy(config, name):
                    continue
                size = 1
                for part in tensors.get_slice(name).get_shape():
                    size *= part
                total += size
    return total


def weight_bytes(folder: Path) -> int:
    """Return the bytes of a model's weights on disk."""
    if is_export(folder):
        return graph_of(folder).stat().st_size
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
