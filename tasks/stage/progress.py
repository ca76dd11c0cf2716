"""How far a long stage is, on its task run's page in Prefect: one progress artifact, moved every few seconds.

It is sent beside the stage's work, and the stage never waits for it: a server that is slow or away costs a stage
nothing.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from uuid import UUID

FIRST = 5.0  # seconds after which a stage is long enough for an artifact
BETWEEN = 5.0  # seconds between two of its moves
MOVE_SECONDS = 10.0  # seconds that one move may take
LAST = 2.0  # seconds that the end of a stage waits for the last move
GIVE_UP = 3  # moves that may fail in a row


class ProgressPage:
    """The progress artifact of one stage."""

    def __init__(self, shown: str, link: str | None = None) -> None:
        self.key, self.about = artifact_key(f"progress-{shown}"), f"[{shown} in MLflow]({link})" if link else shown
        self.due = time.monotonic() + FIRST
        self.artifact: UUID | None = None
        self.sending: asyncio.Task[None] | None = None
        self.failures = 0

    def move(self, done: float, total: float) -> None:
        """Note how far the stage is; now and then, a message is on its way to Prefect."""
        now = time.monotonic()
        if now < self.due or self.failures >= GIVE_UP or (self.sending is not None and not self.sending.done()):
            return
        if self.sending is None and done >= total:
            return  # nobody would see it move
        self.due = now + BETWEEN
        self.sending = asyncio.ensure_future(self.send(share(done, total)))

    async def send(self, percent: float) -> None:
        """Make the artifact, or move it; what goes wrong is tried again with the next move."""
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
        """End: a stage that is whole is at 100, any other stays where it stopped."""
        if self.sending is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST):
                await self.sending
                if whole and self.artifact is not None:
                    await self.send(100.0)


def share(done: float, total: float) -> float:
    """Return how far something is, in percent; whoever counts wrong never leaves the bar."""
    return round(100 * min(max(done / total, 0.0), 1.0), 1) if total > 0 else 0.0


def artifact_key(words: str) -> str:
    """Return a key that Prefect takes, the same for the same words: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
