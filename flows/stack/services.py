"""The processes of the stack: command, environment and user of each.

Secrets are passed to a process in its environment, never on its command line, which every user of a machine can read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from flows.servers.worker_tokens import WORKERS_AUTH
from flows.stack.ceph import DAEMONS, Ceph
from flows.stack.credentials import MONITOR, PERSON, WORKER
from flows.stack.programs import need
from flows.stack.settings import Stack
from flows.stack.setup.environments import FOREIGN, QUIET, worker_settings, worker_variables
from tasks.errors import StackError

VACUUM_SETTINGS = {
    "autovacuum_vacuum_scale_factor": "0.05",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.02",
    "log_autovacuum_min_duration": "60000",
    "idle_in_transaction_session_timeout": "900000",
}
"""PostgreSQL removes dead rows at a twentieth of a table, not at a fifth: Prefect's events are many and short-lived.
A forgotten transaction, which keeps all dead rows, ends after a quarter of an hour. Times are in milliseconds."""
FLEET_SETTINGS = {
    "PREFECT_REDIS_MESSAGING_CONSUMER_BLOCK": "15",
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_POOL_SIZE": "20",
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_STATEMENT_CACHE_SIZE": "500",
    "PREFECT_SERVER_DATABASE_SQLALCHEMY_CONNECT_ARGS_PREPARED_STATEMENT_CACHE_SIZE": "500",
}
"""With these, many workers cost Prefect's servers less. For each worker a connection waits for news of its pool; it
asks Redis again after 15 seconds without news, not after one, and news is answered at once either way. Prefect keeps
five connections to the database and opens and closes what a burst needs besides; each remembers a hundred statements,
but there are more, so about a third of them were prepared anew each time."""
CLEANUP_SECONDS = 600
"""Seconds between two looks of Prefect at every unfinished sub-flow, whether its run was cancelled: each costs it
three queries: for a thousand stages a quarter of a processor at its usual 20 seconds, a twentieth at 120. A run that is
cancelled cancels its stages itself; this is for one whose process is gone."""
RUN_DAYS = 90
"""Days after its end for which Prefect keeps a flow run, with its logs; MLflow and the store keep theirs for ever."""


@dataclass(frozen=True)
class Service:
    """One supervised process."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    software: str = ""
    """Key of the software whose user runs this process if root starts the stack: such servers need no root rights."""
    user: str = ""
    """The user that runs this process if root starts the stack, where it is not that of a software."""
    stop: str = "TERM"
    patience: int = 20
    """Seconds to wait for an orderly stop."""
    children_live: bool = False
    """Whether its child processes survive its next start: a flow run ends by itself, in order, when its worker is
    gone."""


def services(stack: Stack, secret: Mapping[str, str]) -> dict[str, Service]:
    """Return all processes, in start order."""
    listed = [postgres(stack), redis(stack), *(ceph(stack) if stack.settings.s3 == "radosgw" else [])]
    listed += [api(stack, secret, name) for name in stack.replicas]
    listed += [background(stack, secret), mlflow(stack, secret), *([proxy(stack)] if stack.settings.proxy else [])]
    listed += [exporter(stack, secret)]
    listed += [worker(stack, secret, pool) for pool in stack.settings.pools]
    return {service.name: service for service in listed}


def postgres(stack: Stack) -> Service:
    """Return PostgreSQL, reachable by TCP on the loopback address only."""
    set_to = [
        f"port={stack.settings.ports['postgres']}",
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "max_connections=200",
        *(f"{name}={value}" for name, value in VACUUM_SETTINGS.items()),
    ]
    command = [
        need("postgres"),
        "-D",
        str(stack.data / "postgres" / "cluster"),
        *(word for one in set_to for word in ("-c", one)),
    ]
    # INT is a fast shutdown: connections are closed, committed data is safe
    return Service("postgres", command, software="postgres", stop="INT")


