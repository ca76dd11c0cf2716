"""Every door of the house with what it declares, for tests that ask something of all of them."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from tasks.stage.keys import Frame

TASKS = Path(__file__).resolve().parents[1] / "tasks"


def all_frames() -> list[Frame]:
    """Return what every stage declares, in the order of their names."""
    modules = [
        importlib.import_module(f"tasks.{path.stem}")
        for path in sorted(TASKS.glob("*.py"))
        if "from tasks.stage.decorator import" in path.read_text()
    ]
    doors: list[Any] = [
        door
        for module in modules
        for door in vars(module).values()
        if hasattr(door, "__wrapped__") and inspect.isfunction(door)
    ]
    held = [inspect.getclosurevars(door).nonlocals.get("frame") for door in doors]
    return sorted(
        {frame.name: frame for frame in held if isinstance(frame, Frame)}.values(), key=lambda frame: frame.name
    )
