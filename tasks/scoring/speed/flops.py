"""Size of a model and work of one forward pass, computed from its config, not measured.

Two floating-point operations per multiply-add, at a stated length; BERT-base at 128 tokens gives about 22.4 G, as in
the literature.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.architectures.registry import architecture_of, shape_of
from tasks.scoring.onnx_models import card_of, graph_of, is_export


def flops_of(folder: Path, length: int) -> int:
    """Return the FLOPs of a model folder: by formula where its family is plain, else counted operation by operation."""
    config = read_config(folder)
    plain = not config.get("model_type") or architecture_of(config).plain
    return forward_flops(config, length) if plain else counted_flops(folder, length)


def counted_flops(folder: Path, length: int) -> int:
    """Count the FLOPs of the matrix products of one input, by running a model of this config (its weights do not
    matter)."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if 0 < getattr(config, "max_position_embeddings", 0) < length + 2:
        config.max_position_embeddings = length + 2  # as the formula does, say what a longer input would cost
    # Eager attention is plain matrix products; torch has no count for every fused kernel.
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
    model.requires_grad_(
        False
    )  # the counter asks for the gradient of a weight that is handed to a module, as DeBERTa does, and finds none
    ids_BT = torch.ones(1, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
    return int(counter.get_total_flops())


def forward_flops(config: Mapping[str, Any], length: int) -> int:
    """Return the FLOPs of one input of ``length`` tokens through a plain encoder, pooler and head."""
    shape = shape_of(config)
    width, layers, inner = (int(shape[knob] or 0) for knob in ("hidden", "layers", "feed_forward"))
    labels = len(config.get("id2label") or {0: "", 1: ""})
    projections = 4 * width * width  # query, key, value, output
    feed_forward = 2 * width * inner
    attention = 2 * length * width  # scores, and the weighted sum of values
    pooler = width * width + width * labels
    narrow = config.get(
        "embedding_size", width
    )  # ALBERT and ELECTRA widen their embeddings once, below the first layer
    # ALBERT does so even where there is nothing to widen.
    widening = length * narrow * width if narrow != width or architecture_of(config).always_widens else 0
    return int(2 * (layers * length * (projections + feed_forward + attention) + widening + pooler))


def read_config(folder: Path) -> dict[str, Any]:
    """Read a model folder's config."""
    return dict(json.loads((folder / "config.json").read_text()))


def parameters_of(folder: Path) -> int:
    """Count a model's parameters from its safetensors headers, without loading them; an export says how many its
    checkpoint had."""
    from safetensors import safe_open

    if is_export(folder):
        return int(card_of(folder)["parameters"])
    total = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
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
