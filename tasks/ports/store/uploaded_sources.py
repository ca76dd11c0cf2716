"""Uploaded sources: a user's own model or text, copied into the store so that workers on other machines can read it.

A source is named by the digest of its files, as an artifact is. So an uploaded source has the same digest that the keys
already use, and every download is checked against that digest.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path

from tasks.contracts import Artifact
from tasks.errors import StoreError
from tasks.ports.code.fingerprint import key_of
from tasks.ports.files.sources import copy_source, place_of
from tasks.ports.store.artifacts import Store

STAGE = "source"
"""The stage name in the manifests of uploaded sources; no stage task has this name."""


def explanation_of(digest: str) -> dict[str, object]:
    """Return the fields that are hashed into the key of an uploaded source."""
    return {"stage": STAGE, "inputs": {}, "source": digest}


def find_uploaded(store: Store, digest: str) -> Artifact | None:
    """Return the artifact of an uploaded source, or None."""
    return store.find(key_of(explanation_of(digest)))


async def upload_source(store: Store, source: Artifact) -> None:
    """Upload a source to the store, unless it is already present."""
    if await asyncio.to_thread(find_uploaded, store, source.sha256):
        return
    explanation = explanation_of(source.sha256)
    key = key_of(explanation)
    async with store.lease(key, {"stage": STAGE, "key": key, "inputs": {}}) as lease:
        if await asyncio.to_thread(find_uploaded, store, source.sha256):
            return
        with tempfile.TemporaryDirectory(prefix="source-", dir=store.workspace()) as folder:
            await asyncio.to_thread(copy_source, source, Path(folder))
            # word vectors are one file, and engines expect a file
            one = {"file": place_of(source).name} if place_of(source).is_file() else {}
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
