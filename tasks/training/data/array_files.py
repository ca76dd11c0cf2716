"""Arrays in a safetensors file that need not fit into memory: written part by part, and read by memory map.

The library's own functions hold all arrays at once. A file is the same, byte for byte, as the one that they write.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ARRAY_TYPES = {
    "U64": np.uint64, "I64": np.int64, "F64": np.float64, "F32": np.float32, "U32": np.uint32, "I32": np.int32,
    "F16": np.float16, "U16": np.uint16, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
"""Types by their name in the format, in the order in which arrays are stored: wide ones first."""
LENGTH_BYTES = 8
"""Bytes of the number with which a file begins: that of the bytes of its header, which is a multiple of it, too."""
ArrayShape = tuple[int, ...]


def created_arrays(path: Path, wanted: Mapping[str, tuple[np.dtype, ArrayShape]]) -> dict[str, np.ndarray]:
    """Create a file of arrays of these types and shapes; return them by name, mapped and full of zeros. What is written
    to them is in the file once they are gone. Raises OSError if the disk is full."""
    order = {np.dtype(kind): place for place, kind in enumerate(ARRAY_TYPES.values())}
    code = {np.dtype(kind): name for name, kind in ARRAY_TYPES.items()}
    entries, end = dict[str, dict[str, object]](), 0
    for name, (kind, shape) in sorted(wanted.items(), key=lambda one: (order[one[1][0]], one[0])):
        start, end = end, end + kind.itemsize * math.prod(shape)
        entries[name] = {"dtype": code[kind], "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % LENGTH_BYTES)
    with path.open("wb") as stream:
        stream.write(len(header).to_bytes(LENGTH_BYTES, "little") + header)
        stream.flush()
        if end:  # a write to the map of a full disk would kill the process without a word
            os.posix_fallocate(stream.fileno(), LENGTH_BYTES + len(header), end)
    return mapped_arrays(path, mode="r+")


def mapped_arrays(path: Path, mode: Any = "r") -> dict[str, np.ndarray]:
    """Return the arrays of a file by name, by memory map: the system reads what is looked at, and may forget it."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        entries = json.loads(stream.read(length))
    entries.pop("__metadata__", None)
    found = dict[str, np.ndarray]()
    for name, entry in entries.items():
        kind: Any = ARRAY_TYPES[entry["dtype"]]
        shape, at = tuple(entry["shape"]), LENGTH_BYTES + length + entry["data_offsets"][0]
        # nothing cannot be mapped
        found[name] = np.memmap(path, kind, mode, at, shape) if math.prod(shape) else np.empty(shape, kind)
    return found
