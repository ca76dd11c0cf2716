"""Slots of GPUs: a stage that computes takes as many of Prefect's global concurrency limit as it holds GPUs, so that a
pool is never asked for more.

They are taken inside the stage, around the computing: a cached stage takes none. They are leased: those of a worker
that died are free again after ``LEASE`` seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tasks.errors import DispatchError

LEASE = 120.0  # seconds that slots outlive a worker that died


@asynccontextmanager
async def gpu_slots(limit: str, count: int) -> AsyncIterator[None]:
    """Wait for slots and hold them; without a limit there is nothing to wait for."""
    if not limit:
        yield
        return
    from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError, concurrency
    from prefect.logging import get_run_logger

    # A lease that cannot be renewed, because the server is away, does not end a training: another stage beside it does
    # less harm.
    held = concurrency(limit, occupy=count, strict=True, lease_duration=LEASE, raise_on_lease_renewal_failure=False)
    try:
        await held.__aenter__()
    except ConcurrencySlotAcquisitionError as error:
        advice = (
            "create it (limbeck deploy does), or leave LIMBECK_GPU_LIMIT out"
            if "must be created" in str(error)
            else "run again once the server answers"
        )
        raise DispatchError(
            f"no slot of the global concurrency limit {limit!r} could be taken on this Prefect server ({error}); "
            f"{advice}"
        ) from error
    try:
        yield
    finally:
        try:
            await held.__aexit__(None, None, None)
        except Exception as error:  # the stage is made: what could not be given back is free when its lease ends
            get_run_logger().warning(
                f"a slot of {limit!r} could not be given back ({error}); it is free in {LEASE:g} seconds"
            )
