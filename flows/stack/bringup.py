"""``limbeck up`` and ``limbeck down``: the production stack as supervised processes of this machine, started in the
order storage, servers, workers, with a wait until each process is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from flows.deploy.pools import RUNS, local_pool, run_places
from flows.home import Home
from flows.stack import configs, credentials, databases, probes, supervision
from flows.stack.accounts import make_worker_account
from flows.stack.ceph import Ceph
from flows.stack.ceph import answers as s3_answers
from flows.stack.credentials import PERSON
from flows.stack.launch import clear
from flows.stack.programs import SOFTWARE, missing_packages, need
from flows.stack.services import mark_of, s3_environment, services
from flows.stack.settings import Stack, StackOptions
from flows.stack.setup import certificates
from flows.stack.setup.certificates import NO_TLS_OPTIONS, TlsOptions
from flows.stack.setup.choice import choose
from flows.stack.setup.folders import lay_out, own, write
from flows.stack.setup.ports import HeldPorts
from tasks.errors import StackError

Tell = Callable[[str], None]


def up(home: Home, wanted: StackOptions, tell: Tell, tls: TlsOptions = NO_TLS_OPTIONS) -> Stack:
    """Start the stack, or the missing processes of a running one; return it when every server is ready."""
    require_programs()
    with HeldPorts() as held:
        return bring_up(choose(home, wanted, held, tls), tell, tls)


def bring_up(stack: Stack, tell: Tell, tls: TlsOptions = NO_TLS_OPTIONS) -> Stack:
    """Start the missing processes of a stack whose settings are chosen; return it when every server is ready."""
    lay_out(stack)
    renewed = bool(stack.settings.tls) and certificates.install(stack, tls)
    if stack.next_secrets_file.exists():
        raise StackError("a rotation of secrets was interrupted; complete it: limbeck rotate")
    secret = credentials.generate(stack.secrets_file)
    write_configs(stack, secret)
    supervision.start_supervisor(stack)
    if renewed and supervision.reload(stack, "proxy"):
        tell("proxy: uses the new certificate")
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
    bring_up_exporter(stack, secret, tell)
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
        clear(mark_of(stack, name))


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


def write_configs(stack: Stack, secret: Mapping[str, str]) -> None:
    """Write all configuration files."""
    write(stack.data / "redis" / "redis.conf", configs.redis_conf(stack, secret), "redis")
    write(stack.data / "nginx" / "nginx.conf", configs.nginx_conf(stack), "nginx")
    write(stack.data / "mlflow" / "auth.ini", configs.auth_ini(stack), "")
    write(stack.run / "supervisord.conf", configs.supervisord_conf(stack, services(stack, secret).values()), "")


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
        if stack.settings.tls:  # clients of the S3 server ask nginx
            supervision.start_process(stack, "proxy")
        bring_up_ceph(stack, secret, tell)
    if stack.settings.s3 != "folder":
        from tasks.ports.store.bucket_admin import make_bucket

        make_bucket(f"{stack.settings.buckets}-store", s3_environment(stack, secret, "STORE"))
        make_bucket(f"{stack.settings.buckets}-artifacts", s3_environment(stack, secret, "MLFLOW"))


def bring_up_ceph(stack: Stack, secret: Mapping[str, str], tell: Tell) -> None:
    """Start the daemons of the S3 server and create its two users: one for MLflow and one for the store, neither of
    which can open the other's bucket."""
    cluster = Ceph(stack.data / "ceph", find=need, started=lambda: databases.as_owner("ceph"))
    ports, (host, port) = stack.settings.ports, stack.listens("s3")
    fresh = supervision.states(stack).get("radosgw") != "RUNNING"
    try:
        cluster.lay_out(host, port, ports["ceph"], lambda path: own(path, "ceph"))
        supervision.start_process(stack, "ceph-mon")
        cluster.add_disk()
        supervision.start_process(stack, "ceph-osd")
        start(stack, "radosgw", lambda: s3_answers(host, port), tell)
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
        start(stack, name, partial(probes.prefect_ready, address), tell, before)
    start(stack, "services", lambda: supervision.states(stack)["services"] == "RUNNING", tell, before)
    if stack.settings.proxy:
        start(stack, "proxy", lambda: probes.prefect_ready(stack.prefect_url, stack.authorities), tell, before)
    health, trust = f"{stack.mlflow_url}/health", stack.authorities
    start(stack, "mlflow", lambda: probes.status_of(health, authorities=trust) == 200, tell, before)
    # a busy machine may need more than one try
    probes.wait_for(stack, "mlflow", lambda: probes.mlflow_login(stack, secret) != 0)
    if probes.mlflow_login(stack, secret) not in (0, 200):
        raise StackError(
            f"MLflow does not know the password of {PERSON}: it was changed in the server or in "
            f"LIMBECK_MLFLOW_PASSWORD; set that variable to the password of the server"
        )
    passwords = secret["LIMBECK_MLFLOW_PASSWORD"], secret["LIMBECK_MLFLOW_WORKER_PASSWORD"]
    make_worker_account(stack.mlflow_url, *passwords, trust)


def bring_up_exporter(stack: Stack, secret: Mapping[str, str], tell: Tell) -> None:
    """Start the exporter of metrics."""
    databases.make_monitor(stack, secret)
    start(stack, "metrics", lambda: probes.status_of(f"{stack.inner_metrics_url}/health") == 200, tell)


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
        start(stack, f"worker-{pool}", partial(probes.is_served, stack, secret, pool), tell, before)
