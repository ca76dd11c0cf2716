"""What the house itself costs: a chain whose every stage is cached, one whose every stage is run, and a sweep shared by
two workers.

Each figure is a whole ``limbeck run`` or ``limbeck search`` in a process of its own, against the servers that
``limbeck ui`` starts, as workers have theirs up.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tasks.engine.environment import environment
from tests.benchmarks.measure import Figure, Lap
from tests.benchmarks.setting import Setting
from tests.s3_server import BUCKET, kind_here, s3_server
from tests.suites.chain import OURS
from tests.tiny import write_tiny_bert, write_tiny_rows
from tests.web_server import free_port

STAGES, STUDENTS, PATIENCE = 30, 16, 900
BEYOND_IMPORTS = 2.0
"""Seconds that a command may take, beyond its imports, where nothing is left to compute."""
OF_AN_HOUR = 61
"""Stages of ``deployments/recipes/sst2-tinybert.yaml``, which takes about an hour."""
FAST: dict[str, Any] = {"steps": 3, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}
PROBE = """
import json, sys, time
from flows.home import Home
from flows.run.environment import prepare_environment
prepare_environment(Home.from_environment().create())
started = time.perf_counter()
import prefect, prefect.flows, prefect.tasks
import mlflow
imported, cpu = time.perf_counter(), time.process_time()
imports = imported - started
import tasks.stage.context
engines = []
async def clocked(*given, run=tasks.stage.context.run_engine):
    started = time.perf_counter()
    try:
        return await run(*given)
    finally:
        engines.append(time.perf_counter() - started)
tasks.stage.context.run_engine = clocked
from flows.cli.app import main
try:
    main()
except SystemExit as end:
    status = end.code
spent = {"wall": time.perf_counter() - imported, "cpu": time.process_time() - cpu, "engines": engines, "imports": imports}
print(json.dumps(spent | {"status": status or 0, "torch": "torch" in sys.modules}))
"""  # noqa: E501


def recipe_in(
    folder: Path, students: list[dict[str, Any]], prediction: Mapping[str, Any] = FAST, **sections: Any
) -> Path:
    """Write a recipe of a tiny teacher and some students; ``sections`` are added to it."""
    values = {
        "name": "bench",
        "task": {"name": "tiny", "labels": ["negative", "positive"]},
        "data": {"source": str(write_tiny_rows(folder)), "selection_rows": 20},
        "teacher": {"model": str(write_tiny_bert(folder / "bert")), "floor": 0.0, **FAST},
        "task_distillation": {"prediction": dict(prediction)},
        "students": students,
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "gate": {"split": "validation", "criteria": [{"metric": "parameters", "at_most": 1e9}]},
        **sections,
    }
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def chain_in(folder: Path) -> Path:
    """Write a recipe of 30 stages: six of the data and the teacher, four of each student."""
    return recipe_in(
        folder,
        [
            {"name": f"student-{number}", "layers": 1 + number % 3, "seeds": [number]}
            for number in range((STAGES - 6) // 4)
        ],
    )


@contextlib.contextmanager
def servers_up(home: Path) -> Iterator[None]:
    """Run ``limbeck ui`` on a home."""
    words = [
        sys.executable,
        "-m",
        "flows.cli",
        "ui",
        "--prefect-port",
        str(free_port()),
        "--mlflow-port",
        str(free_port()),
    ]
    process = subprocess.Popen(words, env=surroundings(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + PATIENCE
        while not (home / "servers.json").exists():
            if process.poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"the servers did not start; {last_line(home / 'logs')}")
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait(60)


def last_line(logs: Path) -> str:
    """Return the last line of a log: the folder of logs goes with the benchmark's scratch."""
    lines = [line for path in sorted(logs.glob("*.log")) for line in path.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line.strip()), "they wrote no log")


