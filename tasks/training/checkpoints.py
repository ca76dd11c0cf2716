"""Checkpoints that let an interrupted training continue exactly: weights, optimizer, best weights so far, random state,
position, named snapshots.

Tensors are stored as safetensors and the rest as JSON; nothing is pickled. A checkpoint is written next to the old one,
flushed to the disk and renamed, so that a crash leaves the older one intact. The last two are kept; if the newest is
damaged, the one before it is loaded.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasks.engine.checkpoint_files import KEPT_CHECKPOINTS, read_marker, sync, write_marker
from tasks.training.models.sparse_embedding import SparseEmbedding, as_whole_tables, input_table

FILES = {"state.safetensors", "state.json"}
SNAPSHOT = "snapshot-"  # begins the name of a snapshot's file


@dataclass
class Progress:
    """The position of a training, with its best score and weights so far."""

    step: int = 0
    best: float | None = None
    best_step: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0
    snapshots: dict[str, Path] = field(default_factory=dict)
    """The files of the snapshots taken so far, by name; of a restored training, those in its checkpoint."""
    tallies: dict[str, int] = field(default_factory=dict)
    """Counts over all steps so far, by name."""


@dataclass(frozen=True)
class State:
    """A copy of the state of a training: what is written does not change while the training goes on."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Any]
    snapshots: dict[str, Path]


def save(folder: Path, modules: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a training under ``folder/step-N``."""
    write_state(folder, state_of(modules, optimizer, progress))


class Saver:
    """Writes checkpoints in a thread beside the training, one at a time; the training only waits for the copy. At the
    end of a whole training ``tell`` hears of one that was not written, which nobody needs any more."""

    def __init__(self, tell: Callable[[str], None] = lambda words: None) -> None:
        self.tell, self.writer = tell, ThreadPoolExecutor(1, "checkpoint")
        self.pending: Future[None] | None = None

    def __enter__(self) -> Saver:
        return self

    def save(self, folder: Path, modules: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Copy the state of a training, and begin to write it; raise OSError if the one before was not written."""
        self.wait()
        self.pending = self.writer.submit(write_state, folder, state_of(modules, optimizer, progress))

    def wait(self) -> None:
        """Wait for the checkpoint that is being written; raise OSError if it was not."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def __exit__(self, kind: object, *error: object) -> None:
        self.writer.shutdown()
        if kind is not None:  # the reason of the end matters more
            return
        try:
            self.wait()
        except (OSError, SafetensorError) as why:
            self.tell(f"the last checkpoint was not written ({why}); the training is complete without it")


def state_of(modules: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> State:
    """Return a copy of the state of a training, on the CPU."""
    tensors = {f"weight.{name}": value for name, value in modules.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in progress.best_weights.items()}
    tensors |= {f"optimizer.{index}.{name}": value for index, name, value in optimizer_tensors(optimizer)}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    numbers = {
        "step": progress.step,
        "best": progress.best,
        "best_step": progress.best_step,
        "seconds": progress.seconds,
        "tallies": dict(progress.tallies),
    }
    # Tied weights share storage, which safetensors refuses: each name gets its own copy.
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return State(copies, numbers, dict(progress.snapshots))


def write_state(folder: Path, state: State) -> None:
    """Write the state of a training under ``folder/step-N``, and remove checkpoints that are older than the last
    two."""
    final, temporary = folder / f"step-{state.numbers['step']:09d}", folder / f".writing-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_file(state.tensors, temporary / "state.safetensors")
    (temporary / "state.json").write_text(json.dumps(state.numbers))
    for name, file in state.snapshots.items():
        # The output of an interrupted stage is deleted, or is on another machine.
        shutil.copyfile(file, temporary / f"{SNAPSHOT}{name}")
    write_marker(temporary, of=folder.name)
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    sync(folder)
    for old in sorted(folder.glob("step-*"))[:-KEPT_CHECKPOINTS]:
        shutil.rmtree(old, ignore_errors=True)


def load(
    folder: Path, modules: nn.Module, optimizer: torch.optim.Optimizer, tell: Callable[[str], None] = lambda words: None
) -> Progress:
    """Load the newest intact checkpoint under ``folder`` into modules and optimizer; without one, start at step 0.

    A checkpoint that is damaged, or of another training, is reported and removed: its step number would rank above
    those of the steps that are trained again.
    """
    for found in sorted(folder.glob("step-*"), reverse=True) if folder.is_dir() else ():
        if FILES <= (read_marker(found, of=folder.name) or {"inventory": {}})["inventory"].keys():
            return restored(found, modules, optimizer)
        tell(f"the checkpoint {found.name} is damaged, or of another training; trying the one before it")
        remove(found)
    return Progress()


def remove(checkpoint: Path) -> None:
    """Remove an unusable checkpoint, file or folder; several processes of one training may try at once."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    with suppress(OSError):
        checkpoint.unlink(missing_ok=True)


def restored(found: Path, modules: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Restore modules and optimizer from an intact checkpoint, and return the position of the training."""
    tensors = load_file(found / "state.safetensors")
    if not any(isinstance(module, SparseEmbedding) for module in modules.modules()):
        tensors = as_whole_tables(tensors, embedding_number(modules, optimizer))
    modules.load_state_dict(tensors_below(tensors, "weight."))
    restore_optimizer(optimizer, tensors_below(tensors, "optimizer."))
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    numbers = json.loads((found / "state.json").read_text())
    snapshots = {path.name.removeprefix(SNAPSHOT): path for path in found.glob(f"{SNAPSHOT}*")}
    return Progress(**numbers, best_weights=tensors_below(tensors, "best."), snapshots=snapshots)


def embedding_number(modules: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the optimizer's number of the input embedding; -1 if the embedding is not trained."""
    _, table = input_table(modules)
    learned = [value for group in optimizer.param_groups for value in group["params"]]
    return next((number for number, value in enumerate(learned) if value is getattr(table, "weight", None)), -1)


def tensors_below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> list[tuple[int, str, Tensor]]:
    """List an optimizer's tensors as (parameter number, name, tensor)."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return [(index, name, torch.as_tensor(value)) for index, values in state.items() for name, value in values.items()]


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the tensors that ``optimizer_tensors`` listed; hyperparameters stay as the knobs set them."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
