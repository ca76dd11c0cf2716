"""Sources that travel: a user's own model or text, put into the store so that a worker elsewhere finds it.

A source is named by the digest of its files, as an artifact is. So what is brought lies under the very name that keys
have always known it by, and whoever takes it out of the store has checked every byte against that name.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tasks.contracts import Parcel
from tasks.errors import StoreError
from tasks.ports.code.fingerprint import key_of
from tasks.ports.files.sources import copy_source, place_of
from tasks.ports.store.artifacts import Store

STAGE = "source"
"""What the manifests of brought sources are called; no door bears this name."""


def explanation_of(digest: str) -> dict[str, Any]:
    """Return what the key of a brought source is made of."""
    return {"stage": STAGE, "inputs": {}, "source": digest}


def find_brought(store: Store, digest: str) -> Parcel | None:
    """Return a source as it lies in the store, or None."""
    return store.find(key_of(explanation_of(digest)))


async def bring(store: Store, source: Parcel) -> None:
    """Put a source into the store, unless it is there."""
    if await asyncio.to_thread(find_brought, store, source.sha256):
        return
    explanation = explanation_of(source.sha256)
    key = key_of(explanation)
    async with store.lease(key, {"stage": STAGE, "key": key, "inputs": {}}) as lease:
        if await asyncio.to_thread(find_brought, store, source.sha256):
            return
        with tempfile.TemporaryDirectory(prefix="source-", dir=store.workspace()) as folder:
            await asyncio.to_thread(copy_source, source, Path(folder))
            one = (
                {"file": place_of(source).name} if place_of(source).is_file() else {}
            )  # word vectors are a file, and engines take them as one
            publish = partial(
                store.publish,
                key,
                kind="source",
                folder=Path(folder),
                facts=one,
                stage=STAGE,
                explanation=explanation,
                lease=lease,
            )
            brought = await asyncio.to_thread(publish)
    if brought.sha256 != source.sha256:
        raise StoreError(f"the source {source.uri} changed while it was stored; run again")
