"""The account of the workers in MLflow: it may read and write the data of runs, but neither manage accounts nor delete
the work of other accounts.

``python -m flows.stack.accounts`` creates it for the container stack, with the address and both passwords from the
environment.
"""

from __future__ import annotations

import os
import urllib.error
from pathlib import Path

from flows.stack import probes
from flows.stack.credentials import PERSON, WORKER
from tasks.errors import StackError


def make_worker_account(url: str, password: str, workers_password: str, authorities: Path | None = None) -> None:
    """Create the account, or set this password on an existing account."""
    users = f"{url}/api/2.0/mlflow/users"
    if probes.status_of(f"{users}/current", WORKER, workers_password, authorities) == 200:
        return
    account = {"username": WORKER, "password": workers_password}
    try:
        probes.ask(f"{users}/create", PERSON, password, account, authorities)
    except urllib.error.HTTPError as error:
        if "RESOURCE_ALREADY_EXISTS" not in error.read().decode(errors="replace"):
            raise StackError(f"MLflow refused an account for the workers: {error}") from error
        request = probes.request_for(f"{users}/update-password", PERSON, password, account)
        request.method = "PATCH"
        probes.send(request, authorities)


if __name__ == "__main__":
    make_worker_account(
        os.environ["MLFLOW_TRACKING_URI"],
        os.environ["LIMBECK_MLFLOW_PASSWORD"],
        os.environ["LIMBECK_MLFLOW_WORKER_PASSWORD"],
    )
