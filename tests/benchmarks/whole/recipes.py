"""Recipes of the shelf from the command to the registered models: wall seconds, processor seconds and joules, on one
core and on all.

The recipes are the real ones, cut to so many steps that a round takes minutes, on SST-2 with a 6-layer teacher: both
from the shared folder (``LIMBECK_SHARED``, else ``shared`` beside the repository). Every run has a home of its own, so
that nothing is cached, and starts its own servers, as the command does; one core is one that the whole run, its servers
and engines may use. Joules are those of the run's own ledger: counted where the processor counts, else estimated from
processor seconds, for the stages and not for the servers. ``SHELF="tinybert-4 …"`` chooses recipes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tasks.engine.environment import SEEN, environment
from tests.benchmarks.measure import Figure
from tests.benchmarks.orchestration import surroundings
from tests.benchmarks.setting import Setting

ROOT = Path(__file__).resolve().parents[3]
JOULES_OF_A_KWH, TOLD = 3.6e6, 2000
MANY = 5
"""Rounds of other benchmarks that are one round of this one."""
CUTS: dict[str, dict[str, Any]] = {
    "tinybert-4": {
        "teacher.epochs": 1,
        "corpus.max_tokens": 2_000_000,
        "augmentation.rows": 2000,
        "task_distillation.intermediate.steps": 600,
        "task_distillation.prediction.steps": 600,
        "students.finetuned-4.prediction.steps": 1200,
    },
    "sst2-tinybert": {
        "teacher.steps": 600,
        "corpus.max_tokens": 500_000,
        "augmentation.rows": 1000,
        "task_distillation.intermediate.steps": 150,
        "task_distillation.prediction.steps": 150,
        "layer_dropping.steps": 100,
        "students.3x384.seeds": [0],
        "students.4x384.seeds": [0],
        "students.4x312.seeds": [0],
        "students.4x312-soft-targets.seeds": [0],
    },
    "distilbert": {
        "teacher.steps": 600,
        "corpus.max_tokens": 500_000,
        "task_distillation.prediction.steps": 300,
        "students.distilbert.layers": 3,
        "students.distilbert-two-step.layers": 3,
        "students.distilbert-two-step.prediction.steps": 300,
        "students.finetuned-6.layers": 3,
    },
}
"""The cut of each recipe; half of a 6-layer teacher's layers are three."""
TEACHERS = {"distilbert": "minilm-mlm"}
"""Teachers that are not the plain encoder: DistilBERT's losses need a head for words."""
QUICK_SIZES, QUICK_ROWS = {"steps": 4, "max_tokens": 20_000, "rows": 20}, 1000
EASY = {"teacher.floor": 0.0, "data.holdout_rows": 100, "data.selection_rows": 50}
"""A quick run's few steps leave a teacher that a real run would refuse."""


@dataclass(frozen=True)
class Spent:
    """What one whole run took; joules are None where its ledger does not know them."""

    wall: float
    cpu: float
    joules: float | None


def end_to_end(setting: Setting) -> list[Figure]:
    """Run every recipe on one core and on all."""
    shared, every = Path(os.environ["LIMBECK_SHARED"]), sorted(os.sched_getaffinity(0))
    chosen = os.environ.get("SHELF", "").split() or list(CUTS)
    figures = list[Figure]()
    with tempfile.TemporaryDirectory() as scratch:
        rows = first_rows(shared, Path(scratch)) if setting.quick else shared / "data/glue/sst2"
        for name in chosen:
            sets = sets_of(name, shared, setting.quick) | {"data.source": rows}
            for cores in [every[:1], every] if len(every) > 1 else [every]:
                spent = list[Spent]()
                for number in range(max(1, setting.repeats - MANY + 1)):
                    spent.append(run_once(name, sets, cores))
                    setting.tell(f"{name}, {told_cores(cores)}, round {number + 1}: {spent[-1]}")
                figures += figures_of(name, told_cores(cores), spent)
    return figures


def first_rows(shared: Path, folder: Path) -> Path:
    """Write the first rows of each split for a quick run; return their folder."""
    for split in ("train", "validation"):
        rows = pq.read_table(shared / f"data/glue/sst2/{split}.parquet").slice(0, QUICK_ROWS)
        pq.write_table(rows, folder / f"{split}.parquet")
    return folder


def sets_of(name: str, shared: Path, quick: bool) -> dict[str, Any]:
    """Return the knobs of a recipe that are set: its cut, and where its text and its models are."""
    cut: dict[str, Any] = dict(CUTS[name])
    if quick:
        cut = {knob: QUICK_SIZES.get(knob.rpartition(".")[2], value) for knob, value in cut.items()}
        cut |= EASY | dict.fromkeys(("teacher.steps", "general_distillation.steps"), QUICK_SIZES["steps"])
    cut["corpus.source"] = shared / "data/wiki_featured_good/train.parquet"
    cut["teacher.model"] = shared / "models" / TEACHERS.get(name, "minilm")
    if "augmentation.rows" in cut:
        cut["augmentation.masked_lm"] = shared / "models/minilm-mlm"
    return cut


def run_once(name: str, sets: Mapping[str, Any], cores: list[int]) -> Spent:
    """Run a recipe of the shelf in a new home, on some cores; the processor seconds are those of all its processes."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        words = [sys.executable, "-m", "flows.cli", "run", name, "--json", str(home / "out.json")]
        words += [word for knob, value in sets.items() for word in ("--set", f"{knob}={value}")]
        log = Path(scratch) / "log"
        with log.open("w") as output, only_on(cores):
            started = time.perf_counter()
            process = subprocess.Popen(words, env=of_a_person(home), stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if not (home / "out.json").exists():
            raise RuntimeError(f"{name} ended with status {process.returncode}: {log.read_text()[-TOLD:]}")
        return Spent(round(wall, 1), round(used.ru_utime + used.ru_stime, 1), joules_of(home / "out.json"))


def of_a_person(home: Path) -> dict[str, str]:
    """Return the environment of a person's command. That of benchmarks is an engine's: it has the engine's threads, and
    a copy of the sources without the table of watts and prices."""
    of_engines = environment(1).keys() - set(SEEN)
    return {name: value for name, value in surroundings(home).items() if name not in of_engines} | {
        "PYTHONPATH": str(ROOT)
    }


@contextmanager
def only_on(cores: list[int]) -> Iterator[None]:
    """Let processes that are started inside the block run on some cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def joules_of(result: Path) -> float | None:
    """Return the energy of a run's stages by its ledger."""
    kwh = json.loads(result.read_text())["ledger"]["total"].get("kwh") or {}
    return None if kwh.get("value") is None else round(kwh["value"] * JOULES_OF_A_KWH)


def told_cores(cores: list[int]) -> str:
    """Return a number of cores in words."""
    return f"{len(cores)} core{'s' if len(cores) > 1 else ''}"


def figures_of(name: str, cores: str, spent: list[Spent]) -> list[Figure]:
    """Return the figures of a recipe on some cores."""
    title, command = f"{name} end to end, {cores}", "limbeck run"
    kilojoules = [one.joules / 1000 for one in spent if one.joules is not None]
    figures = [
        Figure(title, command, "", [one.wall / 60 for one in spent], "wall", None, " min", at_most=True),
        Figure(title, command, "", [one.cpu / 60 for one in spent], "cpu", None, " min", at_most=True),
    ]
    if kilojoules:
        figures.append(Figure(title, command, "", kilojoules, "energy", None, " kJ", at_most=True))
    return figures
