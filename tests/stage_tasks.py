"""Every stage task of the house with what it declares, and the stages whose keys an edit of the package changes, for
tests that ask something of all of them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tasks.ports.code.fingerprint import narrowing, program
from tasks.ports.code.narrowing import Narrowing
from tasks.ports.code.program import Program, Root
from tasks.stage.keys import StageSpec, roots_for

TASKS = Path(__file__).resolve().parents[1] / "tasks"


@cache
def all_specs() -> tuple[StageSpec, ...]:
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
    found = {spec.name: spec for spec in held if isinstance(spec, StageSpec)}
    return tuple(sorted(found.values(), key=lambda spec: spec.name))


def edited(sources: Mapping[str, str]) -> Program:
    """Return the package with some sources changed or added; what is parsed of the others is used again."""
    changed = Program({**program().sources, **sources}, program().never_counted)
    changed.modules = {name: module for name, module in program().modules.items() if name not in sources}
    changed.pieces = {one: piece for one, piece in program().pieces.items() if one[0] not in sources}
    return changed


@cache
def narrowed(there: Program, roots: tuple[Root, ...]) -> Narrowing:
    """Return what a stage can reach in an edited program: as in the package, where it reaches nothing that was
    edited."""
    here = narrowing(roots)
    same = all(there.sources[module] == program().sources[module] for module in {module for module, _ in here.reached})
    return here if same else Narrowing(there, roots)


def changed_stages(there: Program, knobs: Mapping[str, Any]) -> set[str]:
    """Return the stages with these knobs whose code has another digest in an edited program."""
    found = set()
    for spec in all_specs():
        roots = roots_for(spec, knobs.get("architectures"))
        here, other = narrowing(roots), narrowed(there, roots)
        if other is not here and program().digest(roots, here.entries(knobs)) != there.digest(
            roots, other.entries(knobs)
        ):
            found.add(spec.name)
    return found
