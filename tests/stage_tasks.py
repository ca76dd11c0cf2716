"""Every stage task of the house with what it declares, for tests that ask something of all of them."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from tasks.stage.keys import StageSpec

TASKS = Path(__file__).resolve().parents[1] / "tasks"


def all_specs() -> list[StageSpec]:
    """Return what every stage declares, in the order of their names."""
    modules = [
        importlib.import_module(f"tasks.{path.stem}")
        for path in sorted(TASKS.glob("*.py"))
        if "from tasks.stage.decorator import" in path.read_text()
    ]
    stage_tasks: list[Any] = [
        stage_task
        for module in modules
        for stage_task in vars(module).values()
        if hasattr(stage_task, "__wrapped__") and inspect.isfunction(stage_task)
    ]
    held = [inspect.getclosurevars(stage_task).nonlocals.get("spec") for stage_task in stage_tasks]
    return sorted(
        {spec.name: spec for spec in held if isinstance(spec, StageSpec)}.values(), key=lambda spec: spec.name
    )
