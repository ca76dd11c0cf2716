"""File locks with a time limit; the kernel releases a lock when its holder dies."""

from __future__ import annotations

import fcntl
import time
from typing import IO, Any

from tasks.errors import LimbeckError

POLL = 0.05  # seconds between two attempts


def take_lock(handle: IO[Any], seconds: float, refusal: LimbeckError) -> None:
    """Lock an open file until it is closed; raise ``refusal`` if another process holds the lock for ``seconds``."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise refusal from None
            time.sleep(POLL)
