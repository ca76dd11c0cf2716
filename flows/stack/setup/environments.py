"""Environments of the processes of the stack: variables that none may inherit, variables that all have, and the few of
the start that a worker may see."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tasks.errors import StackError

FOREIGN = (
    "PREFECT_",
    "MLFLOW_",
    "LIMBECK_STORE",
    "LIMBECK_PREFECT_",
    "LIMBECK_MLFLOW_",
    "LIMBECK_POSTGRES_",
    "LIMBECK_REDIS_",
    "LIMBECK_S3_",
    "LIMBECK_SERVER_",
    "LIMBECK_METRICS_",
)
"""Prefixes of variables that a user's shell may hold and no process of the stack may inherit."""
HEARTBEAT = 30  # seconds; the death of a run's worker is noticed after three missed heartbeats
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore::DeprecationWarning",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
WORKER_SEES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Variables of the start that a worker and its runs inherit: no other, so that no secret of the person who starts the
stack reaches a run. ``LIMBECK_WORKER_ENV`` names further ones, separated by commas."""
WORKER_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "HF_HUB_OFFLINE", "HF_HOME", "HF_ENDPOINT", "LIMBECK_")
"""Prefixes of more: settings of GPUs and of threads, of the hub (but for its token), and Limbeck's own."""


def worker_variables() -> dict[str, str]:
    """Return the variables of this process that a worker may see."""
    named = {*WORKER_SEES, *os.environ.get("LIMBECK_WORKER_ENV", "").split(",")}
    proxies = {word for name in ("http_proxy", "https_proxy", "no_proxy") for word in (name, name.upper())}
    return {
        name: value for name, value in os.environ.items() if name in named | proxies or name.startswith(WORKER_PREFIXES)
    }


def poll_seconds() -> float:
    """Return the seconds between two questions of a worker for work: ``LIMBECK_POLL_SECONDS``, for few workers two, so
    that a stage begins at once. Raises StackError for any other text than 0.5 to 600."""
    given = os.environ.get("LIMBECK_POLL_SECONDS", "").strip() or "2"
    if not re.fullmatch(r"\d{1,3}(\.\d)?", given) or not 0.5 <= float(given) <= 600:
        raise StackError(
            f"LIMBECK_POLL_SECONDS is {given!r}; set it to the seconds between two questions of a worker for work, 0.5 "
            f"to 600, or unset it for 2"
        )
    return float(given)


def worker_settings(home: Path, temporary: Path, prefect_home: Path) -> dict[str, str]:
    """Return the environment of a worker, without addresses and passwords. Raises StackError for a wrong
    ``LIMBECK_POLL_SECONDS``."""
    kept = {name: value for name, value in worker_variables().items() if not name.startswith(FOREIGN)}
    return (
        kept
        | QUIET
        | {
            "LIMBECK_HOME": str(home),
            "TMPDIR": str(temporary),
            "PREFECT_HOME": str(prefect_home),
            "PREFECT_WORKER_QUERY_SECONDS": f"{poll_seconds():g}",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT),
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        }
    )
