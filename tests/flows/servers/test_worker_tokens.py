"""A worker's token starts and ends runs, and administers nothing: each route of Prefect's that writes is listed here or
refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.client.orchestration import PrefectClient
from prefect.exceptions import PrefectHTTPStatusError
from prefect.workers.process import ProcessWorker
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from flows.servers.worker_tokens import (
    NO_ADMINISTRATION,
    READS,
    WorkerTokens,
    may,
    read_tokens,
    token_digest,
)
from tests.prefect_server import WORKER

NAME = WORKER.partition(":")[0]
WRITES = """
POST /flows/
POST /flow_runs/
POST /flow_runs/{id}/set_state
POST /flow_runs/{id}/input
DELETE /flow_runs/{id}/input/{key}
PATCH /flow_runs/{id}
PATCH /flow_runs/{id}/labels
POST /task_runs/
PATCH /task_runs/{id}
POST /task_runs/{id}/set_state
POST /deployments/{id}/create_flow_run
POST /logs/
POST /concurrency_limits/increment
POST /concurrency_limits/decrement
POST /v2/concurrency_limits/increment
POST /v2/concurrency_limits/increment-with-lease
POST /v2/concurrency_limits/decrement
POST /v2/concurrency_limits/decrement-with-lease
POST /v2/concurrency_limits/leases/{lease_id}/renew
POST /work_pools/{work_pool_name}/workers/heartbeat
POST /artifacts/
PATCH /artifacts/{id}
DELETE /artifacts/{id}
POST /events
"""
"""All that a worker may write: the records of runs, and no deployment, pool, queue, automation, block or variable."""


def filled(path: str) -> str:
    """Return an address of a route of Prefect's API."""
    return "/api" + re.sub(r"\{(\w+)(:\w+)?\}", lambda found: str(uuid.uuid4()) if "id" in found[1] else "x", path)


def test_every_route_that_writes_is_listed_or_refused() -> None:
    from prefect.server.api.server import create_api_app

    paths = create_api_app().openapi()["paths"]
    routes = [(method.upper(), path) for path, methods in paths.items() for method in methods if method != "get"]
    assert len(routes) > 100
    allowed = {f"{method} {path}" for method, path in routes if may(method, filled(path))}
    reads = {f"POST {path}" for method, path in routes if method == "POST" and READS.fullmatch(filled(path))}
    assert allowed - reads == set(WRITES.split("\n")) - {""}
    assert all(re.search(r"(filter|count|paginate|history|lateness|get_scheduled_flow_runs)$", one) for one in reads)


@pytest.mark.parametrize(
    "path", ["/api/admin/settings", "/api/admin/storage", "/api//admin/settings", "/api/flow_runs/x/set_state/../.."]
)
def test_what_is_not_listed_is_refused(path: str) -> None:
    assert not may("POST", path) and not may("DELETE", path) and not may("PUT", path)
    assert "/admin" not in path or "//" in path or not may("GET", path)


def client(url: str, login: str) -> PrefectClient:
    return PrefectClient(url, auth_string=login)


def server_password() -> str:
    return os.environ["PREFECT_API_AUTH_STRING"].partition(":")[2]


async def require_no_job_of_its_own(worker: PrefectClient) -> None:
    """A run is made and changed, but never with another image or command than its pool and deployment give it."""
    flow = await worker.create_flow_from_name("of-a-worker")
    plain = {"flow_id": str(flow), "state": {"type": "SCHEDULED"}}
    with_job = {"job_variables": {"image": "registry.example/of-a-stranger", "command": "sh"}}
    made = await worker._client.post("/flow_runs/", json=plain)
    assert made.status_code == 201
    page = f"/flow_runs/{made.json()['id']}"
    assert (await worker._client.patch(page, json={"name": "renamed"})).status_code == 204
    for ask in (worker._client.post("/flow_runs/", json=plain | with_job), worker._client.patch(page, json=with_job)):
        with pytest.raises(PrefectHTTPStatusError, match="403"):
            await ask
    assert (await worker.read_flow_run(made.json()["id"])).job_variables == {}


def test_a_real_server_takes_runs_from_a_worker_and_refuses_to_be_administered(prefect_url: str) -> None:
    from prefect.client.schemas.actions import WorkPoolCreate

    async def ask() -> None:
        async with client(prefect_url, WORKER) as worker:
            assert await worker.read_flows(limit=1) is not None
            with pytest.raises(PrefectHTTPStatusError, match="403") as caught:
                await worker.create_work_pool(WorkPoolCreate(name="of-a-worker", type="process"))
            assert NO_ADMINISTRATION in caught.value.response.text
            await require_no_job_of_its_own(worker)
        for login in (f"{NAME}:{server_password()}", f"{NAME}:", "nobody:token", ":"):
            async with client(prefect_url, login) as stranger:
                with pytest.raises(PrefectHTTPStatusError, match="401"):
                    await stranger.read_flows(limit=1)

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "opens"),
    [
        ("/events/in", True),
        ("/events/out", True),
        ("/work_pools/cpu/workers/connect", True),
        ("/work_queues", False),
    ],
)
def test_a_websocket_opens_by_a_worker_s_token_where_runs_need_it(path: str, opens: bool, prefect_url: str) -> None:
    async def greet(token: str) -> bool:
        url = prefect_url.replace("http", "ws", 1) + path
        try:
            async with connect(url, subprotocols=[Subprotocol("prefect")]) as wire:
                await wire.send(json.dumps({"type": "auth", "token": token}))
                return json.loads(await wire.recv())["type"] == "auth_success"
        except Exception as error:  # noqa: BLE001 - a refusal before or after the handshake
            assert isinstance(error, ConnectionClosed) or "403" in str(error)
            return False

    assert asyncio.run(greet(WORKER)) is opens
    assert not asyncio.run(greet(f"{NAME}:wrong"))


