"""Copies of the packages that a test may extend, and the command line of such a copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT


def copy_packages(folder: Path) -> Path:
    """Copy the packages into a folder; return it."""
    for package in ("flows", "tasks", "deployments"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def limbeck(packages: Path, home: Path, prefect_url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a copy in a home of its own, beside the Prefect server of the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    own = {"PYTHONPATH": str(packages), "LIMBECK_HOME": str(home), "PREFECT_API_URL": prefect_url}
    command = [sys.executable, "-m", "flows.cli", *words]
    return subprocess.run(command, cwd=packages, env=inherited | own, capture_output=True, text=True)
