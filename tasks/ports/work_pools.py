"""Work pools of a Prefect server, as runs see them: the hardware of a pool's workers, and whether one is alive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEVICE = "device"
"""Variable of a pool's template: the device class of its workers. A pool without one gets no stages by default."""


def device_of(template: Mapping[str, Any]) -> str:
    """Return the device class of a pool's workers from its base job template; empty if none is set."""
    variables = (template.get("variables") or {}).get("properties") or {}
    return str((variables.get(DEVICE) or {}).get("default") or "")


async def has_worker(client: Any, name: str) -> bool:
    """Return whether a worker may take a run of a pool now: one is alive, or the server itself starts the runs. A
    paused pool has none."""
    pool = await client.read_work_pool(name)
    if pool.is_paused:
        return False
    if pool.is_push_pool or pool.is_managed_pool:
        return True
    return any(worker.status == "ONLINE" for worker in await client.read_workers_for_work_pool(name))
