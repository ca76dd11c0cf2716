"""``limbeck doctor``: missing, wrong or unsafe parts of the stack on this machine, each with its remedy."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from flows.home import Home
from flows.stack import credentials, databases, probes, supervision
from flows.stack.checks.certificate import certificate
from flows.stack.checks.finding import BAD, OK, WARNING, Finding
from flows.stack.checks.gpu_stages import SHOWN_AS, gpu_stages_of
from flows.stack.checks.machine import clock, gpu, machine
from flows.stack.credentials import PERSON
from flows.stack.programs import SOFTWARE, missing_packages, version_of
from flows.stack.services import s3_environment
from flows.stack.settings import PUBLIC_PORTS, Stack
from flows.stack.setup.ports import fixed_ports, host_of, is_free
from tasks.errors import StoreError

LOCK = Path(__file__).resolve().parents[2] / "infra" / "lock" / "stack.txt"


def examine(home: Home) -> list[Finding]:
    """Run all checks and return their findings; a check that raises is a finding, too."""
    stack = Stack.of(home)
    checks: list[Callable[[Stack], Iterator[Finding]]] = [programs, packages, machine, clock, gpu, ports]
    if not stack.is_new:
        checks += [secrets_kept, certificate, processes]
        if supervision.connect(stack) is not None:
            checks += [servers, accounts, migrations, conditional_writes, workers, gpu_stages]
    elif os.environ.get("PREFECT_API_URL"):
        checks.append(gpu_stages_elsewhere)
    found = []
    for check in checks:
        try:
            found += list(check(stack))
        except Exception as error:  # noqa: BLE001 - a check that fails must not stop the others
            found.append(Finding(check.__name__, BAD, f"check failed: {error}"))
    return found


def programs(stack: Stack) -> Iterator[Finding]:
    """Report every program, with its version or the command that installs it."""
    for software in SOFTWARE.values():
        if software.missing:
            state, said = (BAD, "is needed") if software.essential else (WARNING, f"without it: {software.without}")
            yield Finding(software.name, state, f"{', '.join(software.missing)} missing; {said}", software.install)
        else:
            yield Finding(software.name, OK, version_of(software))


def packages(stack: Stack) -> Iterator[Finding]:
    """Compare the installed Python packages with Limbeck's requirements and with the versions tested together."""
    from packaging.requirements import Requirement

    wrong = [f"{name} missing" for name in missing_packages()]
    for requirement in [Requirement(line) for line in requires("limbeck") or []]:
        if requirement.marker is None or requirement.marker.evaluate({"extra": "stack"}):
            there = installed(requirement.name)
            if there is not None and not requirement.specifier.contains(there, prereleases=True):
                wrong.append(f"{requirement.name} {there}, required {requirement.specifier}")
    locked = LOCK.exists()
    pip = f"pip install --require-hashes --no-deps -r {LOCK}" if locked else "pip install 'limbeck[stack]'"
    yield Finding(
        "Python packages",
        BAD if wrong else OK,
        "; ".join(wrong) or "all requirements of limbeck[stack] are met",
        pip if wrong else "",
    )
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(), re.MULTILINE) if locked else []
    drifted = [
        f"{name} {there}, not {pin}" for name, pin in pins if (there := installed(name)) and there.split("+")[0] != pin
    ]
    if pins:
        yield Finding(
            "locked versions",
            WARNING if drifted else OK,
            "; ".join(drifted[:5]) or "all versions are the tested ones",
            pip if drifted else "",
        )


