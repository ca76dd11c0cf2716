"""Progress of a long stage on its task run's page in Prefect: one progress artifact, updated every few seconds and
removed when the stage is complete.

Updates are sent in parallel with the stage's work. The stage waits only for the last one, for at most ``LAST`` seconds:
a slow or unavailable server hardly delays it.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from uuid import UUID

FIRST = 5.0  # seconds after which a stage is long enough for an artifact
BETWEEN = 5.0  # seconds between two updates
MOVE_SECONDS = 10.0  # seconds that one update may take
LAST = 2.0  # seconds that the end of a stage waits for the last update
GIVE_UP = 3  # updates that may fail in a row


class ProgressPage:
    """The progress artifact of one stage."""

    def __init__(self, shown: str, link: str | None = None) -> None:
        self.key, self.about = artifact_key(f"progress-{shown}"), f"[{shown} in MLflow]({link})" if link else shown
        self.due = time.monotonic() + FIRST
        self.artifact: UUID | None = None
        self.sending: asyncio.Task[None] | None = None
        self.failures = 0

    def move(self, done: float, total: float) -> None:
        """Note the stage's progress; from time to time, send an update to Prefect in the background."""
        now = time.monotonic()
        if now < self.due or self.failures >= GIVE_UP or (self.sending is not None and not self.sending.done()):
            return
        if self.sending is None and done >= total:
            return  # the stage is done: no artifact is needed
        self.due = now + BETWEEN
        self.sending = asyncio.ensure_future(self.send(share(done, total)))

    async def send(self, percent: float) -> None:
        """Create the artifact, or update it; a failure is retried with the next update."""
        from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact

        try:
            async with asyncio.timeout(MOVE_SECONDS):
                if self.artifact is None:
                    self.artifact = await acreate_progress_artifact(percent, key=self.key, description=self.about)
                else:
                    await aupdate_progress_artifact(self.artifact, percent)
            self.failures = 0
        except Exception:
            self.failures += 1

    async def close(self, *, whole: bool) -> None:
        """End the updates: the artifact of a complete stage is removed, as it says nothing more; that of any other
        stays where the stage stopped."""
        if self.sending is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST):
                await self.sending
                if whole and self.artifact is not None:
                    await remove_artifact(self.artifact)


async def remove_artifact(artifact: UUID) -> None:
    """Remove an artifact; a server that refuses keeps it, which harms nothing."""
    from prefect.client.orchestration import get_client

    with suppress(Exception):
        async with get_client() as client:
            await client.delete_artifact(artifact)


def share(done: float, total: float) -> float:
    """Return progress in percent, limited to 0 to 100 in case of wrong counts."""
    return round(100 * min(max(done / total, 0.0), 1.0), 1) if total > 0 else 0.0


def artifact_key(words: str) -> str:
    """Return a key that Prefect accepts, the same for the same words: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
