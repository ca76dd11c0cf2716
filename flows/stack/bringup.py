"""``limbeck up`` and ``limbeck down``: the production stack as supervised processes of this machine, started in the
order storage, servers, workers, with a wait until each process is ready."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.deploy.pools import RUNS, local_pool, run_places
from flows.home import Home
from flows.stack import configs, credentials, databases, probes, supervision
from flows.stack.accounts import make_worker_account
from flows.stack.ceph import Ceph
from flows.stack.ceph import answers as s3_answers
from flows.stack.credentials import PERSON
from flows.stack.launch import clear
from flows.stack.programs import SOFTWARE, missing_packages, need, owner
from flows.stack.services import mark, s3_environment, services
from flows.stack.settings import Settings, Stack, choose_ports
from tasks.errors import StackError

Tell = Callable[[str], None]
ELSEWHERE = Path("/var/lib")
"""Data folder of servers started by root, if the users that run them cannot enter root's home folder."""


def up(home: Home, wanted: Mapping[str, Any], tell: Tell) -> Stack:
    """Start the stack, or the missing processes of a running one; return it when every server is ready."""
    require_programs()
    stack = choose(home, wanted)
    lay_out(stack)
    secret = credentials.generate(stack.secrets_file)
    write_configs(stack, secret)
    supervision.start_supervisor(stack)
    bring_up_storage(stack, secret, tell)
    if dict(stack.settings.migrated) != databases.versions():
        tell("databases: migrating to the installed versions")
        require_quiet(stack)
        databases.create(stack, secret)
        databases.migrate(stack, secret)
        stack = replace(stack, settings=replace(stack.settings, migrated=databases.versions()))
        stack.save()
    bring_up_servers(stack, secret, tell)
    bring_up_workers(stack, secret, tell)
    return stack


def down(home: Home, tell: Tell) -> bool:
    """Stop every process, dependants first; data stays. Return whether any process was running.

    Interrupted runs are put back into their queue while Prefect still answers: the next ``limbeck up`` resumes them
    from their checkpoints.
    """
    stack = Stack.of(home)
    running = supervision.states(stack)
    if not running:
        return False
    secret = credentials.load(stack.secrets_file)
    interrupted = probes.runs_under_way(stack, secret)
    latest_first = order(stack, running)[::-1]
    workers = [name for name in latest_first if name.startswith("worker-")]
    stop(stack, {name: running[name] for name in workers}, tell)
    put_back(stack, secret, interrupted, tell)
    stop(stack, {name: running[name] for name in latest_first if name not in workers}, tell)
    supervision.stop_supervisor(stack)
    return True


def stop(stack: Stack, running: Mapping[str, str], tell: Tell) -> None:
    """Stop processes one after the other, and kill the child processes that they leave: without the servers these
    could only fail."""
    for name, state in running.items():
        if state not in ("STOPPED", "EXITED", "FATAL"):
            tell(f"stopping {name}")
            supervision.stop_process(stack, name)
        clear(mark(stack, name))


def put_back(stack: Stack, secret: Mapping[str, str], runs: list[str], tell: Tell) -> None:
    """Reschedule runs whose workers were stopped; a run that ended in the meantime keeps its state."""
    unfinished = {"RUNNING", "PENDING", "CRASHED"}
    again = [
        run
        for run in runs
        if probes.state_of_run(stack, secret, run) in unfinished and probes.schedule_again(stack, secret, run)
    ]
    if again:
        tell(f"{len(again)} interrupted run{'s continue' if len(again) > 1 else ' continues'} at the next limbeck up")


def order(stack: Stack, running: Mapping[str, str]) -> list[str]:
    """Return the processes known to the supervisor, in start order."""
    known = list(services(stack, dict.fromkeys(credentials.SECRETS, "")))
    return sorted(running, key=lambda name: known.index(name) if name in known else len(known))


def require_programs() -> None:
    """Raise StackError if a Python package or an essential program is missing, with the command that installs all."""
    if packages := missing_packages():
        raise StackError(
            f"the Python package{'s' * (len(packages) > 1)} {', '.join(packages)} not found; install with: pip "
            f"install 'limbeck[stack]'"
        )
    missing = [software for software in SOFTWARE.values() if software.essential and software.missing]
    if missing:
        names = " and ".join(software.name for software in missing)
        wanted = " ".join(software.package for software in missing)
        command = missing[0].install.replace(missing[0].package, wanted)
        raise StackError(
            f"{names} {'is' if len(missing) == 1 else 'are'} not installed; install with: {command}, and run "
            f"limbeck up again"
        )