def surroundings(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a run: nothing of the caller's own servers and stores, and compiled modules are kept,
    which engines, and the machines of some tests, do not."""
    left_out = (*OURS, "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"LIMBECK_HOME": str(home)} | more


def run(recipe: Path, home: Path, *sets: str, command: str = "run", **more: str) -> dict[str, Any]:
    """Run, or search, a recipe in a process of its own; return its seconds beyond its imports."""
    words = [
        sys.executable,
        "-c",
        PROBE,
        command,
        str(recipe),
        "--json",
        str(home / "out.json"),
        *(word for one in sets for word in ("--set", one)),
    ]
    done = subprocess.run(words, env=surroundings(home, **more), capture_output=True, text=True, timeout=PATIENCE)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if answer["status"]:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return answer | {"out": json.loads((home / "out.json").read_text())}


def chain(setting: Setting) -> list[Figure]:
    """A fully cached chain of 30 stages, with the store in a folder and in S3."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        recipe = chain_in(Path(scratch))
        figures = cached(setting, recipe, Path(scratch) / "folder", "folder", {})
        server = stack.enter_context(s3_server(Path(scratch) / "server"))
        environment = server.environment() | {"LIMBECK_STORE": f"s3://{BUCKET}/bench"}
        return [*figures, *cached(setting, recipe, Path(scratch) / "s3", f"S3 ({kind_here()})", environment)]


def cached(setting: Setting, recipe: Path, home: Path, store: str, environment: dict[str, str]) -> list[Figure]:
    """Return the figures of a chain of which everything is cached."""
    home.mkdir()
    with servers_up(home):
        laps = laps_again(setting, recipe, home, "run", environment)
        stages = len(laps[0]["out"]["stages"])
        assert stages == STAGES, f"the chain has {stages} stages; the target is for {STAGES}"
    return figures_of_again(f"cached chain of {STAGES} stages, {store}", "second run", laps)


def laps_again(
    setting: Setting, recipe: Path, home: Path, command: str, environment: dict[str, str]
) -> list[dict[str, Any]]:
    """Run a recipe once, then again and again, and return what the repetitions took; what the imports take in the same
    processes says how quick the machine is at such work."""
    run(recipe, home, command=command, **environment)
    laps = []
    for number in range(setting.repeats):
        again = run(recipe, home, command=command, **environment)
        states = [stage["cache"] for stage in again["out"]["stages"]]
        assert set(states) == {"hit"} and not again["torch"], "the second run must execute nothing and import no torch"
        laps.append(again)
        setting.tell(
            f"round {number + 1}: {again['wall']:.2f} s, {again['cpu']:.2f} s of this process, {len(states)} stages"
        )
    return laps


def figures_of_again(name: str, of: str, laps: list[dict[str, Any]]) -> list[Figure]:
    """Return the seconds of repetitions beyond their imports, those of the imports, and the one in the other."""
    against = "importing prefect and mlflow"
    walls, imports = [lap["wall"] for lap in laps], [lap["imports"] for lap in laps]
    shares = [wall / import_ for wall, import_ in zip(walls, imports, strict=True)]
    return [
        Figure(name, of, against, walls, "wall", BEYOND_IMPORTS, unit=" s", at_most=True),
        Figure(f"{name}: {against}", "imports", "", imports, "wall", None, unit=" s"),
        Figure(f"{name}: in imports", of, against, shares, "wall", None, at_most=True),
    ]


def cold(setting: Setting) -> list[Figure]:
    """A chain of which nothing is cached, one stage after another: what is left of its time when its engines' is taken
    away, and what they take to start."""
    seconds, starts = [], []
    with tempfile.TemporaryDirectory() as scratch:
        recipe = chain_in(Path(scratch))
        for number in range(min(setting.repeats, 3)):
            home = Path(scratch) / str(number)
            home.mkdir()
            with servers_up(home):
                first = run(recipe, home, "resources.cores=1")
            stages = len(first["out"]["stages"])
            seconds.append((first["wall"] - sum(first["engines"])) / stages)
            starts.append(engine_start(Path(scratch)))
            setting.tell(
                f"round {number + 1}: {first['wall']:.1f} s, {len(first['engines'])} engines "
                f"{sum(first['engines']):.1f} s, {stages} stages"
            )
    shares, begun = ([each * OF_AN_HOUR / 3600 for each in these] for these in (seconds, starts))
    return [
        Figure(
            f"cold chain of {stages} stages: outside of the engines, for each stage",
            "orchestration",
            "",
            seconds,
            "wall",
            None,
            unit=" s",
        ),
        Figure(
            f"the same for {OF_AN_HOUR} stages, as a share of an hour",
            "orchestration",
            "",
            shares,
            "wall",
            0.02,
            unit=" share",
            at_most=True,
        ),
        Figure("an engine's start: its imports", "engine", "", starts, "wall", None, unit=" s"),
        Figure(
            f"the same for {OF_AN_HOUR} stages, were they run one after another, as a share of an hour",
            "engine",
            "",
            begun,
            "wall",
            None,
            unit=" share",
        ),
    ]


def engine_start(folder: Path) -> float:
    """Return the seconds that an engine takes to say that it does not know its job."""
    (folder / "job.json").write_text(json.dumps({"job": "none", "output": str(folder)}))
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "tasks.training", str(folder / "job.json")], env=environment(1), capture_output=True
    )
    return time.perf_counter() - started


