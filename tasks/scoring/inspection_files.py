"""The files of an error analysis: the only writer and the only reader of its figures and of its example texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

FIGURES, TEXTS = "inspection.json", "texts.json"
Texts = dict[str, tuple[str, str | None]]
"""By row id: a row's text, and its second text where it is a pair."""


def write_inspection(folder: Path, figures: Mapping[str, object], texts: Texts) -> None:
    """Write figures and texts; raises ValueError for a figure that is not finite."""
    (folder / FIGURES).write_text(json.dumps(figures, allow_nan=False, sort_keys=True))
    (folder / TEXTS).write_text(json.dumps(texts, sort_keys=True))


def read_figures(folder: Path) -> dict[str, JsonValue]:
    """Return the figures."""
    figures: dict[str, JsonValue] = json.loads((folder / FIGURES).read_text())
    return figures


def read_texts(folder: Path) -> Texts:
    """Return the texts of the example rows."""
    return {row: (text, pair) for row, (text, pair) in json.loads((folder / TEXTS).read_text()).items()}
