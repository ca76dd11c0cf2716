"""How much each layer of a model changes its input: the only writer and the only reader of these measurements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FILE = "contributions.json"


def write_contributions(folder: Path, cosines: Sequence[float], token: str) -> None:
    """Write by layer the mean cosine between its input and its output, and at which token it was measured."""
    (folder / FILE).write_text(json.dumps({"cosines": cosines, "token": token}))


def read_contributions(folder: Path) -> list[float]:
    """Read by layer the mean cosine between its input and its output."""
    cosines: list[float] = json.loads((folder / FILE).read_text())["cosines"]
    return cosines