def sweep(setting: Setting) -> list[Figure]:
    """Sixteen students of one teacher: one worker, and two that share a store."""
    prediction = {
        **FAST,
        "steps": 3000,
    }  # half a minute: real students take longer, and what a run does once weighs less
    with tempfile.TemporaryDirectory() as scratch:
        students = [{"name": "student", "layers": 3, "seeds": list(range(STUDENTS))}]
        recipe = recipe_in(Path(scratch), students, prediction)
        ratios = []
        for number in range(max(1, setting.repeats - 2)):
            alone, both = (workers(recipe, Path(scratch) / f"{number}-{count}", count) for count in (1, 2))
            ratios.append(alone.wall / both.wall)
            setting.tell(f"round {number + 1}: one worker {alone.wall:.1f} s, two workers {both.wall:.1f} s")
    return [Figure(f"sweep of {STUDENTS} students, one teacher", "two workers", "one worker", ratios, "wall", 1.8)]


def workers(recipe: Path, folder: Path, count: int) -> Lap:
    """Run one recipe in several processes that share a store and nothing else; the teacher was trained before by one of
    them."""
    folder.mkdir()
    homes = [folder / f"worker-{number}" for number in range(count)]
    for home in homes:
        home.mkdir()
    store = {"LIMBECK_STORE": str(folder / "store")}
    only_teacher = [
        "--set",
        "students.student.seeds=[0]",
        "--set",
        "task_distillation.prediction.steps=1",
        "--set",
        "resources.cores=1",
    ]
    subprocess.run(
        words_of(recipe, homes[0], only_teacher),
        env=surroundings(homes[0], **store),
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    with contextlib.ExitStack() as stack:
        for home in homes:
            stack.enter_context(servers_up(home))
        started = time.perf_counter()
        running = [
            subprocess.Popen(
                words_of(recipe, home, ["--set", "resources.cores=1"]),
                env=surroundings(home, **store),
                stdout=subprocess.DEVNULL,
            )
            for home in homes
        ]
        statuses = [process.wait(PATIENCE) for process in running]
        lap = Lap(wall=time.perf_counter() - started)
    made = [
        stage["name"]
        for home in homes
        for stage in json.loads((home / "out.json").read_text())["stages"]
        if stage["cache"] == "miss"
    ]
    assert (
        not any(statuses)
        and made.count("distill-predictions") == STUDENTS
        and "finetune-teacher" not in made
        and "answer-rows" not in made
    ), made
    shutil.rmtree(folder)
    return lap


def words_of(recipe: Path, home: Path, more: list[str]) -> list[str]:
    """Return the command of one worker."""
    return [sys.executable, "-m", "flows.cli", "run", str(recipe), "--json", str(home / "out.json"), *more]
