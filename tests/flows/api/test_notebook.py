"""The notebook of ``deployments/``, cell by cell in an event loop, as Jupyter runs it; without Jupyter, which no
dependency brings."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.api import plan

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOK = ROOT / "deployments" / "notebook.ipynb"
ASYNC_CELLS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FORMAT = 4


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


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == FORMAT
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"] == [] and cell["execution_count"] is None)


def test_its_recipe_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first cells, up to the plan, in the default suite; the whole notebook is slow."""
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    cells = code_of(NOTEBOOK)
    upto = next(number for number, cell in enumerate(cells) if "plan(recipe)" in cell)
    names = asyncio.run(run_cells(cells[: upto + 1]))
    assert len(names["planned"].missing) == len(names["planned"].stages) > 8
    shutil.rmtree(names["folder"])
    with pytest.raises(Exception, match="there is no file or folder"):
        plan(names["recipe"])


@pytest.mark.slow
def test_the_notebook_runs_from_the_table_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: Path, prefect_url: str
) -> None:
    (tmp_path / "home").mkdir()
    shutil.copyfile(template, tmp_path / "home" / "mlflow.db")
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_API_URL", prefect_url)
    names = asyncio.run(run_cells(code_of(NOTEBOOK)))
    assert [answer["label"] in ("positive", "negative") for answer in names["answers"]] == [True, True]
    assert names["page"].read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [entry.decision for entry in names["result"].registered] == ["accepted"]
    shutil.rmtree(names["folder"])
