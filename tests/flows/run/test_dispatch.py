"""Stages that go to a pool: a real Prefect server, a real worker, and runs that ask it for what the store does not
have."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from flows.cli.runner import run_recipe
from flows.deploy.gpu_pool import create_request
from flows.deploy.pools import LOCAL_GPUS, device_variable, local_pool
from flows.home import Home
from flows.run.remote import CONTAINERS_PATIENCE, USUAL_DEPLOYMENT, find_placement
from flows.stack.checks.finding import WARNING
from flows.stack.doctor import gpu_stages_elsewhere
from flows.stack.settings import Stack
from flows.stage_run import STAGE_TASKS, make_stage
from tasks.errors import DispatchError, NoWorker, RecipeError
from tasks.ports.machine import device_class
from tasks.ports.store.open import open_store
from tasks.ports.tracking.run_files import read_curves
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.work_pools import DEVICE
from tasks.recipe.recipe import Recipe
from tasks.stage.keys import WITHOUT_A_MODEL
from tasks.stage.orders import StageOrder
from tests.command_line import Command, plan_recipe
from tests.flows.test_compress import FAST, recipe_for, teacher_alone
from tests.s3_server import BUCKET, S3Server

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 1500.0  # a hang ends the test; a slow machine does not


@dataclass
class Pool:
    """A work pool that names its hardware, the deployment ``stage/gpu`` that `limbeck deploy` makes for it, and what
    its workers know."""

    name: str
    url: str
    home: Home
    device: str = field(default_factory=device_class)
    kind: str = "process"
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    """Runs that tests started; one that a test gave up must not outlive it."""

    def environment(self, **more: str) -> dict[str, str]:
        """Return what a worker's processes find in their environment."""
        return {
            "PREFECT_API_URL": self.url,
            "PREFECT_HOME": os.environ["PREFECT_HOME"],
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PYTHONPATH": str(ROOT),
            "LIMBECK_HOME": str(self.home.root),
            "OMP_NUM_THREADS": "1",
            "PREFECT_LOGGING_LEVEL": "INFO",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule",
            **more,
        }

    def deploy(self, **more: str) -> None:
        """Create the pool and the deployment, or change what its workers know."""

        async def apply() -> None:
            from prefect.client.orchestration import get_client
            from prefect.deployments.runner import EntrypointType
            from prefect.exceptions import ObjectAlreadyExists

            definition = {**local_pool(LOCAL_GPUS), "type": self.kind}
            definition["base_job_template"]["variables"]["properties"][DEVICE] = device_variable(self.device)
            async with get_client() as client:
                with contextlib.suppress(ObjectAlreadyExists):
                    await client.create_work_pool(create_request(self.name, definition))
            deployment = await make_stage.ato_deployment(
                "gpu",
                work_pool_name=self.name,
                entrypoint_type=EntrypointType.MODULE_PATH,
                job_variables={"env": {"LIMBECK_HOME": str(self.home.root), "PREFECT_LOGGING_LEVEL": "INFO", **more}},
            )
            await deployment.aapply()

        asyncio.run(apply())

    def start_worker(self) -> None:
        """Start a worker, as a machine of the pool does."""
        command = [
            sys.executable,
            "-m",
            "prefect",
            "worker",
            "start",
            "--pool",
            self.name,
            "--type",
            "process",
            "--name",
            f"{self.name}-{len(self.workers)}",
        ]
        self.start(command)

    def execute(self, run: UUID) -> subprocess.Popen[bytes]:
        """Start one flow run, as a container that a worker on ECS or Kubernetes starts does."""
        return self.start([sys.executable, "-m", "prefect", "flow-run", "execute", str(run)])

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a process that hears signals as one under an init system does."""
        with (self.home.root / f"worker-{len(self.workers)}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment()},
                cwd=self.home.root,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=hear_signals,
            )
        self.workers.append(process)
        return process

    def runs(self) -> list[Any]:
        """Return the flow runs of the deployment, the oldest first."""

        async def ask() -> list[Any]:
            from prefect.client.orchestration import get_client
            from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName
            from prefect.client.schemas.sorting import FlowRunSort

            async with get_client() as client:
                own = DeploymentFilter(name=DeploymentFilterName(any_=["gpu"]))
                return await client.read_flow_runs(deployment_filter=own, sort=FlowRunSort.ID_DESC, limit=200)

        return sorted(asyncio.run(ask()), key=lambda run: run.created)

    def names(self) -> list[str]:
        return [run.name for run in self.runs()]

    def wait(self, what: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < until, [(run.name, run.state) for run in self.runs()]
            time.sleep(0.5)

    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.home.root.glob("worker-*.log")))

    def stop(self) -> None:
        asyncio.run(self.withdraw())
        for process in (*self.workers, *self.started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    async def withdraw(self) -> None:
        """Delete the deployment: other tests have no pool for their stages."""
        from prefect.client.orchestration import get_client
        from prefect.exceptions import ObjectNotFound

        async with get_client() as client:
            with contextlib.suppress(ObjectNotFound):
                await client.delete_deployment((await client.read_deployment_by_name(USUAL_DEPLOYMENT)).id)


def hear_signals() -> None:
    """Hear SIGINT, by which a worker stops itself: a shell that runs the tests in its background has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def pool(prefect_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A pool without a worker; runs of this test send their stages there, because it is deployed and all share a
    store."""
    made = Pool(f"gpu-{tmp_path.name[-40:]}".replace("_", "-"), prefect_url, Home(tmp_path / "home").create())
    monkeypatch.setenv("LIMBECK_DISPATCH_GRACE", "3")
    monkeypatch.setenv("LIMBECK_HOME", str(made.home.root))
    monkeypatch.setenv("LIMBECK_STORE", str(made.home.root / "store"))
    yield made
    made.stop()


SERVED = {"gpu_pool": "require", "worker_seconds": 3600}
"""Where tests play the worker themselves, and execute flow runs by hand."""


def small(bert: Path, rows: Path, served: Mapping[str, Any] = SERVED, **teacher: Any) -> Recipe:
    """Return a recipe of one student; one core everywhere, so that sums are added up in one order."""
    changes: dict[str, Any] = {
        "corpus": None,
        "general_distillation": None,
        "augmentation": None,
        "layer_dropping": None,
        "resources": {"cores": 1, "threads_alone": 1, **served},
        "task_distillation": {"prediction": FAST},
        "students": [{"name": "half", "layers": 2, "stages": []}],
        "teacher": {"model": str(bert), "floor": 0.0, **FAST, **teacher},
    }
    return recipe_for(bert, rows, **changes)


def digests(result: dict[str, Any]) -> dict[str, str]:
    """Return what every stage made that measures nothing."""
    return {row["stage"]: row["sha256"] for row in result["manifest"]["stages"] if not row["measured"]}


def made_alone(recipe: Recipe, root: Path) -> dict[str, Any]:
    """Return the result of a run that computes everything itself, in a home and a store of its own."""
    with pytest.MonkeyPatch.context() as alone:
        alone.setenv("LIMBECK_DISPATCH", "none")
        alone.delenv("LIMBECK_STORE")
        return run_recipe(recipe, home=Home(root).create())


def test_a_stage_for_a_gpu_is_made_by_the_pool_once(
    pool: Pool, engines_here: None, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(tiny_bert, tiny_rows, evaluations=2)
    pool.deploy(LIMBECK_STORE=str(tmp_path / "elsewhere"))
    pool.start_worker()
    with pytest.raises(
        DispatchError,
        match="the run stores its results in .*/store, and this worker in .*/elsewhere; set LIMBECK_STORE to the "
        "same store",
    ):
        asyncio.run(teacher_alone(recipe))
    pool.deploy()
    first = asyncio.run(teacher_alone(recipe))
    assert [run.state.type.value for run in pool.runs()] == ["FAILED", "COMPLETED"], "what failed was asked for again"
    assert all(run.parent_task_run_id for run in pool.runs()), "each is drawn inside of the run that asked for it"
    assert first[1].cache == "miss" and first[1].used["cpu_seconds"] > 0 and first[1].sent is not None
    tracker = Tracker(pool.home.tracking_uri, pool.home.artifacts)
    assert read_curves(tracker, [first[1].key], experiment=f"tiny/{tiny_bert.name.lower()}"), (
        "the worker sent its curve to the run's page in MLflow"
    )

    again = asyncio.run(teacher_alone(recipe))
    assert {record.cache for record in again} == {"hit"} and len(pool.runs()) == 2, "a run of hits starts nothing"
    asked = pool.runs()[-1].parameters["order"]
    other = StageOrder.model_validate(
        {**asked, "explanation": {**asked["explanation"], "device": "cuda", "code": "0" * 64}}
    )
    with pytest.raises(
        DispatchError, match="would compute another result than requested .code: 00000000… → .*; device: cuda → cpu"
    ):
        asyncio.run(make_stage(other))

    monkeypatch.setenv("LIMBECK_DISPATCH", "none")
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "embedded"))
    monkeypatch.delenv("LIMBECK_STORE")
    embedded = asyncio.run(teacher_alone(recipe))
    assert [(record.cache, record.artifact.sha256) for record in embedded] == [
        ("miss", record.artifact.sha256) for record in first
    ]


def test_a_pool_that_nobody_serves_stops_a_run_or_leaves_the_stages_to_it(
    pool: Pool, engines_here: None, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.device = "cuda-a10g"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", pool.home.own_tracking_uri)
    pool.deploy()
    stops = small(tiny_bert, tiny_rows, {"gpu_pool": "require", "worker_seconds": 1})
    with pytest.raises(NoWorker, match=f"the work pool '{pool.name}' has had no live worker for 1 seconds; start one"):
        run_recipe(stops, home=pool.home)
    goes_on = small(tiny_bert, tiny_rows, {"worker_seconds": 1})
    result = run_recipe(goes_on, home=pool.home)
    assert {run.state.name for run in pool.runs()} == {"Cancelled"} and len(pool.runs()) == 2
    trained = {row["stage"]: row["explanation"]["device"] for row in kept(pool) if row["stage"] in STAGE_TASKS}
    assert set(trained.values()) == {device_class()}, "its key names the hardware that made it"
    monkeypatch.setenv("LIMBECK_DISPATCH", "none")
    assert digests(run_recipe(goes_on, home=pool.home)) == digests(result)


def test_a_stage_whose_worker_died_before_it_started_is_not_waited_for_for_ever(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a flow run stays Pending: it sends no heartbeats that could be missed."""
    monkeypatch.setattr("flows.run.remote.STARTED_WITHIN", 1.0)
    pool.deploy()

    async def take(run: UUID) -> None:
        from prefect.client.orchestration import get_client
        from prefect.states import Pending

        async with get_client() as client:
            await client.set_flow_run_state(run, Pending())

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(copy_context().run, asyncio.run, teacher_alone(small(tiny_bert, tiny_rows)))
        pool.wait(lambda: bool(pool.runs()) or asking.done())
        asyncio.run(take(pool.runs()[0].id))
        said = "crashed, and was not restarted .*a worker took it and did not start it within 1 seconds"
        with pytest.raises(DispatchError, match=said):
            asking.result(PATIENCE)
    assert [run.state.name for run in pool.runs()] == ["Crashed"]


def kept(pool: Pool) -> list[Mapping[str, Any]]:
    """Return the manifests of the pool's store."""
    return list(open_store(pool.home.store, pool.home.cache).manifests())


def test_where_stages_go_follows_from_what_is_deployed(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(tiny_bert, tiny_rows, {"worker_seconds": 1})
    monkeypatch.setenv("PREFECT_API_URL", pool.url)  # as after eval "$(limbeck env)"
    path = pool.home.root / "small.json"
    path.write_text(recipe.model_dump_json(exclude_unset=True))

    def said() -> str:
        placed = asyncio.run(find_placement(recipe))
        assert placed.words in " ".join(command("plan", str(path)).output.split()), "a plan says it, too"
        return placed.words

    def doctor() -> tuple[str, str]:
        (found,) = gpu_stages_elsewhere(Stack.of(pool.home))
        return found.state, found.details

    nowhere = "stages that run models are computed in the run itself: "
    assert doctor() == (WARNING, "in the runs themselves: nothing is deployed yet")
    assert said() == f"{nowhere}this Prefect server has no deployment stage/gpu with a pool (limbeck deploy)"
    pool.deploy()
    there = f"stages that run models go to the work pool {pool.name} of the deployment stage/gpu, on {device_class()}"
    assert said() == there
    limit = local_pool(LOCAL_GPUS)["concurrency_limit"]
    nobody = f"in the pool {pool.name}, on {device_class()}, {limit} at once; it has no live worker"
    assert doctor() == (WARNING, nobody), "the doctor says it of a server of another machine, too"
    monkeypatch.delenv("LIMBECK_STORE")
    assert (
        said() == f"{nowhere}the workers of the pool {pool.name} cannot be known to share the store; set LIMBECK_STORE"
    )
    monkeypatch.setenv("LIMBECK_STORE", str(pool.home.store))
    ignored = small(tiny_bert, tiny_rows, {"gpu_pool": "ignore"})
    assert asyncio.run(find_placement(ignored)).dispatcher is None


def test_a_run_whose_stages_are_containers_does_not_train_in_its_own(
    pool: Pool, tiny_bert: Path, tiny_rows: Path
) -> None:
    """While its dispatcher was replaced, or the pool paused, all stages of a run went to a task with one core."""
    pool.kind, pool.device = "ecs", "cuda-a10g"
    pool.deploy()

    def placed(**resources: Any) -> tuple[bool, float]:
        dispatcher = asyncio.run(find_placement(small(tiny_bert, tiny_rows, resources))).dispatcher
        assert dispatcher is not None
        return dispatcher.required, dispatcher.worker_seconds

    assert placed() == (True, CONTAINERS_PATIENCE)
    assert placed(gpu_pool="prefer", worker_seconds=30) == (False, 30), "what a recipe says holds"


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("LIMBECK_DISPATCH", "gpu", "name a deployment of the flow 'stage', for example stage/gpu"),
        (
            "LIMBECK_DISPATCH",
            "stage/nowhere",
            "names the deployment 'stage/nowhere', which is not on this Prefect server; create it",
        ),
        (
            "LIMBECK_DISPATCH_DEVICE",
            "gpu",
            "is 'gpu'; set it to the device class of the pool's workers, for example cuda-a10g or cpu-avx512-intel",
        ),
        (
            "LIMBECK_DISPATCH_DEVICE",
            "",
            "is not set, and LIMBECK_DISPATCH is; .* python -m tasks.ports.machine on a worker prints it",
        ),
        ("LIMBECK_DISPATCH_GRACE", "soon", "set it to seconds, for example 120"),
        ("LIMBECK_GPU_LIMIT", "a/b", "name a global concurrency limit of the Prefect server, for example gpu"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_spent(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, said: str
) -> None:
    if setting.startswith("LIMBECK_DISPATCH"):
        monkeypatch.setenv("LIMBECK_DISPATCH", USUAL_DEPLOYMENT)
        monkeypatch.setenv("LIMBECK_DISPATCH_DEVICE", device_class())
    monkeypatch.setenv(setting, value)
    with pytest.raises((DispatchError, RecipeError), match=said):
        run_recipe(small(tiny_bert, tiny_rows), home=pool.home)
    assert not (pool.home.root / "store" / "manifests").exists() or not list(
        (pool.home.root / "store" / "manifests").glob("*/*")
    )


def test_every_stage_that_runs_models_has_its_door_in_the_flow() -> None:
    found = set()
    for path in (ROOT / "tasks").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            for call in [
                one
                for one in getattr(node, "decorator_list", [])
                if isinstance(one, ast.Call) and ast.unparse(one.func) == "stage"
            ]:
                given = {
                    keyword.arg: ast.literal_eval(keyword.value)
                    for keyword in call.keywords
                    if isinstance(keyword.value, ast.Constant)
                }
                if given.get("engine", "tokenize") not in WITHOUT_A_MODEL and "module" not in given:
                    found.add(node.name.replace("_", "-"))
    assert found == set(STAGE_TASKS)


# --- what dies, and what goes on --------------------------------------------------------------------------------------


def start_run(pool: Pool, recipe: Recipe, out: Path | None = None) -> subprocess.Popen[str]:
    """Start a run in a process of its own, as a terminal does."""
    path = pool.home.root / f"{recipe.name}.json"
    path.write_text(recipe.model_dump_json(exclude_unset=True))
    words = ["run", str(path), *(["--json", str(out)] if out else [])]
    settings = {name: value for name, value in os.environ.items() if name.startswith("LIMBECK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *words],
        cwd=ROOT,
        env={**os.environ, **pool.environment(), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_signals,
    )
    pool.started.append(process)
    return process


def training(pool: Pool) -> Callable[[], bool]:
    """Return a question: has the newest worker's teacher begun to learn?"""
    return lambda: "steps, loss" in pool.log() and any(run.state.is_running() for run in pool.runs())


def mlflow_statuses(pool: Pool) -> set[str]:
    with contextlib.closing(sqlite3.connect(pool.home.root / "mlflow.db")) as database:
        return {status for (status,) in database.execute("select status from runs")}


LONG = {"steps": 1500, "evaluations": 1}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_whole_recipe_by_the_pool_is_the_same_as_here(
    pool: Pool, engines_here: None, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.deploy()
    pool.start_worker()
    recipe = recipe_for(tiny_bert, tiny_rows, resources={"cores": 1, "threads_alone": 1})
    assert {row["cache"] for row in plan_recipe(recipe, home=pool.home)} == {"miss"}
    first = run_recipe(recipe, home=pool.home)
    sent = [row for row in first["ledger"]["stages"] if row["stage"].partition("/")[0] in STAGE_TASKS]
    assert sorted(pool.names()) == sorted(row["stage"] for row in sent)
    assert all(
        row["cache"] == "miss" and row["used"]["cpu_seconds"] > 0 and row["cost"]["kwh"]["value"] > 0 for row in sent
    ), sent
    assert {run.state.type.value for run in pool.runs()} == {"COMPLETED"} and mlflow_statuses(pool) == {"FINISHED"}
    again = run_recipe(recipe, home=pool.home)
    assert {stage["cache"] for stage in again["stages"]} == {"hit"} and len(pool.runs()) == len(sent)
    assert digests(made_alone(recipe, tmp_path / "embedded")) == digests(first)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_that_was_killed_finds_its_stages_at_work(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    pool.deploy()
    pool.start_worker()
    first = start_run(pool, small(tiny_bert, tiny_rows, **LONG))
    pool.wait(training(pool))
    first.kill()
    first.wait()
    second = start_run(pool, small(tiny_bert, tiny_rows, **LONG), tmp_path / "out.json")
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert "finetune-teacher: waits for the flow run 'finetune-teacher'" in out, out
    assert pool.names() == ["finetune-teacher", "answer-rows", "distill-predictions/half"], "one flow run for each key"
    assert {run.state.type.value for run in pool.runs()} == {"COMPLETED"} and {
        run.run_count for run in pool.runs()
    } == {1}
    assert len(json.loads((tmp_path / "out.json").read_text())["models"]) == 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_a_person_stops_stops_its_stages(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, number: signal.Signals
) -> None:
    pool.deploy()
    pool.start_worker()
    first = start_run(pool, small(tiny_bert, tiny_rows, **LONG))
    pool.wait(training(pool))
    first.send_signal(number)
    out, err = first.communicate(timeout=PATIENCE)
    # before it stands, in a new home, that its databases are prepared
    last = "limbeck: stopped; run the same command again to continue from there"
    assert first.returncode == 130 and err.strip().splitlines()[-1] == last, err
    pool.wait(lambda: {run.state.type.value for run in pool.runs()} == {"CANCELLED"})
    assert mlflow_statuses(pool) == {"KILLED", "FINISHED"}
    assert not list((pool.home.root / "store" / "temporary").iterdir())
    second = start_run(pool, small(tiny_bert, tiny_rows, **LONG))
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert "resuming at step" in pool.log()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_stage_whose_worker_gets_sigterm_goes_on_elsewhere(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    """``LIMBECK_SIGTERMS=20`` says how often; what comes out must be what an undisturbed run makes."""
    pool.deploy()
    times = int(os.environ.get("LIMBECK_SIGTERMS", "2"))
    recipe = small(tiny_bert, tiny_rows, steps=500 + 500 * times, evaluations=1)
    parent = start_run(pool, recipe, tmp_path / "out.json")
    pool.wait(lambda: bool(pool.runs()))
    run = pool.runs()[0].id
    for _ in range(times):
        said = pool.log().count("steps, loss")
        worker = pool.execute(run)
        pool.wait(lambda said=said: pool.log().count("steps, loss") > said)  # type: ignore[misc]
        worker.terminate()
        assert worker.wait(PATIENCE) == 0, pool.log()[-3000:]
        assert pool.runs()[0].state.name == "AwaitingRetry", pool.runs()[0].state
    pool.start_worker()
    out, err = parent.communicate(timeout=PATIENCE)
    assert parent.returncode == 0, err
    assert pool.log().count("resuming at step") == times, pool.log()
    assert (
        pool.names() == ["finetune-teacher", "answer-rows", "distill-predictions/half"]
        and pool.runs()[0].run_count == times + 1
    )
    assert digests(made_alone(recipe, tmp_path / "embedded")) == digests(
        json.loads((tmp_path / "out.json").read_text())
    )


def processes_of(run: UUID) -> list[int]:
    """Return every process that works on a flow run: they inherit its id."""
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"PREFECT__FLOW_RUN_ID={run}".encode() in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
    return found


async def resubmit(run: UUID) -> None:
    """Do what an automation does with a flow run that crashed."""
    from prefect.client.orchestration import get_client
    from prefect.states import AwaitingRetry

    async with get_client() as client:
        await client.set_flow_run_state(run, AwaitingRetry(), force=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_stage_whose_processes_are_killed_comes_back(
    pool: Pool, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMBECK_DISPATCH_GRACE", "600")
    pool.deploy()
    pool.start_worker()
    parent = start_run(pool, small(tiny_bert, tiny_rows, checkpoint_minutes=0.01, **LONG))
    pool.wait(training(pool))
    run = pool.runs()[0].id
    for process in processes_of(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    pool.wait(lambda: pool.runs()[0].state.is_crashed())
    asyncio.run(resubmit(run))
    out, err = parent.communicate(timeout=PATIENCE)
    assert parent.returncode == 0, err
    assert (
        pool.names() == ["finetune-teacher", "answer-rows", "distill-predictions/half"]
        and pool.runs()[0].run_count == 2
    )
    assert "its flow run is Crashed" in out and "resuming at step" in pool.log()
    assert mlflow_statuses(pool) == {"KILLED", "FINISHED"}, "what the dead worker left open was ended with the run"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_worker_needs_nothing_of_the_run_but_its_bucket_and_its_servers(
    pool: Pool,
    s3: S3Server,
    engines_here: None,
    tiny_bert: Path,
    tiny_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = Home(tmp_path / "far").create()
    monkeypatch.setenv("LIMBECK_STORE", f"s3://{BUCKET}/{tmp_path.name}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", pool.home.own_tracking_uri)
    settings = {name: os.environ[name] for name in ("LIMBECK_STORE", "MLFLOW_TRACKING_URI", *s3.environment())}
    pool.deploy(**settings, LIMBECK_HOME=str(far.root))
    pool.start_worker()
    result = run_recipe(small(tiny_bert, tiny_rows), home=pool.home)
    assert {stage["cache"] for stage in result["stages"]} == {"miss"} and len(pool.runs()) == 3
    teacher = result["manifest"]["sources"]["teacher"]["sha256"]
    assert (far.cache / "objects" / teacher[:2] / teacher / "model.safetensors").is_file(), (
        "the teacher's files went through the bucket"
    )
