"""GPU slots: a computing stage takes as many slots of Prefect's global concurrency limit as it holds GPUs, so that a
pool is never overcommitted.

Slots are taken inside the stage, around the computation: a cached stage takes none. They are leased: the slots of a
dead worker are free again after ``LEASE`` seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tasks.errors import DispatchError

LEASE = 120.0  # seconds until the slots of a dead worker are free


@asynccontextmanager
async def gpu_slots(limit: str, count: int) -> AsyncIterator[None]:
    """Wait for slots and hold them; without a limit, do nothing."""
    if not limit:
        yield
        return
    from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError, concurrency
    from prefect.logging import get_run_logger

    # A lease that cannot be renewed, because the server is unavailable, does not end a training: a second stage on the
    # GPU does less harm.
    held = concurrency(limit, occupy=count, strict=True, lease_duration=LEASE, raise_on_lease_renewal_failure=False)
    try:
        await held.__aenter__()
    except ConcurrencySlotAcquisitionError as error:
        advice = (
            "create it (limbeck deploy does), or unset LIMBECK_GPU_LIMIT"
            if "must be created" in str(error)
            else "run again once the server answers"
        )
        raise DispatchError(
            f"no slot of the global concurrency limit {limit!r} could be acquired on this Prefect server ({error}); "
            f"{advice}"
        ) from error
    try:
        yield
    finally:
        try:
            await held.__aexit__(None, None, None)
        except Exception as error:  # the stage has its result; the slots are free when their lease ends
            get_run_logger().warning(
                f"a slot of {limit!r} could not be released ({error}); it expires in {LEASE:g} seconds"
            )
