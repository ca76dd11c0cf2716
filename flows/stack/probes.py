"""Probes of the stack's servers: whether each is alive and ready, tested with the requests of a client."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.deploy.pools import PoolDefinition, renewed_template
from flows.stack import databases
from flows.stack.credentials import PERSON
from flows.stack.settings import Stack
from flows.stack.supervision import failed, process_id
from tasks.errors import StackError

START_SECONDS = 300.0  # seconds until a server must be ready; Prefect takes ten, and two minutes on a busy machine
PROBE_SECONDS = 15.0  # a busy machine needs seconds to check a password of MLflow
LIVES = 10  # starts of a process before it must be ready, as many as the supervisor itself tries


def wait_for(stack: Stack, name: str, ready: Callable[[], bool], patience: float = START_SECONDS) -> None:
    """Wait until a process of the stack is ready.

    Raises StackError with the path of its log if it exceeds ``patience`` seconds or dies repeatedly.
    """
    until, lives = time.monotonic() + patience, set()
    while not ready():
        lives.add(process_id(stack, name))
        if failed(stack, name) or len(lives - {0}) > LIVES or time.monotonic() > until:
            raise StackError(f"{name} did not become ready; its log is {stack.logs / f'{name}.log'}")
        time.sleep(0.2)


def status_of(url: str, user: str = "", password: str = "", authorities: Path | None = None) -> int:
    """Return the HTTP status of an address, or 0 if there is no answer or its certificate is not trusted."""
    try:
        with urllib.request.urlopen(
            request_for(url, user, password), timeout=PROBE_SECONDS, context=trusting(authorities)
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def trusting(authorities: Path | None) -> ssl.SSLContext | None:
    """Return the TLS settings of a client that trusts a file of authorities; None for those of the system."""
    return ssl.create_default_context(cafile=authorities) if authorities else None


def request_for(url: str, user: str, password: str, body: Mapping[str, object] | None = None) -> urllib.request.Request:
    """Return a request, with basic authentication if a user is given."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"} if data else {})
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    return request


def ask(
    url: str, user: str, password: str, body: Mapping[str, object] | None = None, authorities: Path | None = None
) -> Any:
    """Send a request to a server and return the JSON of its response."""
    return send(request_for(url, user, password, body), authorities)


def send(request: urllib.request.Request, authorities: Path | None = None) -> Any:
    """Send a prepared request and return the JSON of its response."""
    with urllib.request.urlopen(request, timeout=30, context=trusting(authorities)) as answer:
        return json.loads(answer.read() or b"null")


def prefect_ready(url: str, authorities: Path | None = None) -> bool:
    """Return whether a Prefect server is alive and reaches its database."""
    return all(status_of(f"{url}/api/{path}", authorities=authorities) == 200 for path in ("health", "ready"))


def mlflow_ready(stack: Stack, secret: Mapping[str, str]) -> bool:
    """Return whether MLflow answers a request with the people's account."""
    return mlflow_login(stack, secret) == 200


def mlflow_login(stack: Stack, secret: Mapping[str, str]) -> int:
    """Return the HTTP status of a request to MLflow with the people's account; 0 if there is no answer in time."""
    url = f"{stack.mlflow_url}/api/2.0/mlflow/users/current"
    return status_of(url, PERSON, secret["LIMBECK_MLFLOW_PASSWORD"], stack.authorities)


def redis_ready(stack: Stack, secret: Mapping[str, str]) -> bool:
    """Return whether Redis is ready, tested with its wire protocol: PONG means that it has loaded its data file."""
    word = secret["LIMBECK_REDIS_PASSWORD"].encode()
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", stack.settings.ports["redis"]), timeout=5) as wire,
    ):
        wire.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n*1\r\n$4\r\nPING\r\n" % (len(word), word))
        heard = b""
        while heard.count(b"\r\n") < 2 and (part := wire.recv(256)):
            heard += part
        return heard.startswith(b"+OK\r\n") and b"+PONG" in heard
    return False


