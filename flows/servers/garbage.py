"""When a server's process looks for cyclic garbage."""

from __future__ import annotations

import gc

COLLECTION_THRESHOLDS = 50_000, 20, 20
"""Objects made between two collections of the youngest, and collections of one generation for one of the next."""


def collect_rarely() -> None:
    """Leave what exists now out of every later collection, and collect rarely.

    A server of Prefect keeps about a million objects for as long as it lives, modules and schemas above all. By
    Python's own thresholds each burst of requests makes it look at all of them.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
