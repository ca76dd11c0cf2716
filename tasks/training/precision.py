"""The device of tensors, and the arithmetic of their products.

Master weights and optimizer states stay in float32; only matrix products run in bfloat16, and only on hardware that
is faster with it. On a GPU, the states between layers are then bfloat16, too: sums, means and variances are
computed in float32. Source: Micikevicius et al. 2017, Mixed Precision Training, arXiv:1710.03740.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tasks.errors import ModelError

PROCESSORS = Path("/proc/cpuinfo")
FUSED = "limbeck-fused"
"""The name in transformers of Limbeck's attention on a GPU, which needs no mask for a batch without padding."""


def device() -> torch.device:
    """Return the device named by ``LIMBECK_DEVICE`` (``cpu`` or ``cuda``), which is part of a stage's key; without it,
    the accelerator if there is one."""
    wanted = os.environ.get("LIMBECK_DEVICE")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError(
            "there is a GPU, but this torch cannot use it; install a torch build that supports it, or set "
            "LIMBECK_DEVICE=cpu"
        )
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, there = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if number >= there:
        raise ModelError(
            f"LIMBECK_PROCESSES is larger than the number of GPUs of this worker, {there}; set it to {there}"
        )
    return torch.device("cuda", number)


def is_faster_in_bf16(place: torch.device) -> bool:
    """Tell whether this device multiplies bfloat16 faster than float32: a GPU that does it natively, a processor with
    matrix units (AMX), or one of AMD with AVX512-BF16. Intel's with that instruction alone, as where a virtual machine
    hides AMX, multiply bfloat16 at half the speed of float32."""
    if place.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    words = set(PROCESSORS.read_text().split()) if PROCESSORS.is_file() else set()
    return "amx_bf16" in words or {"avx512_bf16", "AuthenticAMD"} <= words


def arithmetic(precision: str, place: torch.device) -> AbstractContextManager[object]:
    """Return the context in which forward passes run: ``auto``, ``fp32`` or ``bf16``."""
    return torch.autocast(place.type, dtype=torch.bfloat16) if is_bf16(precision, place) else contextlib.nullcontext()


def is_bf16(precision: str, place: torch.device) -> bool:
    """Tell whether matrix products run in bfloat16."""
    return precision == "bf16" or (precision == "auto" and is_faster_in_bf16(place))


def store_as_multiplied(model: Any, precision: str) -> None:
    """Store the linear layers of a frozen model in the arithmetic of its matrix products: the same numbers as a cast
    before every product, without the casts. Norms that return narrow results are stored so, too.

    Afterwards the model must run inside ``arithmetic``. A vocabulary head that is tied to the embeddings stays in
    float32: embeddings are looked up and not multiplied, and bfloat16 would round them.
    """
    looked_up = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    for module in model.modules() if is_bf16(precision, model.device) else ():
        if isinstance(module, (nn.Linear, NarrowLayerNorm)) and not any(module.weight is table for table in looked_up):
            module.to(torch.bfloat16)


class NarrowLayerNorm(nn.LayerNorm):
    """A layer norm whose result is in the arithmetic of matrix products, if that is narrower than its input's.

    Under autocast a norm returns float32, so that every state between two layers is float32: additions and norms move
    twice the bytes, and each product casts its input again. On a large batch that takes a quarter of a step.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input, of the same sizes."""
        kind = input.device.type
        if not torch.is_autocast_enabled(kind):
            return super().forward(input)
        narrow = torch.get_autocast_dtype(kind)
        own = narrow if input.dtype == narrow else torch.float32  # what is given wide is normalised wide
        weight, bias = (None if one is None else one.to(own) for one in (self.weight, self.bias))
        with torch.autocast(kind, enabled=False):
            return F.layer_norm(input.to(own), self.normalized_shape, weight, bias, self.eps).to(narrow)


def narrow_norms(model: Any) -> Any:
    """Let a model's layer norms return narrow results where products are narrow, and return the model."""
    for module in model.modules():
        if type(module) is nn.LayerNorm:
            module.__class__ = NarrowLayerNorm
    return model


def attention_for(place: torch.device) -> str | None:
    """Return the transformers attention for models that cannot use Limbeck's own; None leaves the choice to
    transformers, as not every family has a fused one."""
    return None if place.type == "cuda" else "eager"


def make_deterministic(seed: int) -> None:
    """Seed torch and reject kernels whose result depends on the order of threads; with a GPU, only warn about them."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # every new tensor would be written twice
