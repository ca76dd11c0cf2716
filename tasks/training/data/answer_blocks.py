"""Answers of a teacher that are computed block by block: a run that was killed goes on behind its last whole block.

Blocks are those of one order of batches, so that a resumed run writes the same bytes as one that was not interrupted.
Shape letters: U answered units.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tasks.engine.job import StoredBlocks
from tasks.errors import StoreError
from tasks.training.data.array_files import created_arrays, mapped_arrays

BATCHES_OF_BLOCK = 16
AT = "at"
"""The numbers of the units that a block answers."""


def blocks_of(batches: Sequence[np.ndarray]) -> Iterator[Sequence[np.ndarray]]:
    """Yield batches by block."""
    for start in range(0, len(batches), BATCHES_OF_BLOCK):
        yield batches[start : start + BATCHES_OF_BLOCK]


def size_of_one(block: Mapping[str, np.ndarray]) -> float:
    """Return the bytes of an answer in a block, on average."""
    return sum(values.nbytes for values in block.values()) / max(1, len(block[AT]))


class AnswerBlocks:
    """The blocks in a folder of checkpoints."""

    stored = StoredBlocks("answers-*.safetensors", copies=2)
    """While answers are published, all of them are on the disk twice: in blocks, and as one file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.answers, self.numbers, self.has_room = folder, 0, list[int](), False
        folder.mkdir(parents=True, exist_ok=True)

    def file(self, number: int) -> Path:
        """Return where a block is."""
        return self.folder / self.stored.files.replace("*", f"{number:06d}")

    def has(self, number: int) -> bool:
        """Tell whether a block is there; it is then one of those that are joined."""
        if not self.file(number).is_file():
            return False
        self.numbers.append(number)
        self.answers += len(mapped_arrays(self.file(number))[AT])
        return True

    def write(self, number: int, batches: Sequence[Mapping[str, np.ndarray]], answers: int) -> None:
        """Write a block; ``answers`` is the number of all answers. Raises StoreError for a disk without room for
        them."""
        whole = {name: np.concatenate([one[name] for one in batches]) for name in batches[0]}
        if not self.has_room:  # asked once in each run, also in one that goes on after the disk was full
            self.require_room(size_of_one(whole), answers)
            self.has_room = True
        partial = self.folder / "unfinished"
        save_file(whole, partial)
        partial.replace(self.file(number))
        self.numbers.append(number)
        self.answers += len(whole[AT])

    def require_room(self, each: float, answers: int) -> None:
        """Raise StoreError if the disk has no room for the answers that are not written yet, of this size in bytes,
        and for the copy that is published."""
        size, free = each * answers, shutil.disk_usage(self.folder).free
        if self.stored.copies * size - each * self.answers > free:
            raise StoreError(
                f"the teacher's answers take {size / 1e9:.3g} GB, twice that while they are published, of which "
                f"{each * self.answers / 1e9:.3g} GB are written, and the disk has {free / 1e9:.3g} GB; free some "
                f"space, keep fewer words (task_distillation.kept_words), or learn from fewer rows"
            )

    def publish(self, path: Path, answers: int, beside: Mapping[str, np.ndarray]) -> None:
        """Write a file of the answers of all blocks, unit after unit, zeros for a unit without a token, and of the
        arrays ``beside`` them. One block at a time is in memory. Raises StoreError for a disk without room for them."""
        first = mapped_arrays(self.file(self.numbers[0]))
        self.require_room(size_of_one(first), answers)  # a run that found all blocks there wrote none
        del first[AT]
        kinds = {name: (values.dtype, values.shape) for name, values in beside.items()}
        kinds |= {name: (values.dtype, (answers, *values.shape[1:])) for name, values in first.items()}
        arrays = created_arrays(path, kinds)
        for name, values in beside.items():
            arrays[name][...] = values
        for number in self.numbers:
            block = load_file(self.file(number))
            for name in first:
                arrays[name][block[AT]] = block[name]
