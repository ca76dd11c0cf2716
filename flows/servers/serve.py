"""Run one guarded server: ``python -m flows.servers.serve prefect`` or ``mlflow``. Its password comes from the
environment, never from the command line.

Prefect's own command cannot put a guard before its server, and MLflow's cannot ask for a password without a database of
accounts. The applications served here are the same as those of the two commands.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.importer import import_from_string

from flows.home import Home
from flows.servers.access import Access
from flows.servers.garbage import collect_rarely
from flows.servers.guard import Guard
from flows.servers.service_ends import end_with_the_first
from flows.servers.worker_tokens import WORKERS_AUTH, WorkerTokens
from tasks.ports.tracking.migrations import create_mlflow_tables, one_at_a_time

PASSWORD = "LIMBECK_SERVER_PASSWORD"
AUTH = "PREFECT_SERVER_API_AUTH_STRING"
PREFECT, MLFLOW = "prefect.server.api.server:create_app", "mlflow.server.fastapi_app:app"
STORES = "mlflow.server.handlers:initialize_backend_stores"
KEPT_SECONDS = 75
"""Seconds for which a connection stays open between requests: longer than nginx (``flows/stack/configs.py``) or a load
balancer (``infra/cloudformation/control.yaml``) keeps one: no request meets one that is being closed."""
PING_SECONDS = 30.0
"""Seconds between two pings of a websocket. Each worker and each run has two, and pings them itself, too."""
FIRST_VISIT = {
    "mlflow.workflowType_v1": '"machine_learning"',  # runs and models, not traces and prompts
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",  # its panel would cover a quarter of the first page
    "mlflow.settings.telemetry.enabled_v1": "false",
    "mlflow.telemetry.info.alert.dismissed_v1": "true",
}
"""Settings of MLflow's pages, under the names by which MLflow keeps them in the browser."""


def main() -> None:
    """Serve until a signal arrives."""
    asked = argparse.ArgumentParser(
        prog="python -m flows.servers.serve", description="Serve Prefect or MLflow behind Limbeck's guard."
    )
    asked.add_argument("server", choices=("prefect", "mlflow"))
    asked.add_argument("--url", required=True, help="the public address of the server")
    asked.add_argument("--also", action="append", default=[], metavar="URL", help="another address of the server")
    asked.add_argument("--fd", type=int, help="a socket that is already listening")
    asked.add_argument("--host", default="127.0.0.1")
    asked.add_argument("--port", type=int, default=0)
    asked.add_argument(
        "--no-services", action="store_true", help="Prefect's API only; its services run in another process"
    )
    asked.add_argument("--workers", type=Path, help="Prefect: the file with the tokens of workers on other machines")
    asked.add_argument("--links", action="store_true", help="accept browser logins by single-use links")
    given = asked.parse_args()
    os.umask(0o077)
    auth = os.environ.get(AUTH, "") if given.server == "prefect" else ""
    password = os.environ.pop(PASSWORD, "") or auth.partition(":")[2]
    if not password:
        raise SystemExit(f"a server requires a password: set {PASSWORD}, or {AUTH} to user:password for Prefect")
    access = Access(given.url.rstrip("/"), password)
    app = prefect(access, given) if given.server == "prefect" else mlflow(access, given)
    listener = socket.socket(fileno=given.fd) if given.fd is not None else None
    config = uvicorn.Config(
        app,
        host=given.host,
        port=given.port,
        log_level="warning",
        timeout_keep_alive=KEPT_SECONDS,
        ws_ping_interval=PING_SECONDS,
        ws_per_message_deflate=False,  # messages of some hundred bytes
        server_header=False,
    )
    collect_rarely()
    uvicorn.Server(config).run(sockets=[listener] if listener else None)


def prefect(access: Access, given: argparse.Namespace) -> Any:
    """Return Prefect's server behind the guard. Prefect itself checks the password, over HTTP and each websocket."""
    login = os.environ.get(AUTH) or access.login
    os.environ |= {
        AUTH: login,
        "PREFECT_API_AUTH_STRING": login,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join([access.url, *given.also]),
    }
    os.environ.setdefault("PREFECT_SERVER_UI_API_URL", f"{access.url}/api")
    app = import_from_string(PREFECT)(final=True, webserver_only=given.no_services)
    database = os.environ.get("PREFECT_SERVER_DATABASE_CONNECTION_URL", "")
    if database.startswith("postgresql"):  # a team's: something starts it again
        end_with_the_first()
    waiting = OneStart(app, database) if database.startswith("sqlite") else app
    workers = WorkerTokens(login, os.environ.pop(WORKERS_AUTH, ""), given.workers)
    return Guard(waiting, access, also=given.also, keeps="storage" if given.links else "", workers=workers)


def mlflow(access: Access, given: argparse.Namespace) -> Any:
    """Return MLflow's server with the database and artifacts of this home, behind the guard, which checks the
    password."""
    home = Home.from_environment()
    names = [
        address.partition("//")[2]
        for address in (access.url, access.url.replace("127.0.0.1", "localhost"), *given.also)
    ]
    # The environment in which `mlflow server` starts this application.
    os.environ |= {
        "_MLFLOW_SERVER_FILE_STORE": home.own_tracking_uri,
        "_MLFLOW_SERVER_REGISTRY_STORE": home.own_tracking_uri,
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(home.artifacts),
        "_MLFLOW_SGI_NAME": "uvicorn",
        "_MLFLOW_SERVER_BOOT_ID": uuid.uuid4().hex,
        "_MLFLOW_IN_JOB_EXECUTOR": "false",
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(names),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": access.url,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }
    with one_at_a_time(home.own_tracking_uri):
        create_mlflow_tables(home.own_tracking_uri)
        import_from_string(STORES)(home.own_tracking_uri, home.own_tracking_uri, "mlflow-artifacts:/")
    keeps = "cookie" if given.links else ""
    return Guard(import_from_string(MLFLOW), access, also=given.also, keeps=keeps, closed=True, once=FIRST_VISIT)


class OneStart:
    """Prefect's application with a lock around its start, so that one process at a time migrates a SQLite database:
    concurrent migrations make a start fail."""

    def __init__(self, app: Any, database: str) -> None:
        """Guard the start of ``app`` on ``database``."""
        self.app, self.database = app, database

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hold the lock from the start of the application until it reports that it has started."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        with ExitStack() as held:
            await asyncio.to_thread(held.enter_context, one_at_a_time(self.database))

            async def sent(message: Any) -> None:
                held.close()
                await send(message)

            await self.app(scope, receive, sent)


if __name__ == "__main__":
    main()
