"""What an interrupted training needs to go on as if nothing had happened: weights, optimizer, best weights so far, random state, position.

Tensors are safetensors, the rest is JSON; nothing is pickled. A checkpoint is written beside the old one and renamed, so that a crash leaves
the older one whole; the last two are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasks.training.used_rows import UsedRows, as_whole_tables, input_table

KEPT = 2


@dataclass
class Progress:
    """Where a training stands."""

    step: int = 0
    best: float | None = None
    best_step: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0


def save(folder: Path, modules: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a training under ``folder/step-N``."""
    tensors = {f"weight.{name}": value for name, value in modules.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in progress.best_weights.items()}
    tensors |= {f"optimizer.{index}.{name}": value for index, name, value in optimizer_tensors(optimizer)}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    final, temporary = folder / f"step-{progress.step:09d}", folder / f".writing-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    # Tied weights share storage, which safetensors refuses: each name gets its own copy.
    save_file({name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}, temporary / "state.safetensors")
    numbers = {"step": progress.step, "best": progress.best, "best_step": progress.best_step, "seconds": progress.seconds}
    (temporary / "state.json").write_text(json.dumps(numbers))
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    for old in sorted(folder.glob("step-*"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def load(folder: Path, modules: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Load the newest checkpoint under ``folder`` into modules and optimizer; without one, start at step 0."""
    found = sorted(folder.glob("step-*")) if folder.is_dir() else []
    if not found:
        return Progress()
    tensors = load_file(found[-1] / "state.safetensors")
    if not any(isinstance(module, UsedRows) for module in modules.modules()):
        tensors = as_whole_tables(tensors, embedding_number(modules, optimizer))
    modules.load_state_dict(part(tensors, "weight."))
    restore_optimizer(optimizer, part(tensors, "optimizer."))
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    numbers = json.loads((found[-1] / "state.json").read_text())
    return Progress(**numbers, best_weights=part(tensors, "best."))


def embedding_number(modules: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the number that an optimizer gives to the input embedding; -1 where it learns none."""
    _, table = input_table(modules)
    learned = [value for group in optimizer.param_groups for value in group["params"]]
    return next((number for number, value in enumerate(learned) if value is getattr(table, "weight", None)), -1)


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> list[tuple[int, str, Tensor]]:
    """List an optimizer's tensors as (parameter number, name, tensor)."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return [(index, name, torch.as_tensor(value)) for index, values in state.items() for name, value in values.items()]


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors back where ``optimizer_tensors`` found them; hyperparameters stay as the knobs set them."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
