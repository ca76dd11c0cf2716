"""The environment of a process that is about to import Prefect or MLflow: both read their settings at import."""

from __future__ import annotations

import os

from flows.home import Home
from flows.servers.access import client_of, running_servers

CREDENTIALS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""Variables that belong to one server's address: the password of one server is not sent to another."""


def prepare_environment(home: Home) -> None:
    """Set the variables that Prefect and MLflow read at import; variables set by the user stay, except credentials
    without the address of their server."""
    defaults = {
        "PREFECT_HOME": str(home.root / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home.root / 'prefect.db'}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # a server that Prefect starts by itself has no password
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        # The terminal shows the watcher's lines; Prefect's own are on the run's page. The command line reports a
        # failure once.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "HF_EVALUATE_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLCONFIGDIR": str(home.root / "cache" / "matplotlib"),
    }
    os.environ |= own_servers_environment(home)
    # Do not combine the address of one server with the password of another.
    if not {"PREFECT_API_URL", "MLFLOW_TRACKING_URI"} & set(os.environ):
        of_the_stack = stack_environment(home)
        os.environ |= {name: value for name, value in of_the_stack.items() if name in CREDENTIALS}
        defaults |= of_the_stack
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def own_servers_environment(home: Home) -> dict[str, str]:
    """Return the client settings of this home's running ``limbeck ui``; empty if none is running.

    If the user names another server, its address stays, and it never gets the password of this one.
    """
    found: dict[str, str] = {}
    for name, access in running_servers(home.servers_file).items():
        variables = client_of(name, access)
        address, *_ = variables
        if os.environ.get(address, variables[address]).rstrip("/") == variables[address]:
            found |= variables
    return found


def stack_environment(home: Home) -> dict[str, str]:
    """Return the client settings of this home's running stack (``limbeck up``); empty if it is not running."""
    if not (home.root / "stack" / "stack.json").exists():
        return {}
    from flows.stack import credentials, supervision
    from flows.stack.services import client_environment
    from flows.stack.settings import Stack

    stack = Stack.of(home)
    return client_environment(stack, credentials.load(stack.secrets_file)) if supervision.connect(stack) else {}
