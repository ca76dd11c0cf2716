"""The wheel of Limbeck: everything that commands read is inside of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, since a build leaves folders beside them."""
    folder = tmp_path_factory.mktemp("wheel")
    leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("flows", "tasks", "deployments"):
        shutil.copytree(ROOT / name, folder / "sources" / name, ignore=leave_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "sources" / name)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), "./sources"]
    subprocess.run([sys.executable, "-m", "pip", *words], cwd=folder, check=True)
    return next(folder.glob("limbeck-*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_every_file_that_commands_read(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    patterns = ("recipes/*.yaml", "recipes/*.json", "prices/*.csv", "pools/*.json", "*.yaml", "*.ipynb")
    wanted = [path for pattern in patterns for path in (ROOT / "deployments").glob(pattern)]
    wanted += [path for path in (ROOT / "tasks" / "report").rglob("*") if path.suffix in (".html", ".css", ".js")]
    wanted += [ROOT / "flows" / "py.typed", ROOT / "tasks" / "py.typed"]
    assert len(wanted) > 45
    assert not [path for path in wanted if path.relative_to(ROOT).as_posix() not in held]
    assert not [name for name in held if name.startswith(("tests/", "infra/"))]
