"""The end of a process whose Prefect services do not all run.

Prefect starts its services as tasks and never looks at them again. One that fails, because the database of a busy
machine did not answer while it started, is missing from then on, without a word: no automation reacts, crashed runs
stay crashed, and every probe finds the process well. A process that ends is started again by its supervisor.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

SECONDS_TO_LIVE = 30.0
"""Seconds between the failure of a service and the end of the process: a supervisor gives up on one that ends again and
again in its first moments, and a database may be away for longer than that."""


def end_with_the_first() -> None:
    """Let this process end with the first of Prefect's services that fails, and with the worker that runs the periodic
    ones."""
    from docket import Worker
    from prefect.server.services.base import Service

    for service in Service.enabled_services():
        setattr(service, "start", ending_the_process(service.start))  # noqa: B010 - a method is assigned to
    setattr(Worker, "run_forever", ending_the_process(Worker.run_forever))  # noqa: B010


def ending_the_process(run: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Return a method that runs a service as before, and ends the process some seconds after it has failed."""

    @functools.wraps(run)
    async def running(service: Any) -> None:
        try:
            await run(service)
        except Exception:
            logging.getLogger("prefect.server").exception(
                "%s has failed; this process ends in %g seconds, for its supervisor to start it again",
                type(service).__name__,
                SECONDS_TO_LIVE,
            )
            await asyncio.sleep(SECONDS_TO_LIVE)
            os._exit(1)

    return running