def choose(home: Home, wanted: Mapping[str, Any]) -> Stack:
    """Return the existing stack with the changes asked for, or a new one; refuse to change fixed settings."""
    stack = Stack.of(home)
    given = {name: value for name, value in wanted.items() if value is not None}
    if stack.is_new:
        return new_stack(stack, given)
    old = stack.settings
    for name in ("s3", "buckets", "host"):
        if name in given and given[name] != getattr(old, name):
            raise StackError(
                f"this stack has {name} {getattr(old, name)!r}, chosen at its first start; to change it, back the "
                f"stack up, stop it, move {stack.root} away, start a new one and restore the backup"
            )
    ports = {**old.ports, **{name: given[f"{name}_port"] for name in ("prefect", "mlflow") if f"{name}_port" in given}}
    new = replace(old, ports=ports, pools=given.get("pools", old.pools))
    stack = replace(stack, settings=new)
    if new != old:
        stack.save()
    return stack


def new_stack(stack: Stack, given: Mapping[str, Any]) -> Stack:
    """Choose the settings of a new stack and save them."""
    host = given.get("host", Settings.host)
    if host in ("0.0.0.0", "::", ""):
        raise StackError(
            f"--host {host!r} is not an address that other machines can use; give the address or name under which "
            f"they reach this machine"
        )
    ports = choose_ports(host, {name: given.get(f"{name}_port") for name in ("prefect", "mlflow")})
    settings = Settings(
        host=host,
        ports=ports,
        s3=given.get("s3") or usual_s3(),
        buckets=given.get("buckets", Settings.buckets),
        pools=given.get("pools", Settings.pools),
        proxy=not SOFTWARE["nginx"].missing,
    )
    if settings.s3 == "radosgw":
        for program in SOFTWARE["ceph"].programs:
            need(program)
    elif settings.s3 not in ("folder", "aws") and not settings.s3.startswith(("http://", "https://")):
        raise StackError(
            f"--s3 {settings.s3!r} is not an S3 server; write radosgw, folder, aws, or the URL of an S3 endpoint"
        )
    stack.root.mkdir(mode=0o711, parents=True, exist_ok=True)
    stack = replace(stack, settings=settings)
    stack.save()
    return stack


def usual_s3() -> str:
    """Return the default S3 server of a new stack: the user's endpoint, else Ceph, else local folders."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return named or ("folder" if SOFTWARE["ceph"].missing else "radosgw")


def lay_out(stack: Stack) -> None:
    """Create the folders: one for each server, none readable by other users of this machine."""
    for folder, mode in (
        (stack.root, 0o711),
        (stack.logs, 0o700),
        (stack.run, 0o700),
        (stack.sockets, 0o700),
        (stack.temporary, 0o700),
    ):
        folder.mkdir(mode=mode, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise StackError(
                f"{folder} belongs to another user; remove it, or set LIMBECK_HOME to a folder that only you can write"
            )
        folder.chmod(mode)
    if not stack.data.exists():
        make_data_folder(stack)
    stack.data.chmod(0o711)
    keys = {"postgres": "postgres", "redis": "redis", "nginx": "nginx", "ceph": "ceph"}
    for name in (*keys, "prefect", "mlflow", "workers", "store"):
        folder = stack.data / name
        folder.mkdir(mode=0o700, exist_ok=True)
        own(folder, keys.get(name, ""))


def make_data_folder(stack: Stack) -> None:
    """Create the data folder; if the servers' users cannot enter root's home, create it elsewhere and link to it."""
    closed = owner("postgres") is not None and any(
        not folder.stat().st_mode & 0o001 for folder in (stack.root, *stack.root.parents)
    )
    if not closed:
        stack.data.mkdir(mode=0o711)
        return
    elsewhere = ELSEWHERE / f"limbeck-{stack.fingerprint}"
    elsewhere.mkdir(mode=0o711, exist_ok=True)
    (stack.root / "data").symlink_to(elsewhere)


def own(path: Path, key: str) -> None:
    """Make the user of a program the owner of a path; without root rights the owner stays the same."""
    user = owner(key) if key else None
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def write_configs(stack: Stack, secret: Mapping[str, str]) -> None:
    """Write all configuration files."""
    write(stack.data / "redis" / "redis.conf", configs.redis_conf(stack, secret), "redis")
    write(stack.data / "nginx" / "nginx.conf", configs.nginx_conf(stack), "nginx")
    write(stack.data / "mlflow" / "auth.ini", configs.auth_ini(stack), "")
    write(stack.run / "supervisord.conf", configs.supervisord_conf(stack, services(stack, secret).values()), "")


def write(path: Path, text: str, key: str) -> None:
    """Write a file that only its program's user can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    own(path, key)


def start(
    stack: Stack, name: str, ready: Callable[[], bool], tell: Tell, before: Mapping[str, str] | None = None
) -> None:
    """Start one process and wait until it is ready; ``before`` holds the earlier states of all processes, for callers
    that start several together."""
    began = time.monotonic()
    stood = (supervision.states(stack) if before is None else before).get(name)
    supervision.start_process(stack, name)
    probes.wait_for(stack, name, ready)
    if stood != "RUNNING":
        tell(f"{name} is ready ({time.monotonic() - began:.1f} s)")


