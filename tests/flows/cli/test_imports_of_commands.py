"""The libraries that a command loads: those that it needs, because importing Prefect, MLflow or torch takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.benchmarks.orchestration import recipe_in

HEAVY = ("prefect", "mlflow", "torch", "transformers", "numpy", "pyarrow", "scipy", "sklearn", "boto3", "matplotlib")
OF_RUNS = {"prefect", "mlflow", "torch", "transformers", "boto3", "matplotlib"}
"""Libraries that only runs need; tables are read through datasets, which loads pandas."""
AFTERWARDS = """
import json, sys
from flows.cli.app import main
sys.argv[0] = "limbeck"
try:
    main()
except SystemExit as end:
    assert not end.code
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of one student, whose data and teacher are files."""
    return recipe_in(tmp_path_factory.mktemp("recipe"), [{"name": "small", "layers": 1}])


def loaded_by(*words: str) -> set[str]:
    """Return the heavy libraries that a command has loaded at its end, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1])) & set(HEAVY)


def test_help_loads_none_of_them() -> None:
    assert not loaded_by("--help")


def test_the_check_of_a_recipe_loads_nothing_of_a_run(recipe: Path) -> None:
    assert not loaded_by("validate", str(recipe)) & OF_RUNS


@pytest.mark.parametrize("words", [("plan",), ("sweep", "--dry-run")], ids="-".join)
def test_a_plan_loads_nothing_of_a_run(recipe: Path, words: tuple[str, ...]) -> None:
    """Its store is a folder, its sources are files, and it runs no flow."""
    assert not loaded_by(*words, str(recipe)) & OF_RUNS


def test_a_list_of_runs_loads_mlflow_and_no_orchestrator() -> None:
    assert not loaded_by("runs") & {"prefect", "torch", "transformers"}
