"""Checkpoint transfer: checkpoints are uploaded during training and fetched by a worker that takes over elsewhere.

A checkpoint is one folder, ``step-N``. Its files are uploaded first and a marker with their hashes last, so an upload
is atomic. The last two checkpoints are kept.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from tasks.engine.checkpoint_files import KEPT_CHECKPOINTS, MARKER, Marker, read_marker
from tasks.errors import ArtifactDamaged, StoreError
from tasks.ports.store.artifacts import is_safe
from tasks.ports.store.bucket import Bucket

CHECKPOINT_POLL_SECONDS = 2.0  # seconds between two checks for a new checkpoint
STEP = re.compile(r"step-\d{9}")

log = logging.getLogger("limbeck.store")


class SyncedCheckpoints:
    """Synchronises a local folder of checkpoints with its copy in a bucket, in a separate thread."""

    def __init__(self, bucket: Bucket, prefix: str, folder: Path) -> None:
        self.bucket, self.prefix, self.folder = bucket, prefix, folder
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="checkpoints", daemon=True)

    def download(self, tell: Callable[[str], None]) -> None:
        """Fetch the newest complete checkpoint, unless this host has the same or a newer one. A damaged one is removed
        from the bucket, and the one before it is tried."""
        mine = max(
            (path.name for path in self.folder.glob("step-*") if read_marker(path, of=self.folder.name)), default=""
        )
        for step in sorted(self.remote(), reverse=True):
            if step <= mine:
                return
            try:
                self.fetch(step)
            except (ArtifactDamaged, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                log.warning("removed checkpoint %s of %s: %s", step, self.prefix, error)
                self.remove(step)  # else it would count as newer than the checkpoints of the repeated steps
                continue
            except StoreError as error:
                log.warning("checkpoint %s of %s could not be fetched: %s", step, self.prefix, error)
                continue
            tell(f"took over checkpoint {step} from {self.bucket.address}")
            return

    def remote(self) -> list[str]:
        """Return the names of the complete checkpoints in the bucket."""
        names = [entry.name.removeprefix(self.prefix) for entry in self.bucket.entries(self.prefix)]
        return [
            step
            for name in names
            if name.endswith(f"/{MARKER}") and STEP.fullmatch(step := name.removesuffix(f"/{MARKER}"))
        ]

    def fetch(self, step: str) -> None:
        """Fetch one checkpoint to a temporary folder, check it, and rename it to its final path."""
        marker: Marker = json.loads(self.bucket.read(f"{self.prefix}{step}/{MARKER}") or b"{}")
        temporary = self.folder / f".fetching-{uuid.uuid4().hex}"
        there = {
            entry.name.removeprefix(f"{self.prefix}{step}/") for entry in self.bucket.entries(f"{self.prefix}{step}/")
        }
        if not set(marker["inventory"]) <= there:
            raise ArtifactDamaged("some of its files are missing")
        try:
            temporary.mkdir(parents=True)
            for name, entry in marker["inventory"].items():
                if not is_safe(name):
                    raise ArtifactDamaged(f"it names a file outside its folder: {name!r}")
                self.bucket.download(f"{self.prefix}{step}/{name}", temporary / name, int(entry["size"]))
            (temporary / MARKER).write_text(json.dumps(marker))
            if read_marker(temporary, of=self.folder.name) is None:
                raise ArtifactDamaged("its content differs from the written one")
            shutil.rmtree(self.folder / step, ignore_errors=True)
            temporary.rename(self.folder / step)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def start(self) -> None:
        """Start the thread that uploads new checkpoints."""
        self.thread.start()

    def watch(self) -> None:
        """Upload new checkpoints until the stage ends; retry after errors of the bucket, because training must not stop
        for them."""
        sent: set[str] = set()
        while True:
            last = self.done.wait(CHECKPOINT_POLL_SECONDS)
            try:
                self.send_new(sent)
            except (StoreError, OSError) as error:
                log.warning("a checkpoint could not be uploaded (%s); trying again", error)
            if last:
                return

    def send_new(self, sent: set[str]) -> None:
        """Upload the newest complete local checkpoint, unless the bucket has it, then remove all but the last two from
        the bucket."""
        for step in sorted((path.name for path in self.folder.glob("step-*")), reverse=True):
            if step in sent:
                return
            if step in self.remote():
                sent.add(step)  # downloaded from the bucket: saves further requests for it
                return
            marker = read_marker(self.folder / step, of=self.folder.name)
            if marker is not None:
                self.send(step, marker)
                sent.add(step)
                return

    def send(self, step: str, marker: Marker) -> None:
        """Upload one checkpoint with its marker last, then remove old ones."""
        for name, entry in marker["inventory"].items():
            self.bucket.upload(self.folder / step / name, f"{self.prefix}{step}/{name}", entry["sha256"])
        self.bucket.write(f"{self.prefix}{step}/{MARKER}", json.dumps(marker).encode())
        for old in sorted(set(self.remote()))[:-KEPT_CHECKPOINTS]:
            self.remove(old)

    def remove(self, step: str) -> None:
        """Remove a checkpoint with its marker first, so that a partly removed one does not count."""
        self.bucket.delete(f"{self.prefix}{step}/{MARKER}")
        for entry in self.bucket.entries(f"{self.prefix}{step}/"):
            self.bucket.delete(entry.name)

    def stop(self) -> None:
        """Upload any remaining new checkpoint, such as the last one of a stopped stage, then end the thread."""
        self.done.set()
        self.thread.join()
