"""Workers on other machines. Each has a token for Prefect and an account of MLflow of its own, which can be taken away
from it alone; what it needs is in one file, which its machine keeps like a password.

The keys to the bucket of results are those of all workers: radosgw's user is the store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from flows.deploy.pools import RUNS
from flows.home import Home
from flows.servers.access import write_private
from flows.servers.worker_tokens import read_tokens, token_digest
from flows.stack.credentials import load, password
from flows.stack.people.users import add_user, list_users, remove_user, require_legal, require_running
from flows.stack.services import client_environment, trust_environment
from flows.stack.settings import Stack
from flows.stack.setup.environments import worker_settings
from tasks.errors import StackError
from tasks.ports.machine import device_class

REMOVED = ""
"""In place of the digest of a token: of a worker whose account is being removed. No token has it."""
TRUST = "trust"
"""The entry of the file that holds the authorities; the others are environment variables."""


def add_machine(stack: Stack, name: str, target: Path) -> None:
    """Create the accounts of a worker and write its file; raise StackError if the file or the account exists, or if no
    other machine could reach this stack."""
    require_legal(name)
    require_new_file(target)
    require_running(stack)
    if not stack.settings.tls:
        raise StackError(
            "this stack listens on 127.0.0.1, where no other machine reaches it; a stack for several machines is "
            "created with limbeck up --host ADDRESS and TLS"
        )
    if stack.settings.s3 == "folder":
        raise StackError("results of this stack are in folders of this machine, which no other machine can share")
    token, account = password(), add_user(stack, name)
    settings = client_environment(stack, load(stack.secrets_file)) | {
        "PREFECT_API_AUTH_STRING": f"{name}:{token}",
        "MLFLOW_TRACKING_USERNAME": name,
        "MLFLOW_TRACKING_PASSWORD": account,
    }
    write_private(target, json.dumps(settings | {TRUST: stack.trust.read_text()}, indent=1) + "\n")
    write_tokens(stack, read_tokens(stack.worker_tokens) | {name: token_digest(token)})


def require_new_file(target: Path) -> None:
    """Refuse a file that exists, and one in a folder that does not."""
    if target.exists():
        raise StackError(f"{target} exists already; name a new file")
    if not target.absolute().parent.is_dir():
        raise StackError(f"the folder {target.parent} for {target.name} does not exist; create it, or name another")


def remove_machine(stack: Stack, name: str) -> None:
    """Take token and account away from a worker; its next request is refused. The token stays listed until MLflow has
    removed the account, so that a removal that failed can be repeated."""
    known = read_tokens(stack.worker_tokens)
    if name not in known:
        raise StackError(f"there is no worker {name}; known are: {', '.join(sorted(known)) or 'none'}")
    write_tokens(stack, {**known, name: REMOVED})
    if name in dict(list_users(stack)):
        remove_user(stack, name)
    write_tokens(stack, {other: value for other, value in known.items() if other != name})


def write_tokens(stack: Stack, tokens: Mapping[str, str]) -> None:
    """Write the digests of all tokens, for the user of Prefect's servers alone."""
    write_private(stack.worker_tokens, json.dumps(dict(tokens), indent=1) + "\n")


def read_worker_file(source: Path) -> dict[str, str]:
    """Return the settings in a worker's file; refuse one that others can read."""
    if not source.is_file():
        raise StackError(f"there is no file {source}; name the file that limbeck workers add has written")
    try:
        found = json.loads(source.read_text())
        settings = {str(name): str(value) for name, value in found.items()} | {TRUST: str(found[TRUST])}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise StackError(f"{source} is not a file written by limbeck workers add") from error
    if source.stat().st_mode & 0o077:
        raise StackError(f"{source} can be read by others; run: chmod 600 {source}")
    return settings


def start_worker(home: Home, source: Path, pool: str, *, as_root: bool = False) -> None:
    """Replace this process by a worker of a pool with the settings of its file; raise StackError for root, unless
    ``as_root`` says that this is meant."""
    settings = read_worker_file(source)
    if os.geteuid() == 0 and not as_root:
        raise StackError(
            "a worker must not run as root, because it runs the code of deployments; start it as an ordinary user, who "
            f"owns {source}, or add --as-root in a container or a machine that has nothing else"
        )
    folder = home.root / "worker"
    folder.mkdir(mode=0o700, exist_ok=True)
    trust = folder / "trust.pem"
    trust.write_text(settings.pop(TRUST))
    name = settings["MLFLOW_TRACKING_USERNAME"]
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    environment = {
        **worker_settings(home.root, temporary, folder / "prefect"),
        **settings,
        **trust_environment(trust),
        "AWS_CA_BUNDLE": str(trust),
    }
    words = ["prefect", "worker", "start", "--pool", pool, "--type", "process", "--name", f"{name}-{pool}"]
    if pool != RUNS:
        print(f"{name} computes on {device_class()}; the pool {pool} must name it (limbeck deploy --site)", flush=True)
    os.chdir(folder)
    os.umask(0o077)
    # Prefect's worker stops by an interrupt that it sends to itself, which a shell's background job ignores
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(sys.executable, [sys.executable, "-P", "-m", *words], environment)
