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
from tasks.ports.store.index.earlier import EarlierResults
from tests.ports.store.test_store import KEY, NAMES, explained
from tests.suites.doomed import Lines

MOMENTS = 24


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


def written(work: Path) -> Path:
    """Write the output of a stage where it is missing."""
    (work / "inner").mkdir(parents=True, exist_ok=True)
    (work / "a.txt").write_text("hello")
    (work / "inner" / "b.txt").write_text("more")
    return work


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is a fork")
@pytest.mark.parametrize("place", ["elsewhere", "temporary/work"], ids=["copied", "moved"])
def test_whatever_line_it_is_killed_at_nothing_half_is_visible(tmp_path: Path, place: str) -> None:
    def work_for(store: FolderStore) -> Path:
        return written((store.root if place.startswith("temporary") else tmp_path) / place)

    first = FolderStore(tmp_path / "undisturbed")
    whole, counted = published(first.root, work_for(first), lines := Lines()), lines.count
    killed, seen = 0, set()
    for moment in range(MOMENTS):
        store = FolderStore(tmp_path / f"store-{moment}")
        killed += killed_at(1 + moment * counted // MOMENTS, store.root, work_for(store))
        seen.add((len(store.artifacts()), found := store.find(KEY) is not None))
        assert all(is_whole(store.object_path(digest), digest) for digest in store.artifacts())
        assert not found or store.find(KEY).sha256 == whole.sha256, "a key that is bound leads to the whole"
        assert not [store.problem(manifest) for manifest in store.manifests() if store.problem(manifest)]
        assert published(store.root, work_for(store)).sha256 == whole.sha256 == store.find(KEY).sha256
        assert len(EarlierResults(store).like(explained("another"))) == 1, "a missing entry of the index is added"
    assert killed >= MOMENTS - 5 and {(0, False), (1, False)} <= seen, "before and after the artifact was committed"


def test_an_output_in_the_workspace_is_moved_and_any_other_is_copied(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    inside, outside = written(store.workspace() / "work"), written(tmp_path / "work")
    inside.chmod(0o700)
    inode = (inside / "a.txt").stat().st_ino
    made = published(store.root, inside)
    folder = store.object_path(made.sha256)
    assert not inside.exists() and (folder / "a.txt").stat().st_ino == inode
    assert folder.stat().st_mode == store.workspace().stat().st_mode, "as open to other users as the store"
    store.remove_artifact(made.sha256)
    assert published(store.root, outside).sha256 == made.sha256 and outside.is_dir()
    assert (store.object_path(made.sha256) / "a.txt").stat().st_ino != (outside / "a.txt").stat().st_ino


def test_a_file_with_a_second_name_is_copied_because_it_could_be_changed_under_that_name(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    work = written(store.workspace() / "work")
    os.link(work / "a.txt", tmp_path / "second")
    made = published(store.root, work)
    (tmp_path / "second").write_text("HELLO")
    assert is_whole(store.object_path(made.sha256), made.sha256)
