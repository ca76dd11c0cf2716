"""AWS takes an instance back: the notice is heard, stages stop at a checkpoint, Prefect hands the run on, and another
worker ends it.

Everything is real but the metadata service: Prefect's server, ``prefect flow-run execute`` as it runs in a container,
the engines, the store. ``LIMBECK_NOTICES=20`` says how often the slow test takes the instance away.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from flows.cli.runner import run_recipe
from flows.home import Home
from flows.run.spot import find_supervisor, heeding_notices, on_spot
from tasks.errors import RecipeError
from tasks.ports.spot import Metadata, Notice, notice_from
from tests.flows.run.test_dispatch import PATIENCE, Pool, digests, pool, small, start_run
from tests.infra.fake_metadata import NOTICE, Service
from tests.infra.namespace import Namespace, metadata_service, namespace, why_not
from tests.infra.spot_flow import teacher_alone
from tests.web_server import free_port

ROOT = Path(__file__).resolve().parents[2]
__all__ = ["pool"]
WORDS = '{"action": "terminate", "time": "2026-11-22T08:22:00Z"}'


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    running = Service("127.0.0.1", free_port(), tmp_path / "notice")
    threading.Thread(target=running.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://{}:{}/".format(*running.server_address))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # a proxy that is not there must not be asked
    yield running
    running.shutdown()
    running.server_close()


def test_a_token_is_asked_for_first_and_again_when_it_is_refused(service: Service) -> None:
    metadata = Metadata()
    assert [metadata.notice() for _ in range(3)] == [None, None, None]
    service.notice.write_text(WORDS)
    assert metadata.notice() == Notice("terminate", "2026-11-22T08:22:00Z")
    put, get = "PUT /latest/api/token 200", f"GET {NOTICE}"
    assert service.asked.read_text().splitlines() == [
        put,
        f"{get} 404",
        f"{get} 404",
        f"{get} 401",
        put,
        f"{get} 404",
        f"{get} 200",
    ], "and nothing else"


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"action": 1}', b'{"action": "x; rm -rf /", "time": "\\n"}', b"\xff"]
)
def test_a_notice_that_cannot_be_read_is_one_all_the_same(body: bytes) -> None:
    assert notice_from(body) == Notice("terminate", "soon")


def test_a_service_that_is_not_there_is_an_error_and_not_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(OSError):
        Metadata().notice()


def test_only_pools_that_say_so_are_on_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIMBECK_SPOT", raising=False)
    assert not on_spot()
    monkeypatch.setenv("LIMBECK_SPOT", "aws")
    assert on_spot()
    monkeypatch.setenv("LIMBECK_SPOT", "yes")
    with pytest.raises(RecipeError, match="LIMBECK_SPOT is 'yes'; set it to aws on EC2 spot instances, or unset it"):
        on_spot()


def test_a_notice_stops_what_runs_inside_and_nothing_else(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Prefect's supervisor above, the run ends as one that was cut off; one that ends first is left alone."""
    monkeypatch.setenv("LIMBECK_SPOT", "aws")
    monkeypatch.setattr("flows.run.spot.NOTICE_POLL_SECONDS", 0.05)
    monkeypatch.setattr("flows.run.spot.get_run_logger", lambda: __import__("logging").getLogger())

    async def work(seconds: float) -> str:
        async with heeding_notices():
            await asyncio.sleep(seconds)
        return "done"

    assert asyncio.run(work(0.2)) == "done"
    service.notice.write_text(WORDS)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work(PATIENCE))


