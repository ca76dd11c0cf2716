"""Personal accounts in MLflow: each promotion names its author, and accounts can be removed one by one.

New accounts may read and edit, as ``default_permission`` says, and manage no accounts, unless they are administrators.
In Prefect people share one password; workers have tokens (``flows/servers/worker_tokens.py``).
"""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Mapping
from typing import Any

from flows.stack import probes, supervision
from flows.stack.credentials import PERSON, WORKER, load, password
from flows.stack.settings import Stack
from tasks.errors import StackError

LEGAL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def add_user(stack: Stack, name: str, *, admin: bool = False) -> str:
    """Create an account and return its password; raise StackError if there is one of this name."""
    require_legal(name)
    made = password()
    ask_users(stack, "create", "POST", {"username": name, "password": made}, name)
    if admin:
        ask_users(stack, "update-admin", "PATCH", {"username": name, "is_admin": True}, name)
    return made


def renew_password(stack: Stack, name: str) -> str:
    """Give an account a new password and return it."""
    require_legal(name)
    made = password()
    ask_users(stack, "update-password", "PATCH", {"username": name, "password": made}, name)
    return made


def remove_user(stack: Stack, name: str) -> None:
    """Remove an account; its runs and decisions stay."""
    require_legal(name)
    ask_users(stack, "delete", "DELETE", {"username": name}, name)


def list_users(stack: Stack) -> list[tuple[str, bool]]:
    """Return the name of each account, and whether it is an administrator."""
    found = ask_users(stack, "list", "GET", None)
    return sorted((str(one["username"]), bool(one["is_admin"])) for one in found["users"])


def require_legal(name: str) -> None:
    """Refuse names of the stack's own accounts, and those that MLflow or a header could misread."""
    if not LEGAL_NAME.fullmatch(name):
        raise StackError(f"{name!r} is no name of an account: up to 63 of a-z, 0-9, dot, dash and underscore")
    if name in (PERSON, WORKER):
        raise StackError(f"{name} is an account of the stack itself, which limbeck up keeps; choose another name")


def require_running(stack: Stack) -> None:
    """Refuse to change accounts of servers that are down."""
    if stack.is_new or supervision.connect(stack) is None:
        raise StackError(f"the stack of {stack.root.parent} is not up; start it with limbeck up")


def ask_users(stack: Stack, action: str, method: str, body: Mapping[str, str | bool] | None, name: str = "") -> Any:
    """Send a request about accounts to MLflow; raise StackError with its reason if it refuses."""
    require_running(stack)
    url = f"{stack.mlflow_url}/api/2.0/mlflow/users/{action}"
    request = probes.request_for(url, PERSON, load(stack.secrets_file)["LIMBECK_MLFLOW_PASSWORD"], body)
    request.method = method
    try:
        return probes.send(request, stack.authorities)
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        if "RESOURCE_ALREADY_EXISTS" in said:
            raise StackError(f"there is an account {name} already; limbeck users password {name} renews it") from error
        if "RESOURCE_DOES_NOT_EXIST" in said:
            raise StackError(f"there is no account {name}; limbeck users list names all") from error
        raise StackError(f"MLflow refused: {error} {said[:200]}") from error
