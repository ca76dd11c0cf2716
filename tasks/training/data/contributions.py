"""Measurements of how much each layer of a model changes its input; only this module writes and reads their file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FILE = "contributions.json"


def write_contributions(folder: Path, cosines: Sequence[float], token: str) -> None:
    """Write the mean cosine between input and output of each layer, and the token at which it was measured."""
    (folder / FILE).write_text(json.dumps({"cosines": cosines, "token": token}))


def read_contributions(folder: Path) -> list[float]:
    """Read the mean cosine between input and output of each layer."""
    cosines: list[float] = json.loads((folder / FILE).read_text())["cosines"]
    return cosines
