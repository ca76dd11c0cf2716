"""What suites share: a small chain that real processes run, what can be read from the outside of what they left, and
libraries by which a process is told another time or another machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tasks.errors import StoreError
from tasks.ports.store.artifacts import is_whole
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.open import open_store
from tests.databases import is_unused

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ("measure-speed",)
"""Stages whose result is a measurement: it is another one each time."""

OURS = ("LIMBECK_", "PREFECT_", "MLFLOW_", "AWS_")
COMPILER = shutil.which("cc") or shutil.which("gcc")


def write_chain(folder: Path, bert: Path, rows: Path, **teacher: Any) -> Path:
    """Write a recipe that saves a checkpoint after every step of its teacher, and registers its student."""
    fast = {"batch_size": 16, "max_length": 16, "evaluations": 1, "precision": "fp32"}
    values = {
        "name": "chain",
        "task": {"name": "tiny", "labels": ["negative", "positive"]},
        "data": {"source": str(rows), "selection_rows": 20},
        "teacher": {"model": str(bert), "steps": 300, "floor": 0.0, "checkpoint_minutes": 1e-6, **fast, **teacher},
        "task_distillation": {"prediction": {"steps": 5, **fast}},
        "students": [{"name": "half", "layers": 2}],
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {"split": "validation", "criteria": [{"metric": "parameters", "at_most": 1e9}]},
        "resources": {"cores": 1, "threads_alone": 1},
    }
    path = folder / "chain.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@dataclass
class Host:
    """One machine that runs the chain: its home folder, its store, and the servers that it knows.

    Where an MLflow ``database`` is given, the home begins with a copy: its tables need not be made again.
    """

    home: Path
    store: str = ""
    servers: Mapping[str, str] = field(default_factory=dict)
    database: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return what a process of this host sees: nothing of this suite's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        store = {"LIMBECK_STORE": self.store} if self.store else {}
        return kept | {"LIMBECK_HOME": str(self.home), "OMP_NUM_THREADS": "1"} | dict(self.servers) | store

    def start(self, *words: str, module: str = "flows.cli") -> subprocess.Popen[str]:
        """Start a command in a session of its own."""
        if self.database is not None and is_unused(self.home / "mlflow.db"):
            self.home.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.database, self.home / "mlflow.db")
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=ROOT,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def opened(self) -> Any:
        """Open this host's store; what is fetched from it does not reach the host's own cache."""
        return open_store(self.store or str(self.home / "store"), self.home.with_name(f"{self.home.name}-seen"))

    def digests(self) -> dict[str, str]:
        """Return what every stage made, by key, measurements left out."""
        return {
            manifest["key"]: manifest["sha256"]
            for manifest in self.opened().manifests()
            if manifest["stage"] not in MEASURED
        }

    def damage(self) -> Iterator[str]:
        """Say what is visible in the store and not whole."""
        store = self.opened()
        manifests = list(store.manifests())
        if len(manifests) != len(self.names_of_manifests(store)):
            yield "a manifest cannot be read"
        for manifest in manifests:
            if problem := store.problem(manifest):
                yield f"{manifest['stage']}: {problem}"
            try:
                store.folder(store.artifact(manifest))
            except StoreError as error:
                yield str(error)
        if isinstance(store, FolderStore):
            yield from (
                f"artifact {digest[:12]} is not whole"
                for digest in store.artifacts()
                if not is_whole(store.object_path(digest), digest)
            )

    def names_of_manifests(self, store: Any) -> list[str]:
        """Return where manifests lie, readable or not."""
        if self.store:
            return [entry.name for entry in store.bucket.entries("manifests/")]
        return [path.name for path in self.home.glob("store/manifests/*/*")]

    def versions(self) -> list[tuple[str, ...]]:
        """Return candidate, checkpoint, verdict and aliases of every registered version, straight from MLflow's
        database; but for the fastest one's alias, for times differ from run to run."""
        wanted = "candidate", "checkpoint.sha256", "gate"
        aliases = asked(self.home / "mlflow.db", "select alias, name || ' ' || version from registered_model_aliases")
        rows = asked(self.home / "mlflow.db", "select name || ' ' || version, key, value from model_version_tags")
        tags: dict[str, dict[str, str]] = {}
        for version, key, value in rows:
            tags.setdefault(version, {})[key] = value
        named: dict[str, list[str]] = {version: [] for version in tags}
        for alias, version in sorted(aliases):
            if alias != "champion-fast":
                named[version].append(alias)
        return sorted((*(found[name] for name in wanted), *named[version]) for version, found in tags.items())

    def steps_saved(self) -> list[int]:
        """Return the steps of the whole checkpoints that another host could go on from; what was published needs none
        any more."""
        if self.store:
            names = [
                entry.name
                for entry in self.opened().bucket.entries("checkpoints/")
                if entry.name.endswith("/whole.json")
            ]
        else:
            names = [
                path.relative_to(self.home / "store").as_posix()
                for path in self.home.glob("store/checkpoints/*/step-*/state.json")
            ]
        found = [re.fullmatch(r"checkpoints/(\w+)/step-(\d+)/.*", name) for name in names]
        published = self.digests()
        return sorted(int(one[2]) for one in found if one and one[1] not in published)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Change this process's environment for a while: it looks into stores itself."""
    before = dict(os.environ)
    os.environ |= values
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def asked(database: Path, query: str) -> list[Any]:
    """Ask an SQLite database; one that is not there, or that nobody has used, has no rows."""
    if is_unused(database):
        return []
    with sqlite3.connect(database) as connection:
        return connection.execute(query).fetchall()


def resumed_at(out: str) -> int:
    """Return the step from which the teacher's training went on, 0 if from the start."""
    found = re.search(r"finetune-teacher: resuming at step ([\d,]+)", out)
    return int(found[1].replace(",", "")) if found else 0


def reported(out: str) -> int:
    """Return the last step of the teacher that a run told of."""
    found = re.findall(r"finetune-teacher: ([\d,]+) of [\d,]+ steps", out)
    return int(found[-1].replace(",", "")) if found else 0


def cache_of(path: Path) -> dict[str, str]:
    """Return whether each stage was a hit or a miss, from a result file."""
    stages = json.loads(path.read_text())["stages"]
    return {f"{stage['name']}/{stage['label']}".rstrip("/"): stage["cache"] for stage in stages}


def library_of(name: str, folder: Path) -> Path:
    """Compile ``NAME.c`` of this folder into ``NAME.so`` of another; a value of LD_PRELOAD.

    Raises RuntimeError without a C compiler.
    """
    if COMPILER is None:
        raise RuntimeError(f"{name}.c is not compiled here: install a C compiler")
    library, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return library