def test_the_supervisor_is_found_at_some_distance(tmp_path: Path) -> None:
    """Prefect starts a flow run through processes of its own; the one to ask is the one that was started to execute
    it."""
    ask = "from flows.run.spot import find_supervisor; print(find_supervisor())"
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ask!r}])"
    above = (
        f"import os, subprocess, sys; print(os.getpid(), flush=True); subprocess.run([sys.executable, '-c', "
        f"{between!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", above, "flow-run", "execute"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    own, found = done.stdout.split()
    assert own == found
    assert find_supervisor() is None


# --- one worker after another -----------------------------------------------------------------------------------------


@dataclass
class Instances:
    """A store and servers, and instances that come and go; each has its own home folder, and its own metadata
    service."""

    folder: Path
    url: str
    inside: Namespace | None
    service: str
    notice: Path
    store: Path
    tracking: str
    logs: list[Path] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """Return what the processes of the newest instance find in their environment."""
        home = Home(self.folder / f"instance-{len(self.logs)}").create()
        port = int(self.url.rpartition(":")[2].partition("/")[0])
        url = f"http://{self.inside.reach(port)}/api" if self.inside else self.url
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "LIMBECK_", "MLFLOW_", "AWS_"))
        }
        return kept | {
            "PREFECT_API_URL": url,
            "PREFECT_API_AUTH_STRING": os.environ["PREFECT_API_AUTH_STRING"],
            "PREFECT_HOME": str(home.root / "prefect"),
            "PREFECT_LOGGING_LEVEL": "INFO",
            "PYTHONPATH": str(ROOT),
            "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule",
            "LIMBECK_SPOT": "aws",
            "LIMBECK_HOME": str(home.root),
            "LIMBECK_STORE": str(self.store),
            "MLFLOW_TRACKING_URI": self.tracking,
            "OMP_NUM_THREADS": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **({} if self.inside else {"AWS_EC2_METADATA_SERVICE_ENDPOINT": self.service}),
        }

    def execute(self, run: UUID) -> subprocess.Popen[bytes]:
        """Execute a flow run on a new instance, as a task on ECS does."""
        self.notice.unlink(missing_ok=True)
        words = [sys.executable, "-m", "prefect", "flow-run", "execute", str(run)]
        environment, work = self.environment(), self.folder / f"work-{len(self.logs)}"
        work.mkdir()  # Prefect copies what lies where a flow run starts, unless its deployment says where its code is
        self.logs.append(self.folder / f"instance-{len(self.logs)}.log")
        with self.logs[-1].open("wb") as log:
            return subprocess.Popen(
                self.inside.command(*words) if self.inside else words, cwd=work, env=environment, stdout=log, stderr=log
            )

    def take_away(self) -> None:
        """Announce the end of the newest instance."""
        self.notice.write_text(WORDS)

    def said(self) -> str:
        """Return what the newest instance wrote."""
        return self.logs[-1].read_text(errors="replace")

    def wait_for(self, words: str, worker: subprocess.Popen[bytes]) -> None:
        """Wait until the newest instance wrote something."""
        limit = time.monotonic() + PATIENCE
        while words not in self.said():
            assert worker.poll() is None and time.monotonic() < limit, self.said()[-3000:]
            time.sleep(0.2)

    def saved(self) -> int:
        """Return the newest step in the store."""
        return max(
            (int(path.name.removeprefix("step-")) for path in self.store.glob("checkpoints/*/step-*")), default=0
        )


@pytest.fixture
def instances(prefect_url: str, tmp_path: Path) -> Iterator[Instances]:
    """Instances in a network of their own where this machine can make one."""
    with ExitStack() as stack:
        reason = why_not()
        if reason:
            warnings.warn(reason, stacklevel=1)
        inside, port, notice = (
            None if reason else stack.enter_context(namespace()),
            80 if not reason else free_port(),
            tmp_path / "notice",
        )
        stack.enter_context(metadata_service(notice, inside, port))
        yield Instances(
            tmp_path,
            prefect_url,
            inside,
            f"http://127.0.0.1:{port}",
            notice,
            tmp_path / "store",
            f"sqlite:///{tmp_path}/mlflow.db",
        )


async def ask_for(recipe: Any) -> UUID:
    """Deploy the flow and ask for one run of it."""
    from prefect.client.orchestration import get_client
    from prefect.deployments.runner import EntrypointType

    deployment = await (await teacher_alone.ato_deployment("spot", entrypoint_type=EntrypointType.MODULE_PATH)).aapply()
    async with get_client() as client:
        run = await client.create_flow_run_from_deployment(
            deployment, parameters={"recipe": recipe.model_dump(mode="json", exclude_unset=True)}
        )
    return run.id


