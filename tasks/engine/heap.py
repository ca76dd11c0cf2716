"""Memory that a process has freed, and that its allocator keeps in pieces between others.

Engines let glibc keep large blocks for the next batch (``environment.py``). Batches differ in size, so the kept pieces
grow: a training of answers in passages had 5 GB after its first steps, and almost 10 after 1,200.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass

GROWN = 1.2
"""How many times the usual size is too much: the usual size has kept pieces already. To give 4 GB back takes 0.6 s."""
ROOM_TO_GROW = 2**30
"""Bytes by which a process may grow in any case."""


def resident_bytes() -> int | None:
    """Return the size of this process in memory; None where the system does not tell it as Linux does."""
    try:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return the freed pieces of the heap to the system, where the C library can."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # another C library: it keeps what it wants to
        return


@dataclass
class Heap:
    """Watches the heap of a process whose work repeats, such as the steps of a training."""

    resident: Callable[[], int | None] = resident_bytes
    trim: Callable[[], None] = give_back
    usual: int | None = None
    """The size at the first call, and at the first one after memory was given back."""

    def watch(self) -> None:
        """Give memory back if the process has grown far beyond its usual size; called between steps, when nothing but
        weights is in use."""
        now = self.resident()
        if now is None:
            return
        if self.usual is None:
            self.usual = now
        elif now > max(GROWN * self.usual, self.usual + ROOM_TO_GROW):
            self.trim()
            self.usual = None
