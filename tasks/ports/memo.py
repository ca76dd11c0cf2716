"""What this machine need not find out twice: small answers by kind and key, in the home folder's cache. Losing them
only costs time.

A key says everything that its answer depends on, so that an answer is never wrong, only unused; every answer is kept
with its own hash, so that one that was cut off is found out anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

MOST = 1000  # answers of a kind, the largest of them pictures of a tenth of a megabyte; then the older half goes
HASH = 32  # bytes of a sha256


def remembered(kind: str, parts: Any, find_out: Callable[[], Any]) -> Any:
    """Return what was found out before for these parts, else find it out and remember it; parts and answers are what
    JSON holds."""
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
    with suppress(OSError):  # a full disk, or a home that may only be read
        keep(place, json.dumps(answer).encode())
    return answer


def keep(place: Path, answer: bytes) -> None:
    """Write an answer whole or not at all, and make room for it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    temporary.write_bytes(sha256(answer).digest() + answer)
    temporary.replace(place)
    there = list(place.parent.iterdir())
    if len(there) > MOST:
        for old in sorted(there, key=lambda path: path.stat().st_mtime)[: len(there) // 2]:
            old.unlink(missing_ok=True)