async def state_of(run: UUID) -> Any:
    """Return a flow run's state."""
    from prefect.client.orchestration import get_client

    async with get_client() as client:
        return (await client.read_flow_run(run)).state


@pytest.mark.slow
def test_a_run_whose_instance_is_taken_away_ends_on_another(
    instances: Instances, engines_here: None, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(tiny_bert, tiny_rows, steps=600, evaluations=1)
    run = asyncio.run(ask_for(recipe))
    worker = instances.execute(run)
    instances.wait_for("steps, loss", worker)
    instances.take_away()
    assert worker.wait(PATIENCE) == 0, instances.said()[-3000:]
    said, state = instances.said(), asyncio.run(state_of(run))
    assert state.name == "AwaitingRetry", said[-3000:]
    assert "AWS reclaims this instance (terminate, 2026-11-22T08:22:00Z); stages stop at a checkpoint" in said
    saved = instances.saved()
    assert 0 < saved < 600
    (checkpoint,) = instances.folder.glob(f"store/checkpoints/*/step-{saved:09d}/state.json")
    assert checkpoint.stat().st_mtime < state.timestamp.timestamp(), "Prefect was asked before the checkpoint was there"

    assert instances.execute(run).wait(PATIENCE) == 0, instances.said()[-3000:]
    state = asyncio.run(state_of(run))
    assert state.is_completed(), instances.said()[-3000:]
    assert f"resuming at step {saved:,} of 600" in instances.said()
    (made,) = [
        json.loads(path.read_text())
        for path in instances.folder.glob("store/manifests/*/*.json")
        if "finetune-teacher" in path.read_text()
    ]
    monkeypatch.setenv("LIMBECK_HOME", str(instances.folder / "undisturbed"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{instances.folder}/undisturbed.db")
    assert asyncio.run(teacher_alone(recipe)) == made["sha256"], "what two workers made is what one would have made"
    asked = {re.sub(r" \d+$", "", line) for line in (instances.folder / "notice.asked").read_text().splitlines()}
    assert asked == {"PUT /latest/api/token", f"GET {NOTICE}"}, "no credentials, and nothing else, were read"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_stage_survives_one_notice_after_another(
    instances: Instances, pool: Pool, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:  # noqa: F811
    """The real flow of the GPU pool, for a run on a small machine, at the pace that AWS advises; every instance goes on
    from where the last one was."""
    times = int(os.environ.get("LIMBECK_NOTICES", "2"))
    pool.deploy()
    recipe = small(tiny_bert, tiny_rows, steps=1200 * times, evaluations=1)
    parent = start_run(pool, recipe, tmp_path / "out.json")
    pool.wait(lambda: bool(pool.runs()))
    run, instances.store, instances.tracking, before = (
        pool.runs()[0].id,
        pool.home.root / "store",
        pool.home.own_tracking_uri,
        0,
    )
    for number in range(times):
        worker = instances.execute(run)
        instances.wait_for("steps, loss", worker)
        instances.take_away()
        assert worker.wait(PATIENCE) == 0, instances.said()[-3000:]
        assert pool.runs()[0].state.name == "AwaitingRetry", instances.said()[-3000:]
        assert instances.saved() > before, "this instance added nothing"
        assert not before or f"resuming at step {before:,} of" in instances.said()
        before = instances.saved()
        print(f"notice {number + 1} of {times}: stopped at step {before:,}", flush=True)
    pool.start_worker()
    out, err = parent.communicate(timeout=2 * PATIENCE)
    assert parent.returncode == 0, err
    assert pool.runs()[0].run_count == times + 1 and f"resuming at step {before:,} of" in pool.log()
    for name in [name for name in os.environ if name.startswith("LIMBECK_DISPATCH")]:
        del os.environ[name]
    undisturbed = run_recipe(recipe, home=Home(tmp_path / "embedded").create())
    assert digests(undisturbed) == digests(json.loads((tmp_path / "out.json").read_text()))