def redis(stack: Stack) -> Service:
    """Return Redis, which carries Prefect's events and leases; its password is in its configuration file."""
    return Service("redis", [need("redis-server"), str(stack.data / "redis" / "redis.conf")], software="redis")


def ceph(stack: Stack) -> list[Service]:
    """Return the three daemons of the S3 server; the disk gets more time for an orderly stop."""
    cluster = Ceph(stack.data / "ceph", find=need)
    return [
        Service(name, cluster.command(name), software="ceph", patience=60 if name == "ceph-osd" else 20)
        for name in DAEMONS
    ]


def python(*words: str) -> list[str]:
    """Return the command that runs a module; ``-P``, because the working directory may hold a file named like a
    library."""
    return [sys.executable, "-P", "-m", *words]


def prefect_server(stack: Stack, secret: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Prefect's server processes: one database, Redis between them, no migration at start,
    a password and an encryption key."""
    ports, password = stack.settings.ports, quote(secret["LIMBECK_PREFECT_DB_PASSWORD"], safe="")
    redis_password = secret["LIMBECK_REDIS_PASSWORD"]
    return {
        **QUIET,
        **FLEET_SETTINGS,
        "PREFECT_HOME": str(stack.data / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"postgresql+asyncpg://prefect:{password}@127.0.0.1:{ports['postgres']}/prefect",
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
        "PREFECT_SERVER_EVENTS_MESSAGING_BROKER": "prefect_redis.messaging",
        "PREFECT_SERVER_EVENTS_MESSAGING_CACHE": "prefect_redis.messaging",
        "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING": "prefect_redis.ordering",
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect_redis.lease_storage",
        "PREFECT_REDIS_MESSAGING_HOST": "127.0.0.1",
        "PREFECT_REDIS_MESSAGING_PORT": str(ports["redis"]),
        "PREFECT_REDIS_MESSAGING_PASSWORD": redis_password,
        "PREFECT_SERVER_DOCKET_URL": f"redis://:{quote(redis_password, safe='')}@127.0.0.1:{ports['redis']}/1",
        "PREFECT_SERVER_API_AUTH_STRING": f"{PERSON}:{secret['LIMBECK_PREFECT_PASSWORD']}",
        "PREFECT_API_AUTH_STRING": f"{PERSON}:{secret['LIMBECK_PREFECT_PASSWORD']}",
        "PREFECT_SERVER_ENCRYPTION_KEY": secret["LIMBECK_PREFECT_ENCRYPTION_KEY"],
        "PREFECT_SERVER_UI_API_URL": f"{public_url(stack)}/api",
        "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_LOOP_SECONDS": str(CLEANUP_SECONDS),
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(run_days() * 86400),
    }


def run_days() -> int:
    """Return the days for which Prefect keeps flow runs: ``LIMBECK_RUN_DAYS``; raise StackError if it is no number."""
    given = os.environ.get("LIMBECK_RUN_DAYS", str(RUN_DAYS))
    if not given.isdecimal() or int(given) < 1:
        raise StackError(f"LIMBECK_RUN_DAYS={given!r} is no number of days; set 1 or more")
    return int(given)


def public_url(stack: Stack) -> str:
    """Return the address of Prefect for browsers: that of a TLS proxy (``LIMBECK_PREFECT_URL``), else the stack's."""
    return os.environ.get("LIMBECK_PREFECT_URL", stack.prefect_url).rstrip("/")


def api(stack: Stack, secret: Mapping[str, str], name: str) -> Service:
    """Return one API server of Prefect behind the guard, without services; with no proxy it has the public address."""
    host, port = (
        ("127.0.0.1", stack.settings.ports[name])
        if stack.settings.proxy
        else (stack.settings.host, stack.settings.ports["prefect"])
    )
    also = [word for url in (f"http://127.0.0.1:{port}", stack.prefect_url) for word in ("--also", url)]
    command = python(
        "flows.servers.serve",
        "prefect",
        "--no-services",
        "--host",
        host,
        "--port",
        str(port),
        "--url",
        public_url(stack),
        "--workers",
        str(stack.worker_tokens),
        *also,
    )
    # of two servers that register the same blocks at once, one fails
    told = {} if name == "api-1" else {"PREFECT_API_BLOCKS_REGISTER_ON_START": "false"}
    told |= {WORKERS_AUTH: f"{WORKER}:{secret['LIMBECK_PREFECT_WORKER_TOKEN']}"}
    return Service(name, command, prefect_server(stack, secret) | told)


def background(stack: Stack, secret: Mapping[str, str]) -> Service:
    """Return the process of Prefect's services: scheduler, automations, late runs, and the rest."""
    return Service("services", python("flows.servers.services"), prefect_server(stack, secret))


def proxy(stack: Stack) -> Service:
    """Return nginx, the proxy before the API servers."""
    folder = stack.data / "nginx"
    return Service(
        "proxy",
        [need("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"],
        software="nginx",
        stop="QUIT",
    )


def mlflow_database(stack: Stack, name: str = "mlflow") -> str:
    """Return the address of a database of MLflow, without its password: libpq reads that from the environment."""
    return f"postgresql+psycopg2://mlflow@127.0.0.1:{stack.settings.ports['postgres']}/{name}"


def mlflow(stack: Stack, secret: Mapping[str, str]) -> Service:
    """Return MLflow with accounts: reading requires one, and there is no default password."""
    host, port = stack.listens("mlflow")
    known = dict.fromkeys([stack.settings.host, "127.0.0.1", "localhost"])
    named = ",".join(f"{name}:{stack.settings.ports['mlflow']}" for name in known)
    command = python(
        "mlflow",
        "server",
        "--app-name",
        "basic-auth",
        "--host",
        host,
        "--port",
        str(port),
        "--workers",
        "2",
        "--allowed-hosts",
        named,
        "--backend-store-uri",
        mlflow_database(stack),
        "--artifacts-destination",
        stack.artifacts,
    )
    told = {
        "PGPASSWORD": secret["LIMBECK_MLFLOW_DB_PASSWORD"],
        "MLFLOW_AUTH_CONFIG_PATH": str(stack.data / "mlflow" / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_USERNAME": PERSON,
        "MLFLOW_AUTH_ADMIN_PASSWORD": secret["LIMBECK_MLFLOW_PASSWORD"],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secret["LIMBECK_MLFLOW_SECRET_KEY"],
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": stack.mlflow_url,
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    }
    return Service("mlflow", command, QUIET | told | s3_environment(stack, secret, "MLFLOW"))


def worker(stack: Stack, secret: Mapping[str, str], pool: str) -> Service:
    """Return a worker of a pool; each of its runs is a process of its own. No ``--limit``: a worker with a limit
    crashes on a run that is scheduled again (Prefect #16806)."""
    temporary = stack.temporary / str(stack.settings.pools.index(pool))
    told = worker_settings(stack.worker_home, temporary, stack.workers / "prefect")
    user = stack.settings.worker_user
    if stack.workers_apart:
        told |= {"HOME": str(stack.workers), "USER": user, "LOGNAME": user}
    command = python("prefect", "worker", "start", "--pool", pool, "--type", "process", "--name", f"{pool}-1")
    # When a worker is stopped, its runs need time to write their checkpoints.
    return Service(
        f"worker-{pool}",
        command,
        client_environment(stack, secret, WORKER) | told,
        patience=90,
        children_live=True,
        user=user,
    )


def exporter(stack: Stack, secret: Mapping[str, str]) -> Service:
    """Return the exporter of metrics for Prometheus, which nginx serves as ``/metrics`` of Prefect's address. It has
    the workers' account of MLflow, and a role of its own in PostgreSQL that sees figures alone."""
    ports = stack.settings.ports
    told = {
        "LIMBECK_HOME": str(stack.root.parent),
        "LIMBECK_METRICS_PASSWORD": secret["LIMBECK_METRICS_PASSWORD"],
        "LIMBECK_METRICS_DATABASE": f"host=127.0.0.1 port={ports['postgres']} user={MONITOR} dbname=postgres",
        "LIMBECK_METRICS_FOLDERS": f"{stack.data.resolve()}:{stack.root.parent}",
        "PGPASSWORD": secret["LIMBECK_METRICS_DB_PASSWORD"],
    }
    command = python("flows.monitoring.exporter", "--port", str(ports["metrics"]))
    command += [word for url in dict.fromkeys((stack.prefect_url, public_url(stack))) for word in ("--url", url)]
    return Service("metrics", command, QUIET | client_environment(stack, secret, WORKER) | told)


def client_environment(stack: Stack, secret: Mapping[str, str], who: str = PERSON) -> dict[str, str]:
    """Return the environment of a client of the stack, which ``limbeck env`` prints and workers get."""
    name = "LIMBECK_MLFLOW_PASSWORD" if who == PERSON else "LIMBECK_MLFLOW_WORKER_PASSWORD"
    prefect = "LIMBECK_PREFECT_PASSWORD" if who == PERSON else "LIMBECK_PREFECT_WORKER_TOKEN"
    return {
        "PREFECT_API_URL": f"{stack.prefect_url}/api",
        "PREFECT_API_AUTH_STRING": f"{who}:{secret[prefect]}",
        "MLFLOW_TRACKING_URI": stack.mlflow_url,
        "MLFLOW_TRACKING_USERNAME": who,
        "MLFLOW_TRACKING_PASSWORD": secret[name],
        # Clients transfer artifacts through MLflow: they have no access to its bucket.
        "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "false",
        "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "false",
        "LIMBECK_STORE": stack.store,
        **s3_environment(stack, secret, "STORE"),
        **(trust_environment(stack.authorities) if stack.authorities else {}),
    }


def trust_environment(authorities: Path) -> dict[str, str]:
    """Return the settings by which Prefect's and MLflow's clients trust the authorities of a file; it holds the public
    ones, too, so that other addresses stay as they are."""
    return dict.fromkeys(("PREFECT_API_SSL_CERT_FILE", "MLFLOW_TRACKING_SERVER_CERT_PATH"), str(authorities))


def s3_environment(stack: Stack, secret: Mapping[str, str], whose: str) -> dict[str, str]:
    """Return the usual AWS settings. On the stack's own server, MLflow and the store each have keys of their own; keys
    of other servers come from the environment."""
    if stack.settings.s3 in ("folder", "aws"):
        return {}
    there = {"AWS_ENDPOINT_URL_S3": stack.endpoint, "MLFLOW_S3_ENDPOINT_URL": stack.endpoint}
    if stack.settings.s3 != "radosgw":
        return there
    return there | {
        "AWS_ACCESS_KEY_ID": secret[f"LIMBECK_S3_{whose}_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": secret[f"LIMBECK_S3_{whose}_SECRET_KEY"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        # Over TLS a client would add checksums in a form that radosgw 16 does not know.
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        **({"AWS_CA_BUNDLE": str(stack.authorities)} if stack.authorities else {}),
    }


def environment_of(stack: Stack, service: Service) -> dict[str, str]:
    """Return the whole environment of a process: its own variables and those of the stack's start, without variables
    that belong to other servers."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN) and name not in ("PGPASSWORD", "SUPERVISOR_SERVER_URL")
    }
    if service.children_live:  # a worker
        outside = stack.settings.s3 not in ("radosgw", "folder")
        kept = {
            name: value
            for name, value in kept.items()
            if name in worker_variables() or (outside and name.startswith("AWS_"))
        }
    if stack.settings.s3 == "radosgw":
        kept = {name: value for name, value in kept.items() if not name.startswith("AWS_")}
    return kept | dict(service.environment) | {"LIMBECK_SERVICE": mark_of(stack, service.name)}


def mark_of(stack: Stack, name: str) -> str:
    """Return the value of ``LIMBECK_SERVICE`` that marks the processes of a service in their environment."""
    return f"{stack.fingerprint}:{name}"
