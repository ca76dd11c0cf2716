"""A model's folder as one archive: the size in which zeros, and numbers that are alike, take little room.

A file of weights has the size as before where single weights are 0. Deflate (RFC 1951) with Huffman codes finds the
zeros again; the archive is a plain zip file, and unpacked it is the same folder byte by byte.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

from tasks.engine.checkpoint_files import SNAPSHOTS
from tasks.engine.job import Job
from tasks.recipe.slices import PackSlice
from tasks.scoring.onnx_models import is_export

ARCHIVE, LEVEL = "packed.zip", 9
WEIGHT_SUFFIXES = (".safetensors", ".onnx", ".pte")
BEGINNING = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, so that equal folders have equal archives."""
READ_AT_ONCE = 1 << 22


def archive_model(job: Job) -> dict[str, object]:
    """Write a model's archive; return the size of its weights in it, and the share of its parameters that are not 0."""
    folder = job.inputs["model"]
    packed = write_archive(folder, job.output / ARCHIVE, job.read(PackSlice).level)
    share = None if is_export(folder) else nonzero_share(folder)
    facts: dict[str, object] = {"packed_bytes": packed, "nonzero_share": share}
    (job.output / "packed.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def write_archive(folder: Path, archive: Path, level: int = LEVEL) -> int:
    """Write a model's files into a new archive; return the size of its weights there, and leave nothing behind on an
    error. Snapshots of a training are not the model's: nobody who pulls it needs them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if SNAPSHOTS not in path.relative_to(folder).parts]
    part = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED, compresslevel=level) as packed:
            for path in files:
                pack_file(packed, path, path.relative_to(folder).as_posix())
            small = sum(one.compress_size for one in packed.infolist() if one.filename.endswith(WEIGHT_SUFFIXES))
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)
    return small


def pack_file(packed: zipfile.ZipFile, path: Path, name: str) -> None:
    """Add a file to an archive, whose bytes do not depend on its date and its rights."""
    entry = zipfile.ZipInfo(name, BEGINNING)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    with path.open("rb") as source, packed.open(entry, "w", force_zip64=True) as target:
        while part := source.read(READ_AT_ONCE):
            target.write(part)


def nonzero_share(folder: Path) -> float:
    """Return the share of a checkpoint's parameters that are not 0."""
    import numpy as np
    from safetensors import safe_open

    there = size = 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                values = tensors.get_tensor(name)
                there, size = there + int(np.count_nonzero(values)), size + values.size
    return there / size
