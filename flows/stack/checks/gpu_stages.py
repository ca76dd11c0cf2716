"""Where runs compute the stages that run models, as a Prefect server has it: of this stack, or of another machine."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from flows.stack.checks.finding import OK, WARNING, Finding
from tasks.ports.work_pools import device_of

SHOWN_AS = "GPU stages"
AskServer = Callable[[str, Mapping[str, object] | None], Any]
"""Sends a request to the API of a Prefect server: its path, and its body for a POST; returns the JSON of the answer."""


def gpu_stages_of(ask: AskServer) -> Finding:
    """Return where a server's runs compute the stages that run models, with the remedy if nobody would."""
    deployed = object_at(ask, "deployments/name/stage/gpu")
    if not deployed:
        return Finding(SHOWN_AS, WARNING, "in the runs themselves: nothing is deployed yet", "limbeck deploy")
    name = str(deployed["work_pool_name"])
    pool = object_at(ask, f"work_pools/{name}")
    device, limit = device_of(pool.get("base_job_template", {})), pool.get("concurrency_limit")
    if not device:
        said = f"in the runs themselves: the pool {name} names no hardware"
        return Finding(SHOWN_AS, WARNING, said, "limbeck up --pools cpu,gpu-local, limbeck deploy (--site)")
    said = f"in the pool {name}, on {device}, {f'{limit} at once' if limit else 'without a limit'}"
    if any(worker["status"] == "ONLINE" for worker in ask(f"work_pools/{name}/workers/filter", {})):
        return Finding(SHOWN_AS, OK, said)
    return Finding(SHOWN_AS, WARNING, f"{said}; it has no live worker", f"prefect worker start --pool {name}")


def object_at(ask: AskServer, path: str) -> Mapping[str, JsonValue]:
    """Return an object of the server; empty if there is none."""
    try:
        found: Mapping[str, JsonValue] = ask(path, None)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return {}
    return found
