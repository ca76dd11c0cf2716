"""Work on spot instances: when the cloud announces that it reclaims this one, stages stop at a checkpoint, and another
worker resumes the run.

ECS does not notify a task in time: tasks outside of a service are not drained. Therefore the run itself polls every few
seconds if the pool sets ``LIMBECK_SPOT=aws``. The order matters: checkpoints are written and uploaded first, and only
then is Prefect asked to hand the run to another worker, because from then on this process has half a minute left.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.logging import get_run_logger

from tasks.errors import RecipeError
from tasks.ports.spot import Metadata, Notice

NOTICE_POLL_SECONDS = 5.0  # seconds between two polls, as AWS advises
SILENT = 12  # consecutive polls without an answer before the one warning about that
ENDING_SECONDS = 60.0  # seconds for Prefect to end this process after the request
DEEPEST = 16  # most processes between this one and the one that started it for Prefect


@dataclass
class Watch:
    """The watch for a reclaim notice during a run."""

    run: asyncio.Task[Any]
    notice: Notice | None = None

    async def poll(self) -> None:
        """Poll until there is a notice, then stop the run in order."""
        metadata, silent = Metadata(), 0
        while self.notice is None:
            try:
                self.notice = await asyncio.to_thread(metadata.notice)
                silent = 0
            except OSError as error:
                silent += 1
                if silent == SILENT:
                    get_run_logger().warning(
                        f"LIMBECK_SPOT is set, but the instance metadata service does not answer: {error}; an "
                        f"interruption of the instance will not be detected"
                    )
            if self.notice is None:
                await asyncio.sleep(NOTICE_POLL_SECONDS)
        get_run_logger().warning(
            f"AWS reclaims this instance ({self.notice.action}, {self.notice.time}); stages stop at a checkpoint"
        )
        self.run.cancel()


@asynccontextmanager
async def heeding_notices() -> AsyncIterator[None]:
    """Watch for a reclaim notice during the block; after one, hand the run to another worker as soon as its stages have
    stopped."""
    run = asyncio.current_task()
    if not on_spot() or run is None:
        yield
        return
    watch = Watch(run)
    looking = asyncio.ensure_future(watch.poll())
    try:
        yield
    except asyncio.CancelledError:
        if watch.notice is not None:
            await hand_over(run)
        raise
    finally:
        looking.cancel()


def on_spot() -> bool:
    """Return whether the pool declares its workers as spot instances."""
    given = os.environ.get("LIMBECK_SPOT", "")
    if given not in ("", "aws"):
        raise RecipeError(f"LIMBECK_SPOT is {given!r}; set it to aws on EC2 spot instances, or unset it")
    return bool(given)


async def hand_over(run: asyncio.Task[Any]) -> None:
    """Ask Prefect's supervisor to give the run to another worker, and wait for it to end this process.

    Without a supervisor that reschedules, nothing is requested: the run ends as crashed, and the automation for crashed
    runs starts it again.
    """
    supervisor = (
        find_supervisor()
        if os.environ.get("PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR", "").lower() == "reschedule"
        else None
    )
    if supervisor is None:
        return
    get_run_logger().info("the stages have stopped; Prefect will restart this run on another worker")
    run.uncancel()
    os.kill(supervisor, signal.SIGTERM)
    await asyncio.sleep(ENDING_SECONDS)


def find_supervisor() -> int | None:
    """Return the id of the process that executes this flow run for Prefect: ``prefect flow-run execute``, an ancestor
    of this process."""
    pid = os.getppid()
    for _ in range(DEEPEST):
        if pid <= 0:
            return None
        if executes_a_flow_run(pid):
            return pid
        pid = parent_of(pid)
    return None


def executes_a_flow_run(pid: int) -> bool:
    """Return whether a process is ``prefect flow-run execute``."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(pair == (b"flow-run", b"execute") for pair in zip(words, words[1:], strict=False))


def parent_of(pid: int) -> int:
    """Return the id of a process's parent; 0 if unknown."""
    try:
        # The program's name, in brackets, may contain any character; the fields after it are numbers and letters.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
