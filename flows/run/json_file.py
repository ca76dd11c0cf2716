"""Result files in JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write a result file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")
    temporary.replace(path)