def test_a_worker_hears_at_once_of_a_run_that_is_cancelled(prefect_url: str) -> None:
    """By the events that Prefect's own worker subscribes to, through the guard, with the worker's token."""
    name, words = "limbeck.test.cancelling", {"prefect.resource.id": f"limbeck.test.{uuid.uuid4()}"}
    now = datetime.now(UTC)
    since = {"since": now.isoformat(), "until": (now + timedelta(days=1)).isoformat()}
    wanted = {"occurred": since, "event": {"name": [name]}, "resource": {"id": [words["prefect.resource.id"]]}}
    happened = {"id": str(uuid.uuid4()), "occurred": now.isoformat(), "event": name, "resource": words}

    async def heard() -> str:
        url = prefect_url.replace("http", "ws", 1) + "/events/out"
        async with connect(url, subprotocols=[Subprotocol("prefect")]) as wire, client(prefect_url, WORKER) as worker:
            await wire.send(json.dumps({"type": "auth", "token": WORKER}))
            assert json.loads(await wire.recv())["type"] == "auth_success"
            await wire.send(json.dumps({"type": "filter", "filter": wanted}))
            await worker._client.post("/events", json=[happened])
            return str(json.loads(await asyncio.wait_for(wire.recv(), 60))["event"]["id"])

    assert asyncio.run(heard()) == happened["id"]


def test_a_worker_hears_of_its_pool_and_does_not_make_one(prefect_url: str) -> None:
    """The hello of a worker would create a pool, or give a pool without a template one that chooses the command."""
    payload = {
        "consumer_id": str(uuid.uuid4()),
        "worker_name": "box",
        "worker_type": "process",
        "heartbeat_interval_seconds": 30,
        "supported_channel_versions": ["work_pool_worker_channel.v1"],
        "requested_capabilities": ["worker_heartbeat.v1", "work_pool_snapshot.v1"],
        "create_pool_if_not_found": True,
        "default_base_job_template": ProcessWorker.get_default_base_job_template(),
    }
    frame = {"type": "worker.hello.v1", "id": str(uuid.uuid4()), "sent_at": "2026-11-28T12:00:00Z", "payload": payload}

    async def hello(login: str, pool: str) -> bool:
        url = prefect_url.replace("http", "ws", 1) + f"/work_pools/{pool}/workers/connect"
        try:
            async with connect(url, subprotocols=[Subprotocol("prefect")]) as wire:
                await wire.send(json.dumps({"type": "auth", "token": login}))
                assert json.loads(await wire.recv())["type"] == "auth_success"
                await wire.send(json.dumps(frame))
                return json.loads(await wire.recv())["type"] == "worker.ready.v1"
        except ConnectionClosed:
            return False

    async def ask() -> None:
        person = os.environ["PREFECT_API_AUTH_STRING"]
        assert not await hello(WORKER, "of-a-hello")
        assert await hello(person, "of-a-hello"), "the account of a person makes it"
        assert await hello(WORKER, "of-a-hello"), "then a worker hears of it"
        async with client(prefect_url, person) as asked:
            await asked.delete_work_pool("of-a-hello")

    asyncio.run(ask())


def test_a_removed_token_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "workers.json"
    tokens = WorkerTokens("limbeck:password", "", file)
    assert not tokens.accepts(":") and not tokens.accepts("limbeck:password")
    assert read_tokens(file) == {} and not tokens.accepts("box:token")
    file.write_text(json.dumps({"box": token_digest("token")}))
    assert tokens.accepts("box:token") and not tokens.accepts("box:other") and not tokens.accepts("other:token")
    assert "token" not in file.read_text().replace("box", ""), "the file holds no token"
    file.write_text("{}")
    assert not tokens.accepts("box:token")


def test_no_name_of_a_file_takes_the_place_of_the_server_s_own(tmp_path: Path) -> None:
    file = tmp_path / "workers.json"
    file.write_text(json.dumps({NAME: token_digest("mine")}))
    tokens = WorkerTokens("limbeck:password", WORKER, file)
    assert not tokens.accepts(f"{NAME}:mine") and tokens.accepts(WORKER)
