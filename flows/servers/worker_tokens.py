"""Tokens of workers: what a worker and its runs may ask of Prefect, whose server knows one password with all rights.

A worker sends a name and a token of its own. The guard before the server checks it, refuses requests that administer
(deployments, pools, automations, blocks, variables, limits, deletions), and hands the others on with the server's
password, which no worker has. Workers read everything: Prefect has no narrower view. They register flow runs, task
runs, logs, artifacts and events, change states, and start runs of deployments that exist, as runs of Limbeck do.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers

WORKERS_AUTH = "LIMBECK_PREFECT_WORKER_AUTH"
"""The environment variable with the name and the token of the workers beside the servers, as these workers send it."""
ID = "[0-9a-f-]{36}"
READS = re.compile(r"/api/([\w%./-]+/)?(filter|count|paginate|history|lateness|get_scheduled_flow_runs)/?")
"""Requests that read, although their method is POST."""
WRITES = {
    "POST": re.compile(
        r"/api/(flows|flow_runs|task_runs|logs|artifacts|events)/?"
        rf"|/api/(flow_runs|task_runs)/{ID}/(set_state|input)"
        rf"|/api/deployments/{ID}/create_flow_run"
        r"|/api/work_pools/[^/]+/workers/heartbeat"
        r"|/api/(v2/)?concurrency_limits/(increment|decrement)(-with-lease)?"
        rf"|/api/v2/concurrency_limits/leases/{ID}/renew"
    ),
    "PATCH": re.compile(rf"/api/(flow_runs|task_runs|artifacts)/{ID}|/api/flow_runs/{ID}/labels"),
    "DELETE": re.compile(rf"/api/artifacts/{ID}|/api/flow_runs/{ID}/input/[^/]+"),
}
SOCKETS = re.compile(r"/api/(events/in|events/out|logs/out|work_pools/[^/]+/workers/connect)")
"""Websockets of workers and their runs; by the last one a worker learns at once of changes of its pool, and of runs
that it has to end."""
FILLS_A_POOL = {"create_pool_if_not_found": False, "default_base_job_template": {}}
"""What a worker may not ask for when it says hello to its pool: to create it, or to choose its template."""
WITH_A_JOB = re.compile(rf"/api/flow_runs/?|/api/flow_runs/{ID}|/api/deployments/{ID}/create_flow_run")
"""Requests whose body may hold variables of a job: the image, the command or the role of a container."""
NO_ADMINISTRATION = "the token of a worker may not administer Prefect; use the account of a person"


def token_digest(token: str) -> str:
    """Return the form in which the server keeps a token; a random token of 192 bits needs no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


class WorkerTokens:
    """The tokens that a server accepts: that of the workers beside it, and those of a file, which is read at each use,
    so that a new or removed token counts at once."""

    def __init__(self, login: str, own: str, file: Path | None) -> None:
        """Accept tokens in place of ``login``, the user and password of the server; ``own`` are the name and the token
        of the workers beside it, empty if there are none."""
        self.login, self.file = login, file
        name, _, token = own.partition(":")
        self.own = {name: token_digest(token)} if name and token else {}

    def known(self) -> Mapping[str, str]:
        """Return the digest of each worker's token, by the worker's name."""
        return {**(read_tokens(self.file) if self.file else {}), **self.own}

    def accepts(self, given: str) -> bool:
        """Return whether a text is the name and the token of a worker."""
        name, _, token = given.partition(":")
        return hmac.compare_digest(self.known().get(name, ""), token_digest(token))

    def is_worker(self, headers: Headers) -> bool:
        """Return whether a request carries the token of a worker."""
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            kind, _, value = headers.get("authorization", "").partition(" ")
            return kind.lower() == "basic" and self.accepts(base64.b64decode(value).decode())
        return False

    async def admitted(self, scope: Any, receive: Any, headers: Headers) -> tuple[Any, Any] | None:
        """Return a request with the server's password in place of a worker's token; None if a worker may not make it.
        Other requests stay as they are."""
        if scope["type"] == "websocket":
            return scope, self.translated(receive) if SOCKETS.fullmatch(scope["path"]) else receive
        if not self.is_worker(headers):
            return scope, receive
        if not may(scope["method"], scope["path"]):
            return None
        if scope["method"] in WRITES and WITH_A_JOB.fullmatch(scope["path"]):
            body = await whole_body(receive)
            if chooses_a_job(body):
                return None
            receive = replayed(body, receive)
        value = b"Basic " + base64.b64encode(self.login.encode())
        kept = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
        return {**scope, "headers": [*kept, (b"authorization", value)]}, receive

    def translated(self, receive: Any) -> Any:
        """Return a receive function that replaces a worker's token in a message of a websocket, and takes from what
        follows it what a worker may not ask for."""
        is_worker = False

        async def received() -> Any:
            nonlocal is_worker
            message = await receive()
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                said = json.loads(message.get("text") or "null")
                if said.get("type") == "auth" and self.accepts(said.get("token") or ""):
                    is_worker = True
                    return {**message, "text": json.dumps({**said, "token": self.login})}
                payload = said.get("payload") or {}  # a filter of events has none
                if is_worker and FILLS_A_POOL.keys() & payload.keys():
                    changed = {**said, "payload": {**payload, **FILLS_A_POOL}}
                    return {**message, "text": json.dumps(changed)}
            return message

        return received


def may(method: str, path: str) -> bool:
    """Return whether a worker may make a request: whatever is not listed is refused."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return path == "/api/admin/version" or not path.startswith("/api/admin")
    listed = WRITES.get(method)
    return bool((method == "POST" and READS.fullmatch(path)) or (listed and listed.fullmatch(path)))


async def whole_body(receive: Any) -> bytes:
    """Return the body of a request."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def replayed(body: bytes, receive: Any) -> Any:
    """Return a receive function that gives a body that was read, and then what follows it."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return left.pop() if left else await receive()

    return received


def chooses_a_job(body: bytes) -> bool:
    """Return whether a request sets variables of a job. What is no JSON object the server refuses itself."""
    with contextlib.suppress(ValueError):
        given = json.loads(body or b"null")
        return isinstance(given, dict) and bool(given.get("job_variables"))
    return False


def read_tokens(file: Path) -> dict[str, str]:
    """Return the digests of a file; none if there is no file."""
    try:
        return {str(name): str(value) for name, value in json.loads(file.read_text()).items()}
    except FileNotFoundError:
        return {}
