"""A fleet: what a thousand stages on a hundred workers cost the servers of ``limbeck up``, and whether each is computed
once.

Eight workers are real, 92 are simulated (``parts.py``); all poll every 15 seconds, over the loopback address. A
stage sleeps instead of training. Counted is the processor time of Prefect's API servers and services, from the first
request of a run to its end, for a tenth of the stages and for all. On a machine that is too busy to keep the pace of
the fleet, cores would look better than they are: the second figure is the processor time of a stage times the stages
that such a fleet ends in a second. At the end a deployed run of the product, whose trainings go to the pool
``gpu-local`` of the same servers, registers a champion.

    FLEET_WORKERS=100 FLEET_REAL=8 FLEET_STAGES=1000 FLEET_SECONDS=30 make bench BENCH=fleet
"""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from flows.deploy.pools import local_pool
from flows.stack.credentials import WORKER
from flows.stack.databases import sql
from flows.stack.services import client_environment
from tests.benchmarks.measure import Figure
from tests.benchmarks.orchestration import recipe_in
from tests.benchmarks.setting import Setting
from tests.flows.stack.running import ROOT, Running, eventually

POOL, POLL_SECONDS, CORES = "fleet", 15, 0.5
PATIENCE = 1800.0
IDLE_SECONDS = 60.0  # four polls of each worker
PARTS = "tests.benchmarks.fleet.parts"
COUNTED = ("api-1", "api-2", "services")
BESIDE = ("postgres", "redis", "proxy")


@dataclass(frozen=True)
class Size:
    """The size of a fleet, and of its work."""

    workers: int
    real: int
    stages: int
    seconds: float


@dataclass(frozen=True)
class Spent:
    """What a run took."""

    stages: int
    wall: float
    cpu: Mapping[str, float]
    """Processor seconds of each process of the stack."""

    @property
    def counted(self) -> float:
        """Processor seconds of Prefect's API servers and services."""
        return sum(self.cpu[name] for name in COUNTED)


def size_of(setting: Setting) -> Size:
    """Return the size that was asked for; a quick one is a tenth."""
    usual = Size(10, 2, 100, 5.0) if setting.quick else Size(100, 8, 1000, 30.0)
    told = os.environ
    return Size(
        int(told.get("FLEET_WORKERS", usual.workers)),
        int(told.get("FLEET_REAL", usual.real)),
        int(told.get("FLEET_STAGES", usual.stages)),
        float(told.get("FLEET_SECONDS", usual.seconds)),
    )


def fleet(setting: Setting) -> list[Figure]:
    """Run a tenth of the stages, then all, on one fleet."""
    size, running = size_of(setting), Running()
    try:
        running.up()
        require_deployed(running)
        deploy(running, size.workers)
        with workers(running, size):
            idle = idle_cores(setting, running)
            spent = [measured(setting, running, size, stages) for stages in (size.stages // 10, size.stages)]
            require_champion(setting, running)
    except BaseException:  # its ledger and its logs are wanted
        running.limbeck("down")
        raise
    running.remove()
    return figures(size, idle, *spent)


def idle_cores(setting: Setting, running: Running) -> float:
    """Return the cores that API and services take while the fleet only polls and beats."""
    before, began = processor_seconds(running), time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds, wall = processor_seconds(running), time.monotonic() - began
    cores = sum(seconds[name] - before[name] for name in COUNTED) / wall
    setting.tell(f"the idle fleet: {cores:.3f} cores")
    return cores


def figures(size: Size, idle: float, few: Spent, many: Spent) -> list[Figure]:
    """Return the cores that the servers took, and how their time grows with the stages."""
    of = f"{many.stages} stages of {size.seconds:g} s on {size.workers} workers, {size.real} of them real"
    each = many.counted / many.stages
    pace = size.workers / (size.seconds + POLL_SECONDS / 2)
    growth = each / (few.counted / few.stages)
    beside = {name: [seconds / many.stages] for name, seconds in many.cpu.items()}
    wall = f"{many.wall:.0f} s on the wall"
    at_pace = f"{pace:.2f} stages a second: each worker waits for half of a poll, then sleeps"
    per = {"unit": " s", "note": "the other figures: seconds of each process", "other": beside}
    bound = {"unit": "", "at_most": True}
    return [
        Figure("cores of API and services", of, "", [many.counted / many.wall], "cpu", CORES, note=wall, **bound),
        Figure("the same at the pace of the fleet", of, "", [each * pace], "cpu", CORES, note=at_pace, **bound),
        Figure("the same while nothing is requested", of, "", [idle], "cpu", None, **bound),
        Figure("time of API and services for a stage", of, "", [each], "cpu", None, **per),
        Figure("the same, growth", of, f"{few.stages} stages", [growth], "cpu", 1.0, at_most=True),
    ]


def require_deployed(running: Running) -> None:
    """Deploy the product's own flows."""
    done = running.limbeck("deploy", "--gpus", "2")
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)


def require_champion(setting: Setting, running: Running) -> None:
    """Start a deployed run, and raise AssertionError unless it registers a champion."""
    values = yaml.safe_load(recipe_in(running.root, [{"name": "half", "layers": 2}]).read_text())
    values |= {"gate": {**values["gate"], "register_as": "of-a-fleet", "too_good": 1.0}}
    deployment = running.ask("deployments/name/compress/own-recipe")["id"]
    run = running.ask(f"deployments/{deployment}/create_flow_run", {"parameters": {"recipe": values}})["id"]
    began = time.monotonic()
    eventually(lambda: running.state(run) in ("COMPLETED", "FAILED"), f"run {run} did not end", PATIENCE)
    asked = "select name || ' ' || version from registered_model_aliases where alias = 'champion'"
    champion = sql(running.stack, running.secret, asked, "mlflow")
    assert running.state(run) == "COMPLETED" and champion == "of-a-fleet 1", running.ask(f"flow_runs/{run}")["state"]
    setting.tell(f"a deployed run registered {champion} after {time.monotonic() - began:.0f} s")


def deploy(running: Running, workers: int) -> None:
    """Make the pool, with a place for each worker as ``limbeck deploy --gpus`` gives it, and the deployment of the
    sleeping stage. Without a limit, every poll of a busy fleet would return the whole queue."""
    running.ask("work_pools/", {"name": POOL, "type": "process", **local_pool("cpu"), "concurrency_limit": workers})
    flow = next(one["id"] for one in running.ask("flows/filter", {}) if one["name"] == "stage")
    wanted = {
        "name": POOL,
        "flow_id": flow,
        "entrypoint": f"{PARTS.replace('.', '/')}.py:sleeping_stage",
        "work_pool_name": POOL,
        "pull_steps": [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}],
        "enforce_parameter_schema": False,
    }
    running.ask("deployments/", wanted)