def bring_up_storage(stack: Stack, secret: Mapping[str, str], tell: Tell) -> None:
    """Start PostgreSQL, Redis and the S3 server; create the missing database cluster, S3 users and buckets."""
    databases.initialise(stack, secret)
    start(stack, "postgres", lambda: probes.postgres_ready(stack, secret), tell)
    start(stack, "redis", lambda: probes.redis_ready(stack, secret), tell)
    if stack.settings.s3 == "radosgw":
        bring_up_ceph(stack, secret, tell)
    if stack.settings.s3 != "folder":
        from tasks.ports.store.bucket_admin import make_bucket

        make_bucket(f"{stack.settings.buckets}-store", s3_environment(stack, secret, "STORE"))
        make_bucket(f"{stack.settings.buckets}-artifacts", s3_environment(stack, secret, "MLFLOW"))


def bring_up_ceph(stack: Stack, secret: Mapping[str, str], tell: Tell) -> None:
    """Start the daemons of the S3 server and create its two users: one for MLflow and one for the store, neither of
    which can open the other's bucket."""
    cluster = Ceph(stack.data / "ceph", find=need, started=lambda: databases.as_owner("ceph"))
    ports, host = stack.settings.ports, stack.settings.host
    fresh = supervision.states(stack).get("radosgw") != "RUNNING"
    try:
        cluster.lay_out(host, ports["s3"], ports["ceph"], lambda path: own(path, "ceph"))
        supervision.start_process(stack, "ceph-mon")
        cluster.add_disk()
        supervision.start_process(stack, "ceph-osd")
        start(stack, "radosgw", lambda: s3_answers(host, ports["s3"]), tell)
        for name in ("store", "mlflow") if fresh else ():
            cluster.user(
                name, secret[f"LIMBECK_S3_{name.upper()}_ACCESS_KEY"], secret[f"LIMBECK_S3_{name.upper()}_SECRET_KEY"]
            )
    except (RuntimeError, OSError) as error:
        raise StackError(
            f"the S3 server did not start: {error}; the logs are {stack.logs}/ceph-mon.log, ceph-osd.log and "
            f"radosgw.log"
        ) from error


def require_quiet(stack: Stack) -> None:
    """Refuse to migrate databases under servers of another version."""
    running = [
        name
        for name, state in supervision.states(stack).items()
        if state in supervision.UP and name in (*stack.replicas, "services", "mlflow")
    ]
    if running:
        raise StackError(
            "the installed versions differ from the running ones; back up, then: limbeck down, and limbeck up, which "
            "migrates the databases"
        )


def bring_up_servers(stack: Stack, secret: Mapping[str, str], tell: Tell) -> None:
    """Start Prefect's API servers and services, the proxy and MLflow together, then wait for each."""
    names = (*stack.replicas, "services", "mlflow", *(["proxy"] if stack.settings.proxy else []))
    before = supervision.states(stack)
    for name in names:
        supervision.start_process(stack, name)
    for name in stack.replicas:
        address = f"http://127.0.0.1:{stack.settings.ports[name]}" if stack.settings.proxy else stack.prefect_url
        start(stack, name, lambda address=address: probes.prefect_ready(address), tell, before)  # type: ignore[misc]
    start(stack, "services", lambda: supervision.states(stack)["services"] == "RUNNING", tell, before)
    if stack.settings.proxy:
        start(stack, "proxy", lambda: probes.prefect_ready(stack.prefect_url), tell, before)
    start(stack, "mlflow", lambda: probes.status_of(f"{stack.mlflow_url}/health") == 200, tell, before)
    if not probes.mlflow_ready(stack, secret):
        raise StackError(
            f"MLflow does not know the password of {PERSON}: it was changed in the server or in "
            f"LIMBECK_MLFLOW_PASSWORD; set that variable to the password of the server"
        )
    make_worker_account(stack.mlflow_url, secret["LIMBECK_MLFLOW_PASSWORD"], secret["LIMBECK_MLFLOW_WORKER_PASSWORD"])


def bring_up_workers(stack: Stack, secret: Mapping[str, str], tell: Tell) -> None:
    """Create each pool from Limbeck's process template and start its worker. Prefect's own template lets a run supply
    a command."""
    for pool in stack.settings.pools:
        probes.make_pool(stack, secret, pool, local_pool(pool))
        if pool == RUNS:
            probes.limit_queue(stack, secret, pool, run_places())
    before = supervision.states(stack)
    for pool in stack.settings.pools:
        supervision.start_process(stack, f"worker-{pool}")
    for pool in stack.settings.pools:
        start(stack, f"worker-{pool}", lambda pool=pool: bool(probes.workers_online(stack, secret, pool)), tell, before)  # type: ignore[misc]
