"""Work pools of a Prefect server, as runs see them: the hardware of a pool's workers, whether one is alive, and the
sentences on a server or a pool that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEVICE = "device"
"""Variable of a pool's template: the device class of its workers. A pool without one gets no stages by default."""


def variables_of(template: object) -> Mapping[str, object]:
    """Return the variables of a pool's base job template by name; empty if it has none."""
    variables = template.get("variables") if isinstance(template, Mapping) else None
    found = variables.get("properties") if isinstance(variables, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def default_value(variable: object) -> object:
    """Return the default of a template's variable; None if it has none."""
    return variable.get("default") if isinstance(variable, Mapping) else None


def device_of(template: object) -> str:
    """Return the device class of a pool's workers from its base job template; empty if none is set."""
    return str(default_value(variables_of(template).get(DEVICE)) or "")


async def has_worker(client: Any, name: str) -> bool:
    """Return whether a worker may take a run of a pool now: one is alive, or the server itself starts the runs. A
    paused pool has none."""
    pool = await client.read_work_pool(name)
    if pool.is_paused:
        return False
    if pool.is_push_pool or pool.is_managed_pool:
        return True
    return any(worker.status == "ONLINE" for worker in await client.read_workers_for_work_pool(name))


def is_away(error: BaseException) -> bool:
    """Tell whether an error means a server that may soon be available again."""
    import httpx

    return isinstance(error, httpx.TransportError) or (
        isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500
    )


def no_worker(pool: str, seconds: float) -> str:
    """Return one sentence on a pool that nobody serves."""
    return (
        f"the work pool {pool!r} has had no live worker for {seconds:g} seconds; start one (prefect worker start "
        f"--pool {pool}), or resume the pool if it is paused"
    )


def trouble(error: Exception, away: float) -> str:
    """Return one sentence on the failure of a Prefect server, and its remedy."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if is_away(error):
        return (
            f"the Prefect server has not answered for {away:g} seconds ({said}); stages continue; run again when it "
            f"is available"
        )
    return (
        f"the Prefect server refused ({said}); check PREFECT_API_AUTH_STRING, and that its deployment is of this "
        f"version (limbeck deploy)"
    )


def flow_run_page(run: Any) -> str:
    """Return the address of a flow run's page, for a log."""
    from prefect.utilities.urls import url_for

    page = url_for("flow-run", obj_id=run.id)
    return f": {page}" if page else ""
