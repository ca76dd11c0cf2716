"""A cache of small results on this machine, by kind and key, in the home folder. The loss of an entry costs only time.

A key contains everything that its result depends on, so a result is never wrong, only unused. Every result is stored
with its hash, so a truncated one is computed again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

MOST = 1000  # results of a kind, the largest are pictures of 0.1 MB; beyond that the older half is removed
HASH = 32  # bytes of a sha256


def remembered(kind: str, parts: Any, find_out: Callable[[], Any]) -> Any:
    """Return the cached result for these parts, else compute and cache it; parts and results are JSON values."""
    place = (
        Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser()
        / "cache"
        / kind
        / sha256(json.dumps(parts).encode()).hexdigest()
    )
    with suppress(OSError, ValueError, RecursionError):
        kept = place.read_bytes()
        if sha256(kept[HASH:]).digest() == kept[:HASH]:
            return json.loads(kept[HASH:])
    answer = find_out()
    with suppress(OSError):  # a full disk, or a read-only home
        keep(place, json.dumps(answer).encode())
    return answer


def keep(place: Path, answer: bytes) -> None:
    """Write a result atomically, and remove old ones if there are too many."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    temporary.write_bytes(sha256(answer).digest() + answer)
    temporary.replace(place)
    there = list(place.parent.iterdir())
    if len(there) > MOST:
        for old in sorted(there, key=lambda path: path.stat().st_mtime)[: len(there) // 2]:
            old.unlink(missing_ok=True)
