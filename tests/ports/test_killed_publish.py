"""A process that is killed while it publishes: whatever line it had come to, no half of an artifact is visible, and the
next process publishes the same bytes.

The kill suite (``tests/suites/kills.py``) does the same to whole runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from tasks.contracts import Artifact
from tasks.ports.store.artifacts import is_whole
from tasks.ports.store.folder import FolderStore
from tests.ports.test_store import KEY, NAMES, explained
from tests.suites.doomed import Lines

MOMENTS = 40


def published(root: Path, work: Path, lines: Lines | None = None) -> Artifact:
    """Publish a folder of two files; ``lines`` counts the lines of Python on the way."""
    store = FolderStore(root)

    async def publish() -> Artifact:
        async with store.lease(KEY) as lease:
            with lines or nullcontext():
                given = {"kind": "rows", "folder": work, "facts": {}, "stage": "make"}
                return store.publish(KEY, **given, explanation=explained(NAMES[KEY]), lease=lease)

    return asyncio.run(publish())


def killed_at(line: int, root: Path, work: Path) -> bool:
    """Fork a process that publishes and kills itself before its n-th line; tell whether it came to that."""
    child = os.fork()
    if not child:
        try:
            published(root, work, Lines(line, lambda where: os.kill(os.getpid(), signal.SIGKILL)))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is a fork")
def test_whatever_line_it_is_killed_at_nothing_half_is_visible(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "inner").mkdir(parents=True)
    (work / "a.txt").write_text("hello")
    (work / "inner" / "b.txt").write_text("more")
    whole, counted = published(tmp_path / "undisturbed", work, lines := Lines()), lines.count
    killed, seen = 0, set()
    for moment in range(MOMENTS):
        store = FolderStore(tmp_path / f"store-{moment}")
        killed += killed_at(1 + moment * counted // MOMENTS, store.root, work)
        seen.add((len(store.artifacts()), found := store.find(KEY) is not None))
        assert all(is_whole(store.object_path(digest), digest) for digest in store.artifacts())
        assert not found or store.find(KEY).sha256 == whole.sha256, "a key that is bound leads to the whole"
        assert not [store.problem(manifest) for manifest in store.manifests() if store.problem(manifest)]
        assert published(store.root, work).sha256 == whole.sha256 == store.find(KEY).sha256
    assert killed >= MOMENTS - 5 and {(0, False), (1, False)} <= seen, "before and after the artifact was committed"
