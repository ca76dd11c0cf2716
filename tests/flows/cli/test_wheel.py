"""Limbeck from its wheel, in an environment of its own and away from the repository: everything that commands need is
inside of the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny import write_tiny_rows

LEFT = {"train.csv", "train.yaml", "small", "a.html", "a.json"}
ROOT = Path(__file__).resolve().parents[3]
SHORT = [
    "--set=speed={seconds: 0.2, length: 16}",
    "--set=scoring={resamples: 100, max_length: 32}",
    "--set=gate.criteria=[{metric: parameters, at_most: 0.95, of_teacher: true}]",
]


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


@dataclass(frozen=True)
class Installed:
    """A virtual environment with Limbeck from its wheel, and the folder and home of somebody who uses it."""

    bin: Path
    site: Path
    work: Path

    def run(self, program: str, *words: str | Path, status: int = 0) -> str:
        """Run one of its programs with nothing set but a home; return all that it prints."""
        kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
        clean = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.work.parent), "LANG": "C.UTF-8"}
        done = subprocess.run(
            [self.bin / program, *words],
            cwd=self.work,
            env=kept | clean | {"HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == status and "Traceback" not in said, said
        return said

    def limbeck(self, *words: str | Path, status: int = 0) -> str:
        """Run a command of Limbeck."""
        return self.run("limbeck", *words, status=status)


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Installed:
    """Limbeck installed from its wheel alone. Its dependencies are those of this environment: a plain path in a .pth is
    searched last, and .pth files in that path, among them that of an editable Limbeck, are not read."""
    own = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    site = own / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["--python", str(own), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    work = tmp_path / "work"
    work.mkdir()
    write_tiny_rows(work)
    return Installed(own / "bin", site, work)


@pytest.mark.slow
def test_a_first_hour_from_the_wheel_away_from_the_repository(installed: Installed, tiny_bert: Path) -> None:
    limbeck, name = installed.limbeck, f"train-{tiny_bert.name}"
    packages = "import flows, tasks, deployments as d; print(flows.__file__, tasks.__file__, d.__file__)"
    where = installed.run("python", "-c", packages)
    assert where.count(f"{installed.site}/") == 3 and f"{ROOT}/" not in where
    assert limbeck("--version").startswith("limbeck ")
    assert "sst2-tinybert" in limbeck("shelf") and str(installed.site) in limbeck("shelf", "demo")
    assert "--seeds" in limbeck("demo", "--help") and "teacher.learning_rate" in limbeck("knobs", "teacher")
    limbeck("init", "train.csv", "--teacher", tiny_bert)
    assert f"$schema={installed.site}" in (installed.work / "train.yaml").read_text()
    assert "train is valid" in limbeck("validate", "train.yaml")
    assert "stages would run" in limbeck("plan", "train.yaml", *SHORT)
    assert f"{name}@champion is half, version 1" in limbeck("run", "train.yaml", *SHORT, "--json", "a.json")
    assert '"label"' in limbeck("predict", f"{name}@champion", "the film was good")
    assert f"{name} version 1" in limbeck("pull", name, "small") and '"label"' in limbeck("predict", "small", "a film")
    limbeck("report", "--output", "a.html")
    assert (installed.work / "a.html").read_text().startswith("<!doctype html>")
    called = f"from flows.api import plan, predict; print(plan('train.yaml').missing, predict('{name}', 'a film'))"
    assert "'label'" in installed.run("python", "-c", called)
    assert "kWh" in limbeck("ledger") and "finetune-teacher" in limbeck("explain")
    assert "half" in limbeck("show", f"{name}@champion") and "half" in limbeck("leaderboard")
    missing = limbeck("pull", "nosuch", "other", status=1)
    assert missing.startswith("limbeck: ") and missing.count("\n") == 1
    assert {path.name for path in installed.work.iterdir()} == LEFT
