"""Named snapshots: the weights after some steps of a training, as files beside its result.

A later stage reads one by its name and trains from these weights again. Source: Frankle et al. 2020, Linear Mode
Connectivity and the Lottery Ticket Hypothesis, arXiv:1912.05671, rewinds to the weights after few steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tasks.engine.checkpoint_files import SNAPSHOTS, sync
from tasks.errors import ModelError
from tasks.training.models.sparse_embedding import as_whole_tables

SUFFIX = ".safetensors"


def require_steps(snapshots: Mapping[str, int], total: int) -> None:
    """Raise ModelError for a snapshot of a step that a training of ``total`` steps does not have."""
    for name, step in snapshots.items():
        if not 0 <= step <= total:
            raise ModelError(
                f"the snapshot {name!r} is of step {step:,}, and the training has {total:,} steps; name a step from 0 "
                f"to {total:,}"
            )


def write_snapshot(output: Path, name: str, modules: nn.Module) -> Path:
    """Write the weights of ``modules`` as a snapshot in a stage's output, and return its file.

    Names and shapes are those of the modules when they are not trained: an embedding table is whole.
    """
    # Tied weights share storage, which safetensors refuses: each name gets its own copy. Copies also keep the pending
    # decay of unused rows in the training as it is.
    tensors = {name: value.detach().cpu().clone().contiguous() for name, value in modules.state_dict().items()}
    return put(output, name, lambda file: save_file(as_whole_tables(tensors), file))


def copy_snapshot(file: Path, output: Path, name: str) -> Path:
    """Copy the file of a snapshot into a stage's output, and return the copy."""
    return put(output, name, lambda copy: shutil.copyfile(file, copy))


def put(output: Path, name: str, write: Callable[[Path], object]) -> Path:
    """Write the file of a snapshot next to its path, flush it to the disk and rename it: a crash leaves a whole file or
    none."""
    folder = output / SNAPSHOTS
    folder.mkdir(parents=True, exist_ok=True)
    final, temporary = folder / f"{name}{SUFFIX}", folder / f".{name}.writing"
    write(temporary)
    sync(temporary)
    temporary.rename(final)
    sync(folder)
    return final


def read_snapshot(folder: Path, name: str) -> dict[str, Tensor]:
    """Return the weights of a snapshot in a stage's output, by their names in the modules that were trained.

    Raises ModelError where there is no snapshot of this name.
    """
    file = folder / SNAPSHOTS / f"{name}{SUFFIX}"
    if not file.is_file():
        there = sorted(path.stem for path in file.parent.glob(f"*{SUFFIX}"))
        raise ModelError(f"{folder.name} has no snapshot {name!r}; it has {', '.join(there) or 'none'}")
    return load_file(file)