def postgres_ready(stack: Stack, secret: Mapping[str, str]) -> bool:
    """Return whether PostgreSQL answers."""
    return databases.answers(stack, secret)


def is_served(stack: Stack, secret: Mapping[str, str], pool: str) -> bool:
    """Return whether a pool has an online worker."""
    return bool(workers_online(stack, secret, pool))


def workers_online(stack: Stack, secret: Mapping[str, str], pool: str) -> list[str]:
    """Return the names of a pool's online workers; none if Prefect does not answer."""
    try:
        found = ask_prefect(stack, secret, f"work_pools/{pool}/workers/filter", {})
    except OSError:
        return []
    return [str(worker["name"]) for worker in found if worker["status"] == "ONLINE"]


def ask_prefect(stack: Stack, secret: Mapping[str, str], path: str, body: Mapping[str, object] | None = None) -> Any:
    """Send a request to Prefect's API with the people's account and return the JSON of its response."""
    return ask(f"{stack.prefect_url}/api/{path}", PERSON, secret["LIMBECK_PREFECT_PASSWORD"], body, stack.authorities)


def make_pool(stack: Stack, secret: Mapping[str, str], name: str, content: PoolDefinition) -> None:
    """Create a process pool, or renew the template of the one that is there; what a person has set there stays."""
    try:
        there = ask_prefect(stack, secret, f"work_pools/{name}")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        ask_prefect(stack, secret, "work_pools/", {"name": name, "type": "process", **content})
        return
    template = renewed_template(content["base_job_template"], there["base_job_template"])
    if there["type"] == "process" and template is not None:
        limit = there.get("concurrency_limit") or content.get("concurrency_limit")
        changes = {**content, "base_job_template": template, "type": None, "concurrency_limit": limit}
        change(stack, secret, f"work_pools/{name}", changes)


def limit_queue(stack: Stack, secret: Mapping[str, str], pool: str, places: int) -> None:
    """Limit the runs at once in a pool's default queue, unless a person has set a limit."""
    there = ask_prefect(stack, secret, f"work_pools/{pool}/queues/default")
    if there["concurrency_limit"] is None:
        change(stack, secret, f"work_pools/{pool}/queues/default", {"concurrency_limit": places})


def change(stack: Stack, secret: Mapping[str, str], path: str, body: Mapping[str, object]) -> None:
    """Change the given fields of an object of Prefect's."""
    given = {name: value for name, value in body.items() if value is not None}
    request = request_for(f"{stack.prefect_url}/api/{path}", PERSON, secret["LIMBECK_PREFECT_PASSWORD"], given)
    request.method = "PATCH"
    send(request, stack.authorities)


def runs_under_way(stack: Stack, secret: Mapping[str, str]) -> list[str]:
    """Return the ids of running and pending runs in this stack's pools; none if Prefect does not answer."""
    wanted = {
        "flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}},
        "work_pools": {"name": {"any_": list(stack.settings.pools)}},
    }
    try:
        return [str(run["id"]) for run in ask_prefect(stack, secret, "flow_runs/filter", wanted)]
    except OSError:
        return []


def state_of_run(stack: Stack, secret: Mapping[str, str], run: str) -> str:
    """Return the state type of a run; empty if Prefect does not answer."""
    try:
        return str(ask_prefect(stack, secret, f"flow_runs/{run}")["state_type"])
    except OSError:
        return ""


def schedule_again(stack: Stack, secret: Mapping[str, str], run: str) -> bool:
    """Put a run back into its queue; return whether Prefect accepted that."""
    state = {"type": "SCHEDULED", "name": "AwaitingRetry", "message": "its worker was stopped by limbeck down"}
    try:
        answer = ask_prefect(stack, secret, f"flow_runs/{run}/set_state", {"state": state, "force": True})
    except OSError:
        return False
    return bool(answer["status"] == "ACCEPT")
