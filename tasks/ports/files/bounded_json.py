"""Read untrusted JSON with limits of size and depth, so that a file of a few kilobytes cannot block or crash a
process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LARGEST = 300_000_000  # bytes; a tokenizer with 250,000 words has 40 million


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return the content of a JSON file. Raises ValueError with a readable reason if it is not JSON, too large or too
    deep, and OSError as ``open`` does."""
    if not path.is_file():
        raise FileNotFoundError(2, "the file does not exist", str(path))
    if path.stat().st_size > largest:
        raise ValueError(f"it has {path.stat().st_size:,} bytes, and at most {largest:,} are read")
    return parse_json(path.read_bytes())


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raises ValueError as ``read_json`` does."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {str(error)[:200]}") from None
