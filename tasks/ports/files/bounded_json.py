"""Reading JSON that somebody else wrote: within bounds of size and depth, so that a file of a few kilobytes cannot hold
a process up or end it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LARGEST = 300_000_000  # bytes; tokenizers of a quarter of a million words have 40 million


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return what a JSON file holds. Raises ValueError, with a reason for people, where it is no JSON, too large or too
    deep; OSError as ``open`` does."""
    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    if path.stat().st_size > largest:
        raise ValueError(f"it has {path.stat().st_size:,} bytes, and at most {largest:,} are read")
    return parse_json(path.read_bytes())


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; raises ValueError as ``read_json`` does."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {str(error)[:200]}") from None
