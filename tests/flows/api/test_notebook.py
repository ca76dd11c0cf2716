"""The notebook of ``deployments/``, cell by cell."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from flows.api import plan
from tests.flows.api.cells import code_of, run_cells
from tests.forked.interpreter import forked_processes

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOK = ROOT / "deployments" / "notebook.ipynb"
FORMAT = 4


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
    with forked_processes():
        names = asyncio.run(run_cells(cells[: upto + 1]))
    assert len(names["planned"].missing) == len(names["planned"].stages) > 8
    shutil.rmtree(names["folder"])
    with forked_processes(), pytest.raises(Exception, match="there is no file or folder"):
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
    assert names["page"].read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [entry.decision for entry in names["result"].registered] == ["accepted"]
    shutil.rmtree(names["folder"])
