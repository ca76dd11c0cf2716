"""Texts of a teacher that are written block by block: a run that was killed goes on behind its last whole block.

Blocks are those of one order of sources, so that a resumed run ends with the same file as one that was not interrupted.
Shape letter: N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tasks.engine.job import Job, StoredBlocks
from tasks.errors import ModelError

SOURCES_OF_BLOCK = 256
BEAMS_FILE = "texts.parquet"
"""Ids of rows, and of each the texts of the teacher's beam, best first."""


def blocks_by_length(lengths_N: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the rows of each block; sources of like length are in one block, the longest first, so that a lack of
    memory shows at once."""
    order = np.argsort(-lengths_N, kind="stable")
    for start in range(0, len(order), SOURCES_OF_BLOCK):
        yield order[start : start + SOURCES_OF_BLOCK]


def write_beams(path: Path, texts: Mapping[int, Sequence[str]]) -> None:
    """Write texts by row id, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "id": pa.array(list(texts), pa.int64()),
        "texts": pa.array([list(one) for one in texts.values()], pa.list_(pa.string())),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("unfinished")
    pq.write_table(pa.table(columns), partial, compression="zstd")
    partial.replace(path)


def read_beams(path: Path) -> dict[int, list[str]]:
    """Return texts by row id."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    return dict(zip(table["id"].to_pylist(), table["texts"].to_pylist(), strict=True))


class TextBlocks:
    """The blocks in a folder of checkpoints."""

    stored = StoredBlocks("texts-*.parquet", copies=2)
    """While texts are published, all of them are on the disk twice: in blocks, and as one file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.texts = folder, dict[int, list[str]]()

    def file(self, number: int) -> Path:
        """Return where a block is."""
        return self.folder / self.stored.files.replace("*", f"{number:06d}")

    def has(self, number: int) -> bool:
        """Tell whether a block is there; its texts are then among all."""
        if not self.file(number).is_file():
            return False
        self.texts |= read_beams(self.file(number))
        return True

    def write(self, number: int, texts: Mapping[int, list[str]]) -> None:
        """Write a block, and add its texts to all."""
        write_beams(self.file(number), texts)
        self.texts |= texts


def written_in_blocks(
    job: Job,
    ids_N: np.ndarray,
    lengths_N: np.ndarray,
    texts_of: Callable[[np.ndarray], Mapping[int, list[str]]],
    unit: str,
) -> dict[int, list[str]]:
    """Write a teacher's texts of all rows, and return them by row id; ``texts_of`` returns those of the rows of one
    block by the number of the row. Each finished block is on the disk."""
    blocks = TextBlocks(job.checkpoints)
    job.blocks = blocks.stored
    for number, of_block in enumerate(blocks_by_length(lengths_N)):
        if not blocks.has(number):
            blocks.write(number, {int(ids_N[row]): texts for row, texts in texts_of(of_block).items()})
        job.progress(len(blocks.texts), len(ids_N), unit=unit)
    by_id = {int(number): blocks.texts[int(number)] for number in ids_N}
    write_beams(job.output / BEAMS_FILE, by_id)
    return by_id


def texts_of_rows(folder: Path, ids_N: np.ndarray) -> list[list[str]]:
    """Return a teacher's texts of each row, best first. Raises ModelError if rows are missing."""
    found = read_beams(folder / BEAMS_FILE)
    missing = sum(int(number) not in found for number in ids_N)
    if missing:
        raise ModelError(
            f"the teacher's texts lack {missing:,} of the student's rows; run again with --force answer-texts"
        )
    return [found[int(number)] for number in ids_N]
