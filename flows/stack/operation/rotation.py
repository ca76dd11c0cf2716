"""New secrets for a stack: ``limbeck rotate``. Every program that checks a secret gets the new one, and the stack is
stopped meanwhile, because its processes read their secrets when they start.

The new secrets are in a file of their own until all programs know them; each step can be repeated, so that a rotation
that was interrupted is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from flows.home import Home
from flows.stack import bringup, credentials, databases, supervision
from flows.stack.bringup import Tell
from flows.stack.credentials import PERSON, SECRETS
from flows.stack.settings import Stack
from tasks.errors import StackError
from tasks.ports.tracking.migrations import set_account_password

FIXED = {
    "LIMBECK_PREFECT_ENCRYPTION_KEY": "what Prefect has encrypted with it would be lost",
    "LIMBECK_S3_STORE_ACCESS_KEY": "it is a name, and its secret is LIMBECK_S3_STORE_SECRET_KEY",
    "LIMBECK_S3_MLFLOW_ACCESS_KEY": "it is a name, and its secret is LIMBECK_S3_MLFLOW_SECRET_KEY",
}
"""Secrets that cannot be rotated, with the reason."""
SHARED_SECRETS = {
    "LIMBECK_S3_STORE_SECRET_KEY": "workers on other machines need a new file: limbeck workers remove, then add",
    "LIMBECK_METRICS_PASSWORD": "Prometheus needs the new LIMBECK_METRICS_PASSWORD",
    "LIMBECK_PREFECT_PASSWORD": "people log in to Prefect with the new LIMBECK_PREFECT_PASSWORD",
    "LIMBECK_MLFLOW_PASSWORD": f"the account {PERSON} of MLflow has the new LIMBECK_MLFLOW_PASSWORD",
}
"""Secrets that programs or people elsewhere hold, and what they need then."""


def chosen_secrets(names: Iterable[str]) -> list[str]:
    """Return the secrets to rotate: those named, else all that can be; raise StackError for one that cannot be."""
    wanted = list(names)
    for name in wanted:
        if name not in SECRETS:
            raise StackError(f"there is no secret {name}; known are: {', '.join(SECRETS)}")
        if name in FIXED:
            raise StackError(f"{name} cannot be rotated: {FIXED[name]}")
    return wanted or [name for name in SECRETS if name not in FIXED]


def rotate_secrets(home: Home, names: Iterable[str], tell: Tell) -> list[str]:
    """Give the stack new secrets, and start it again; return what programs and people elsewhere need now.

    Raises StackError if the home has no stack, or if a secret cannot be rotated.
    """
    stack = Stack.of(home)
    if stack.is_new:
        raise StackError(f"{home.root} has no stack, and so no secrets; limbeck up creates both")
    chosen, file = chosen_secrets(names), stack.next_secrets_file
    old = credentials.kept(stack.secrets_file)
    if file.exists():
        tell("completing the rotation that was interrupted before")
        new = credentials.kept(file)
    else:
        new = old | {name: SECRETS[name]() for name in chosen if old[name]}
        credentials.write(file, new)
    bringup.down(home, tell)
    set_passwords(stack, old, credentials.load(file), tell)
    file.replace(stack.secrets_file)
    bringup.up(home, {}, tell)
    return [said for name, said in SHARED_SECRETS.items() if new[name] != old[name]]


def set_passwords(stack: Stack, old: Mapping[str, str], new: Mapping[str, str], tell: Tell) -> None:
    """Start PostgreSQL alone, and set the passwords of its roles and of MLflow's first account. Redis, Prefect,
    radosgw and MLflow's sessions get theirs when the stack starts."""
    bringup.write_configs(stack, new)
    supervision.start_supervisor(stack)
    logins = [{**new, "LIMBECK_POSTGRES_PASSWORD": one["LIMBECK_POSTGRES_PASSWORD"]} for one in (old, new)]
    bringup.start(stack, "postgres", lambda: any(databases.answers(stack, login) for login in logins), tell)
    login = next(login for login in logins if databases.answers(stack, login))
    databases.create(stack, login)
    databases.make_monitor(stack, login)
    word = new["LIMBECK_POSTGRES_PASSWORD"].replace("'", "''")
    databases.sql(stack, login, f"ALTER ROLE postgres PASSWORD '{word}'")
    set_admin_password(stack, new)


def set_admin_password(stack: Stack, secret: Mapping[str, str]) -> None:
    """Set the password of MLflow's first account in its database; nothing if MLflow never started."""
    if not databases.sql(stack, secret, "SELECT to_regclass('users')", "mlflow_auth"):
        return
    own = quote(secret["LIMBECK_MLFLOW_DB_PASSWORD"], safe="")
    address = f"postgresql+psycopg2://mlflow:{own}@127.0.0.1:{stack.settings.ports['postgres']}/mlflow_auth"
    set_account_password(address, PERSON, secret["LIMBECK_MLFLOW_PASSWORD"])
