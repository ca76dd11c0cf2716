"""Cells of a notebook, run as Jupyter runs them: one after another, in one namespace, while an event loop runs; without
Jupyter, which no dependency brings. ``python -m tests.flows.api.cells FILE.ipynb`` runs a notebook in a process of
its own."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from pathlib import Path
from typing import Any

ASYNC_CELLS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def code_of(notebook: Path) -> list[str]:
    """Return the source of the code cells."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


async def run_cells(cells: list[str]) -> dict[str, Any]:
    """Run cells in one namespace, while the loop of this coroutine runs; return the namespace."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells, start=1):
        found = eval(compile(cell, f"cell {number}", "exec", flags=ASYNC_CELLS), names)
        if inspect.isawaitable(found):
            await found
    return names


if __name__ == "__main__":
    asyncio.run(run_cells(code_of(Path(sys.argv[1]))))
