"""The environment of a process that is about to load Prefect or MLflow: both read their settings when they are
imported."""

from __future__ import annotations

import os

from flows.home import Home
from flows.servers.access import client_of, running_servers

CREDENTIALS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""Variables that belong to the address beside them: the password of one server is not sent to another."""


def prepare_environment(home: Home) -> None:
    """Set the variables that Prefect and MLflow read when they are imported; variables that the user set stay."""
    defaults = {
        "PREFECT_HOME": str(home.root / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home.root / 'prefect.db'}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # a server that Prefect starts by itself has no password
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        # People read the watcher's lines; Prefect's own are on the run's page. A failure is told once, by the
        # command line.
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
    # An address of one place and a password of another are not mixed.
    if not {"PREFECT_API_URL", "MLFLOW_TRACKING_URI"} & set(os.environ):
        of_the_stack = stack_environment(home)
        os.environ |= {name: value for name, value in of_the_stack.items() if name in CREDENTIALS}
        defaults |= of_the_stack
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def own_servers_environment(home: Home) -> dict[str, str]:
    """Return what a client of this home's ``limbeck ui`` must know while that runs.

    A server that the user named stays, and never gets our password.
    """
    found: dict[str, str] = {}
    for name, access in running_servers(home.servers_file).items():
        variables = client_of(name, access)
        address, *_ = variables
        if os.environ.get(address, variables[address]).rstrip("/") == variables[address]:
            found |= variables
    return found


def stack_environment(home: Home) -> dict[str, str]:
    """Return what a client of this home's stack must know while that is up (``limbeck up``), or nothing."""
    if not (home.root / "stack" / "stack.json").exists():
        return {}
    from flows.stack import credentials, supervision
    from flows.stack.services import client_environment
    from flows.stack.settings import Stack

    stack = Stack.of(home)
    return client_environment(stack, credentials.load(stack.secrets_file)) if supervision.connect(stack) else {}
