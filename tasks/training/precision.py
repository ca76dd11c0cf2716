"""Where tensors live and in which arithmetic they are multiplied.

Master weights and optimizer states stay in float32; only matrix products run in bfloat16, and only where the hardware
multiplies it natively.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tasks.errors import ModelError


def device() -> torch.device:
    """Return what ``LIMBECK_DEVICE`` says, as a stage's key has it (``cpu``, ``cuda``); without it the accelerator, if
    any."""
    wanted = os.environ.get("LIMBECK_DEVICE")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "there is a GPU here, but this torch cannot use it; install a torch that is built for it, or set "
            "LIMBECK_DEVICE=cpu"
        )
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, there = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if number >= there:
        raise ModelError(
            f"LIMBECK_PROCESSES asks for more processes than this worker's {there} GPUs; set it to {there}"
        )
    return torch.device("cuda", number)


def has_bf16(place: torch.device) -> bool:
    """Tell whether this device multiplies bfloat16 natively; emulation would be slower than float32."""
    if place.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and any(flag in cpuinfo.read_text() for flag in ("avx512_bf16", "amx_bf16"))


def arithmetic(precision: str, place: torch.device) -> AbstractContextManager[object]:
    """Return the context in which forward passes run: ``auto``, ``fp32`` or ``bf16``."""
    return torch.autocast(place.type, dtype=torch.bfloat16) if is_bf16(precision, place) else contextlib.nullcontext()


def is_bf16(precision: str, place: torch.device) -> bool:
    """Tell whether matrix products run in bfloat16."""
    return precision == "bf16" or (precision == "auto" and has_bf16(place))


def store_as_multiplied(model: Any, precision: str) -> None:
    """Keep a frozen model's weights in the arithmetic of its matrix products: the same numbers as a cast before every
    product, without the casts.

    From then on the model runs inside of ``arithmetic`` only. A vocabulary head that is tied to the embeddings stays as
    it is: what is looked up in them is not multiplied, and would be rounded.
    """
    looked_up = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    for module in model.modules() if is_bf16(precision, model.device) else ():
        if isinstance(module, nn.Linear) and not any(module.weight is table for table in looked_up):
            module.to(torch.bfloat16)


def attention_for(place: torch.device) -> str | None:
    """Return the attention of transformers that a model gets which cannot have ours; None leaves the choice to
    transformers: not all have a fused one."""
    return None if place.type == "cuda" else "eager"


def make_deterministic(seed: int) -> None:
    """Seed torch and refuse kernels whose result depends on the order of threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # every new tensor would be written twice