@contextlib.contextmanager
def workers(running: Running, size: Size) -> Iterator[None]:
    """Run the fleet, and wait until each worker is online."""
    simulated = size.workers - size.real
    real = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--limit", "1"]
    commands = [[*real, "--name", f"{POOL}-{number}"] for number in range(size.real)]
    commands += [[sys.executable, "-m", PARTS, "workers", POOL, str(size.real), str(simulated)]]
    started = [start(running, command, number) for number, command in enumerate(commands)]
    try:
        until = time.monotonic() + 600
        while online(running) < size.workers:
            if time.monotonic() > until or any(process.poll() is not None for process in started):
                raise RuntimeError(f"{online(running)} of {size.workers} workers are online; see {running.root}")
            time.sleep(2)
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def start(running: Running, command: list[str], number: int) -> subprocess.Popen[bytes]:
    """Start a process with the token of the stack's own workers: the server sees what it sees from them."""
    told = {
        "PATH": os.environ["PATH"],
        **client_environment(running.stack, running.secret, WORKER),
        "PREFECT_HOME": str(running.root / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": str(POLL_SECONDS),
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PYTHONPATH": str(ROOT),
    }
    with (running.root / f"fleet-{number}.log").open("wb") as log:
        return subprocess.Popen(command, env=told, cwd=running.root, stdout=log, stderr=log)


def online(running: Running) -> int:
    """Return the number of workers that are online."""
    found = running.ask(f"work_pools/{POOL}/workers/filter", {"limit": 200})
    return sum(worker["status"] == "ONLINE" for worker in found)


def measured(setting: Setting, running: Running, size: Size, stages: int) -> Spent:
    """Run some stages and return what they took; raise RuntimeError if one was lost, or computed twice."""
    ledger = running.root / f"ledger-{stages}"
    before, began = processor_seconds(running), time.monotonic()
    words = ["request", f"stage/{POOL}", str(stages), str(size.seconds), str(ledger)]
    done = start(running, [sys.executable, "-m", PARTS, *words], stages).wait()
    wall, after = time.monotonic() - began, processor_seconds(running)
    require_once(ledger, stages, done)
    spent = Spent(stages, wall, {name: after[name] - before[name] for name in before})
    setting.tell(
        f"{stages} stages, each once, in {wall:.0f} s: "
        + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.cpu.items())
    )
    return spent


def require_once(ledger: Path, stages: int, status: int) -> None:
    """Raise RuntimeError unless every stage began once and ended once, for the run that requested it."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    for what in ("began", "ended"):
        times = collections.Counter(line.split()[1] for line in lines if line.startswith(what))
        twice = [key for key, number in times.items() if number > 1]
        if len(times) != stages or twice:
            raise RuntimeError(f"{what}: {len(times)} of {stages} stages, {len(twice)} of them twice; see {ledger}")
    made = Path(f"{ledger}.made")
    if status or not made.exists() or int(made.read_text()) != stages:
        raise RuntimeError(f"the run that requested them ended with status {status}; see {ledger.parent}")


def processor_seconds(running: Running) -> dict[str, float]:
    """Return the processor time of each process of the stack and its children, so far."""
    found = {}
    for name in (*COUNTED, *BESIDE):
        parent = psutil.Process(running.pid(name))
        times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
        found[name] = sum(one.user + one.system for one in times) + parent.cpu_times().children_user
    return found
