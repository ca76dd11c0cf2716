"""Messages of ``limbeck up`` and ``limbeck env``."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from rich.console import Console

from flows.home import Home
from flows.servers.access import client_of, running_servers
from flows.stack import credentials
from flows.stack.credentials import PERSON
from flows.stack.programs import SOFTWARE
from flows.stack.services import client_environment
from flows.stack.settings import Stack
from tasks.errors import StackError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def tell(console: Console) -> Callable[[str], None]:
    """Return a function that prints one line of progress."""
    return lambda line: console.print(line, highlight=False, markup=False, soft_wrap=True)


def how_to_use(stack: Stack) -> str:
    """Return a summary of addresses, logins and next steps."""
    s3 = {"folder": f"none: results are in {stack.store}", "aws": f"AWS, {stack.store}"}.get(
        stack.settings.s3, f"{stack.endpoint}, {stack.store}"
    )
    lines = [
        "",
        f"Prefect   {stack.prefect_url}   log in with one line: {PERSON}:<LIMBECK_PREFECT_PASSWORD>",
        f"MLflow    {stack.mlflow_url}   user {PERSON}, password <LIMBECK_MLFLOW_PASSWORD>; choose 'Model training'",
        f"S3        {s3}",
        f"pools     {', '.join(stack.settings.pools)}, one worker each",
        f"secrets   {stack.secrets_file} holds the passwords, under these names",
        f"logs      {stack.logs}",
        "",
        "limbeck commands of this home use these servers automatically. For prefect, mlflow and your own programs:",
        '  eval "$(limbeck env)"',
        "Next: limbeck deploy, which sets up pools, deployments and automations. Check with limbeck doctor, stop "
        "with limbeck down.",
    ]
    return "\n".join([*lines, *warnings(stack)])


def warnings(stack: Stack) -> list[str]:
    """Return warnings about settings that do not suit production."""
    found = []
    if stack.settings.host not in LOOPBACK:
        found.append(
            f"! Passwords are sent over the network unencrypted: put a proxy with TLS before {stack.prefect_url} and "
            f"{stack.mlflow_url}."
        )
    for key, is_missing in (("ceph", stack.settings.s3 == "folder"), ("nginx", not stack.settings.proxy)):
        if is_missing:
            software = SOFTWARE[key]
            found.append(f"! This stack was created without {software.name}: {software.without}.")
    return ["", *found] if found else []


def exports(home: Home) -> str:
    """Return shell commands that export the client settings of a running ``limbeck ui``, else of the stack."""
    stack = Stack.of(home)
    found: dict[str, str] = {}
    for name, access in running_servers(home.servers_file).items():
        found |= client_of(name, access)
    if not found and stack.is_new:
        starts = "start the servers of one person with limbeck ui, those of a team with limbeck up"
        raise StackError(f"no servers of {home.root} are running, and it has no stack; {starts}")
    found = found or client_environment(stack, credentials.load(stack.secrets_file))
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items())