def installed(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return None


def ports(stack: Stack) -> Iterator[Finding]:
    """Report whether the ports of a stopped stack are free: those that do not move when a program has taken them."""
    if supervision.connect(stack) is not None:
        return
    settings = stack.settings
    known = {name: settings.ports[name] for name in (PUBLIC_PORTS if stack.is_new else fixed_ports(settings))}
    taken = [f"{name} {port}" for name, port in known.items() if not is_free(host_of(settings, name), port)]
    mend = "stop the programs that listen on them, or choose others: limbeck up --prefect-port --mlflow-port"
    yield Finding(
        "ports",
        BAD if taken else OK,
        f"taken: {', '.join(taken)}" if taken else "free",
        mend if taken else "",
    )


def secrets_kept(stack: Stack) -> Iterator[Finding]:
    """Report missing secrets, and secrets from the environment; a file that others can read is an error."""
    known = credentials.load(stack.secrets_file)
    missing = [name for name, value in known.items() if not value]
    given = [name for name in known if os.environ.get(name)]
    said = f"{stack.secrets_file}, mode 0600" + (f"; from the environment: {', '.join(given)}" if given else "")
    yield Finding(
        "secrets",
        BAD if missing else OK,
        f"missing: {', '.join(missing)}" if missing else said,
        "limbeck up" if missing else "",
    )


def processes(stack: Stack) -> Iterator[Finding]:
    """Report the processes that the supervisor does not list as running."""
    known = supervision.settled_states(stack)
    ill = [f"{name} {state}" for name, state in known.items() if state != "RUNNING"]
    if not known:
        yield Finding("processes", WARNING, "the stack is down", "limbeck up")
    else:
        mend = f"limbeck up; logs in {stack.logs}" if ill else ""
        yield Finding(
            "processes", BAD if ill else OK, ", ".join(ill) or f"{len(known)} running, each restarted if it stops", mend
        )


def servers(stack: Stack) -> Iterator[Finding]:
    """Report whether each server answers the requests of its clients."""
    secret = credentials.load(stack.secrets_file)
    asked = {
        "postgres": lambda: probes.postgres_ready(stack, secret),
        "redis": lambda: probes.redis_ready(stack, secret),
    }
    for name in stack.replicas if stack.settings.proxy else ():
        asked[name] = partial(probes.prefect_ready, f"http://127.0.0.1:{stack.settings.ports[name]}")
    asked |= {
        "Prefect": lambda: probes.prefect_ready(stack.prefect_url, stack.authorities),
        "MLflow": lambda: probes.mlflow_ready(stack, secret),
    }
    deaf = [name for name, answers in asked.items() if not answers()]
    yield Finding(
        "servers",
        BAD if deaf else OK,
        f"no response: {', '.join(deaf)}" if deaf else "all live and ready",
        f"see {stack.logs}" if deaf else "",
    )


def accounts(stack: Stack) -> Iterator[Finding]:
    """Report whether both servers refuse requests without an account or with a wrong password."""
    prefect = f"{stack.prefect_url}/api/admin/version"
    mlflow = f"{stack.mlflow_url}/api/2.0/mlflow/users/current"
    asked = {
        "Prefect": (prefect, "", ""),
        "MLflow": (mlflow, "", ""),
        "MLflow accepts its default password": (mlflow, "admin", "password1234"),
        "Prefect accepts a wrong password": (prefect, PERSON, "wrong"),
    }
    closed = {name: probes.status_of(*words, stack.authorities) for name, words in asked.items()}
    still_open = [f"{name}: {status}" for name, status in closed.items() if status not in (0, 401)]
    if not any(closed.values()):
        return  # no answer at all: ``servers`` reports that
    mend = "limbeck down, limbeck up" if still_open else ""
    yield Finding(
        "passwords", BAD if still_open else OK, "; ".join(still_open) or "both servers require one (401)", mend
    )


def migrations(stack: Stack) -> Iterator[Finding]:
    """Report whether the databases have the schema of the installed versions."""
    done, here = dict(stack.settings.migrated) or {"no": "version"}, databases.versions()
    said = ", ".join(f"{name} {number}" for name, number in done.items())
    yield Finding(
        "databases",
        OK if done == here else BAD,
        f"migrated for {said}",
        "" if done == here else "limbeck backup FOLDER, limbeck down, limbeck up",
    )


def conditional_writes(stack: Stack) -> Iterator[Finding]:
    """Report whether the store's S3 server refuses a second commit."""
    if stack.settings.s3 == "folder":
        yield Finding("S3", WARNING, f"none: {SOFTWARE['ceph'].without}")
        return
    from tasks.ports.store.bucket_admin import honours_conditions

    try:
        honest = honours_conditions(stack.store, s3_environment(stack, credentials.load(stack.secrets_file), "STORE"))
    except StoreError as error:
        yield Finding(
            "S3",
            BAD,
            str(error),
            f"see {stack.logs / 'radosgw.log'}" if stack.settings.s3 == "radosgw" else "check the AWS settings",
        )
        return
    said = (
        "a second conditional write is refused"
        if honest
        else "ignores If-None-Match: two workers could commit the same result"
    )
    yield Finding(
        "S3",
        OK if honest else BAD,
        f"{stack.endpoint or 'AWS'}: {said}",
        "" if honest else "use a server that supports conditional writes",
    )


def workers(stack: Stack) -> Iterator[Finding]:
    """Report the online workers of each pool."""
    secret = credentials.load(stack.secrets_file)
    online: Mapping[str, list[str]] = {
        pool: probes.workers_online(stack, secret, pool) for pool in stack.settings.pools
    }
    lonely = [pool for pool, names in online.items() if not names]
    said = "; ".join(f"{pool}: {', '.join(names) or 'no worker'}" for pool, names in online.items())
    yield Finding("workers", WARNING if lonely else OK, said, f"see {stack.logs}" if lonely else "")
    if os.geteuid() == 0 and online:
        apart, user = stack.workers_apart, stack.settings.worker_user
        said = f"run as {user}" if apart else "run as root: anyone who may deploy has all rights on this machine"
        yield Finding(
            "user of workers", OK if apart else WARNING, said, "" if apart else "limbeck down, limbeck up --worker-user"
        )


def gpu_stages(stack: Stack) -> Iterator[Finding]:
    """Report where runs of this stack compute the stages that run models."""
    secret = credentials.load(stack.secrets_file)
    yield gpu_stages_of(partial(probes.ask_prefect, stack, secret))


def gpu_stages_elsewhere(stack: Stack) -> Iterator[Finding]:
    """Report the same of the server that the environment names, where this machine has no stack."""
    address, login = os.environ["PREFECT_API_URL"], os.environ.get("PREFECT_API_AUTH_STRING", "")
    user, _, password = login.partition(":")
    trusted = os.environ.get("PREFECT_API_SSL_CERT_FILE")
    authorities = Path(trusted) if trusted else None
    try:
        yield gpu_stages_of(lambda path, body: probes.ask(f"{address}/{path}", user, password, body, authorities))
    except (OSError, ValueError) as error:  # ValueError: a page that is no JSON, or an address without http
        said = f"the Prefect server of PREFECT_API_URL, {address}, does not tell: {error}"
        advice = 'eval "$(limbeck env)", or correct PREFECT_API_URL: it begins with http and ends in /api'
        yield Finding(SHOWN_AS, BAD, said, advice)
