"""What was deployed, at work: a real server, a real worker, real crashes. Minutes each; the fast part is in
test_deploy.py and test_resubmit.py."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterName,
    FlowRunFilterParentFlowRunId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.schemas.automations import AutomationCore
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling

from flows.deploy.deploy import DeployOptions, deploy
from flows.home import Home
from tasks.ports.tracking.tracker import Tracker
from tests.flows.test_compress import FAST, recipe_for
from tests.prefect_server import ROOT, prefect_server_of_our_own, worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PATIENCE = 900.0
DOOMED = '''
import os, signal, time
from prefect import flow
@flow
def doomed(how: str = "killed"):
    """Never ends well."""
    if how == "silent":
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.fixture(scope="module")
def running(home: Home) -> Iterator[dict[str, str]]:
    """A server with everything deployed, and a worker; what crashes is tried again after a second instead of thirty."""
    with prefect_server_of_our_own() as environment:
        settings = {
            PREFECT_API_URL: environment["PREFECT_API_URL"],
            PREFECT_API_AUTH_STRING: environment["PREFECT_API_AUTH_STRING"],
        }
        with temporary_settings(settings):
            asyncio.run(deploy(DeployOptions()))
            asyncio.run(impatient())
            known = environment | {
                "LIMBECK_HOME": str(home.root),
                "PREFECT_HOME": str(home.root / "prefect"),
                "PREFECT_LOGGING_LEVEL": "INFO",
            }
            with worker(known, home.root / "worker.log"):
                yield known


async def impatient() -> None:
    async with get_client() as client:
        [again] = await client.read_automations_by_name("limbeck, resubmit what crashed")
        again.actions[0].parameters["wait"] = 1
        await client.update_automation(again.id, AutomationCore(**again.model_dump(exclude={"id", "owner_resource"})))


def runs(name: str) -> list[FlowRun]:
    async def found() -> list[FlowRun]:
        async with get_client() as client:
            named = FlowRunFilter(name=FlowRunFilterName(any_=[name]))
            return await client.read_flow_runs(flow_run_filter=named, sort=FlowRunSort.START_TIME_DESC, limit=50)

    return asyncio.run(found())


def wait(what: Callable[[], Any], patience: float = PATIENCE) -> Any:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(2)
    raise AssertionError("it took too long")


def test_the_deployed_flow_ends_with_a_registered_and_scored_model(
    running: dict[str, str], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    changes = {
        "general_distillation": None,
        "corpus": None,
        "augmentation": None,
        "layer_dropping": None,
        "task_distillation": {"prediction": FAST},
    }
    gate = {"criteria": [{"metric": "parameters", "at_most": 1e9}], "register_as": "tiny-model", "too_good": 1.0}
    recipe = recipe_for(tiny_bert, tiny_rows, **changes, students=[{"name": "half", "layers": 2}], gate=gate)
    parameters = json.dumps({"recipe": recipe.model_dump(mode="json", exclude_unset=True)})
    command = [
        sys.executable,
        "-P",
        "-m",
        "prefect",
        "deployment",
        "run",
        "compress/own-recipe",
        "--params",
        parameters,
    ]
    done = subprocess.run(
        command, env={**os.environ, **running, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [run] = wait(lambda: [run for run in runs("tiny") if run.state and run.state.is_final()])
    assert run.state and run.state.is_completed(), run.state.message
    [version] = Tracker(home.own_tracking_uri, home.artifacts).versions("tiny-model")
    assert "champion" in version["alias"]
    # Registration is an event, the event starts the scoring, and the served model answers as the judged one did.
    [scoring] = wait(lambda: [run for run in runs("score tiny-model 1") if run.state and run.state.is_final()])
    assert scoring.state and scoring.state.is_completed(), scoring.state.message
    [scored] = Tracker(home.own_tracking_uri, home.artifacts).versions("tiny-model")
    assert scored["score.as_judged"] == "1.0000"
    assert float(scored["score.validation.accuracy"].split()[0]) == pytest.approx(float(scored["quality"]), abs=1e-4)


def doomed(folder: Path, name: str, how: str, pool: str = "cpu") -> UUID:
    """Deploy a flow that never ends well, with our tags, and start it."""
    from prefect.flows import load_flow_from_entrypoint

    (folder / "doomed.py").write_text(DOOMED)
    flow = load_flow_from_entrypoint(f"{folder / 'doomed.py'}:doomed")

    async def started() -> UUID:
        async with get_client() as client:
            deployment = await client.create_deployment(
                flow_id=await client.create_flow(flow),
                name=name,
                entrypoint="doomed.py:doomed",
                path=str(folder),
                work_pool_name=pool,
                tags=["limbeck", "limbeck-resubmit"],
                parameter_openapi_schema=flow.parameters.model_dump(),
                parameters={"how": how},
            )
            return (await client.create_flow_run_from_deployment(deployment, name=name)).id

    return asyncio.run(started())


def history(run: UUID) -> list[str]:
    async def read() -> list[str]:
        async with get_client() as client:
            states = await client.read_flow_run_states(run)
        return [state.name or "" for state in sorted(states, key=lambda state: state.timestamp)]

    return asyncio.run(read())


def test_a_run_that_always_crashes_is_given_up(running: dict[str, str], tmp_path: Path) -> None:
    run = doomed(tmp_path, "always-killed", "killed")
    [ended] = wait(lambda: [one for one in runs("always-killed") if one.state and one.state.name == "Gave up"])
    assert history(run).count("Crashed") == 3 and history(run).count("AwaitingRetry") == 2
    assert ended.run_count == 3 and ended.state and ended.state.is_failed()
    assert "is not restarted: it crashed 3 times" in (ended.state.message or "") and "out-of-memory killer" in (
        ended.state.message or ""
    )
    time.sleep(10)
    assert history(run)[-1] == "Gave up", "nothing brings it back"


def test_a_run_that_falls_silent_is_crashed_and_comes_back(running: dict[str, str], tmp_path: Path) -> None:
    """The worker dies with its run, so nobody tells the server; only the heartbeats stay away."""
    run = doomed(tmp_path, "falls-silent", "silent", asyncio.run(another_pool()))
    with worker(running, tmp_path / "worker.log", pool="other") as process:
        wait(lambda: "Running" in history(run), 200)
        time.sleep(35)  # at least one heartbeat
        for pid in below(process.pid):
            os.kill(pid, signal.SIGKILL)
    assert history(run)[-1] == "Running", "nobody has told the server yet"
    wait(lambda: "AwaitingRetry" in history(run), 300)
    assert history(run)[-2:] == ["Crashed", "AwaitingRetry"]


async def another_pool() -> str:
    """Make a pool whose worker can be killed without harm to the other tests."""
    async with get_client() as client:
        pool = await client.read_work_pool("cpu")
        await client.create_work_pool(
            WorkPoolCreate(name="other", type="process", base_job_template=pool.base_job_template)
        )
    return "other"


def below(pid: int) -> list[int]:
    """Return a process and all that it started."""
    import psutil

    process = psutil.Process(pid)
    return [pid, *(child.pid for child in process.children(recursive=True))]


LONG: dict[str, Any] = {"steps": 20_000, "evaluations": 1, "checkpoint_minutes": 0.01}
MANY = [{"name": f"half-{number}", "layers": 2, "stages": []} for number in range(26)]
"""Students of a run that is large enough for branches of its own on its page."""


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("finetune-teacher", {"teacher": {**FAST, **LONG}, "students": MANY[:1]}),
        ("distill-predictions", {"task_distillation": {"prediction": {**FAST, **LONG}}, "students": MANY}),
    ],
    ids=["task", "branches"],
)
def test_a_cancelled_run_its_task_and_its_branches_are_cancelled_without_a_traceback(
    running: dict[str, str], home: Home, tiny_bert: Path, tiny_rows: Path, task: str, changes: dict[str, Any]
) -> None:
    recipe = recipe_for(
        tiny_bert,
        tiny_rows,
        name=f"to-be-cancelled-{task}",
        corpus=None,
        general_distillation=None,
        augmentation=None,
        layer_dropping=None,
        **{**changes, "teacher": {"model": str(tiny_bert), "floor": 0.0, **FAST, **changes.get("teacher", {})}},
    )
    said_of_training = re.compile(rf"{task}\S*.*steps, loss")

    async def start_and_cancel() -> tuple[FlowRun, dict[str, str], set[str], str]:
        async with get_client() as client:
            deployment = await client.read_deployment_by_name("compress/own-recipe")
            given = {"recipe": recipe.model_dump(mode="json", exclude_unset=True)}
            earlier = len((home.root / "worker.log").read_text(errors="replace"))  # runs of other tests trained, too
            run = await client.create_flow_run_from_deployment(deployment.id, parameters=given)
            while not said_of_training.search((home.root / "worker.log").read_text(errors="replace")[earlier:]):
                assert not (await client.read_flow_run(run.id)).state.is_final()
                await asyncio.sleep(1)
            before = len((home.root / "worker.log").read_text(errors="replace"))
            await client.set_flow_run_state(run.id, Cancelling())
            while not (ended := await client.read_flow_run(run.id)).state.is_final():
                await asyncio.sleep(1)
            own = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
            tasks = {each.name: each.state.name for each in await client.read_task_runs(flow_run_filter=own)}
            below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run.id]))
            branches = {each.state.name for each in await client.read_flow_runs(flow_run_filter=below)}
            return ended, tasks, branches, (home.root / "worker.log").read_text(errors="replace")[before:]

    ended, tasks, branches, said = asyncio.run(start_and_cancel())
    assert ended.state.name == "Cancelled", ended.state
    print(f"FIGURE after Cancel: {tasks}; branches {branches}; the worker's log: {said[-3000:]}")
    if len(changes["students"]) == 1:
        assert tasks[task] == "Cancelled", tasks
    assert branches <= {"Cancelled"} and bool(branches) == (len(changes["students"]) > 1), branches
    # Prefect's own watchers print one before it where a busy server did not answer in time.
    stopped = said[said.index("Stopped: its run was cancelled") :]
    assert "Traceback" not in stopped, stopped
