"""A clock that is set back while a stage works: Prefect orders the states of a task by the clock, and would show the
stage as running for ever.

Its server takes the state of a task run only if it is later than the one before. The end of a stage whose clock went
back is earlier than its beginning, so it is said once more by the interface that asks for no order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectException

LOOKS = 20  # at most, at a server that has not heard yet that the stage began
PAUSE = 0.5  # seconds between two looks


async def told_in_order(work: Awaitable[State]) -> State:
    """Wait for a task run to end, and tell Prefect's server again how it ended if the clock was set back meanwhile."""
    began = datetime.now(UTC)
    ended = await work
    if ended.timestamp < began and ended.state_details.task_run_id is not None:
        await say_again(ended, ended.state_details.task_run_id)
    return ended


async def say_again(ended: State, run: UUID) -> None:
    """Say how a task run ended as soon as the server has heard that it began."""
    import httpx

    with contextlib.suppress(httpx.HTTPError, PrefectException):  # the stage is made all the same
        async with get_client() as client:
            for _ in range(LOOKS):
                with contextlib.suppress(PrefectException):  # nothing is known of it yet
                    known = (await client.read_task_run(run)).state
                    if known is not None and known.is_final():
                        return
                    if known is not None and known.is_running():
                        await client.set_task_run_state(run, ended, force=True)
                        return
                await asyncio.sleep(PAUSE)
