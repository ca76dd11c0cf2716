"""A store in one folder, for one machine or a shared disk with working locks.

An artifact is committed by one rename; its manifest is committed after it, by another. What decides a hit is a manifest whose inventory
matches the files: sizes always, hashes once per host and file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import rfc8785

from tasks.contracts import Parcel
from tasks.errors import StoreError
from tasks.ports.fingerprint import hash_file
from tasks.ports.store.artifacts import (
    IDENTITY,
    Lease,
    bytes_of,
    digest_of,
    disk_trouble,
    is_sound,
    is_whole,
    manifest_from,
    new_manifest,
    parcel_of,
    take_inventory,
    untouched,
)
from tasks.ports.store.leases import POLL, KernelLease, taken

ROOMS = ("objects", "manifests", "locks", "checkpoints", "quarantine", "temporary")


class FolderStore:
    """Artifacts, manifests, leases and checkpoints under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        try:
            for name in ROOMS:
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a folder that can") from error

    def check(self) -> None:
        """Raise StoreError if nothing can be written."""
        try:
            probe = self.workspace() / f"probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"limbeck")
            probe.unlink()
        except OSError as error:
            raise StoreError(disk_trouble(error, self.root)) from error

    def identity(self) -> str:
        """Return this store's own name; of many who give it one, the first does."""
        place, given = self.root / IDENTITY, self.workspace() / f"identity-{uuid.uuid4().hex}"
        try:
            if not place.exists():
                given.write_text(uuid.uuid4().hex)
                with contextlib.suppress(FileExistsError):
                    os.link(given, place)  # whole or not at all, and never over another's
                given.unlink()
            return place.read_text().strip()
        except OSError as error:
            raise StoreError(disk_trouble(error, self.root)) from error

    def workspace(self) -> Path:
        """Return the folder under which stages work, on the disk of the store."""
        return self.root / "temporary"

    def find(self, key: str) -> Parcel | None:
        """Return the parcel of a key if its manifest is there and its files are what the manifest says."""
        manifest = self.manifest(key)
        if manifest is None:
            return None
        if is_sound(manifest, self.problem(manifest), "set aside and made again"):
            return self.parcel(manifest)
        self.quarantine(key, manifest)
        return None

    def manifest(self, key: str) -> dict[str, Any] | None:
        """Read a manifest; one that is not whole, or of another schema, is none."""
        try:
            return manifest_from(self.manifest_path(key).read_bytes(), key)
        except OSError:
            return None

    def parcel(self, manifest: Mapping[str, Any]) -> Parcel:
        """Return the parcel behind a manifest."""
        return parcel_of(manifest, self.object_path(manifest["sha256"]).as_uri())

    def problem(self, manifest: Mapping[str, Any], *, remember: bool = True) -> str | None:
        """Say what is wrong with the files behind a manifest, or None."""
        folder = self.object_path(manifest["sha256"])
        for name, expected in manifest["inventory"].items():
            path = folder / name
            if path.is_symlink() or not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["size"] or hash_file(path, remember=remember) != expected["sha256"]:
                return f"{name} has changed"
        return None

    def publish(
        self, key: str, *, kind: str, folder: Path, facts: Mapping[str, Any], stage: str, explanation: Mapping[str, Any], lease: Lease, seconds: float = 0.0,
        used: Mapping[str, Any] | None = None,
    ) -> Parcel:
        """Copy a finished folder into the store and bind the key to it; nothing is visible before it is whole."""
        try:
            inventory = take_inventory(folder, kind)
            digest = digest_of(inventory)
            lease.assert_held()
            self.commit_object(folder, digest)
            manifest = new_manifest(key, kind, digest, inventory, facts, stage, explanation, seconds, used)
            self.commit_manifest(key, manifest)
        except OSError as error:
            raise StoreError(disk_trouble(error, self.root)) from error
        shutil.rmtree(self.root / "checkpoints" / key, ignore_errors=True)
        return self.parcel(manifest)

    def commit_object(self, folder: Path, digest: str) -> None:
        """Copy a folder beside its place, sync it, and rename it there; a whole artifact that is there already stays, for others may read it."""
        final, temporary = self.object_path(digest), self.root / "temporary" / f"{os.getpid()}-{uuid.uuid4().hex}"
        if final.is_dir() and is_whole(final, digest):
            return
        try:
            shutil.copytree(folder, temporary)
            for path in temporary.rglob("*"):
                if path.is_file():
                    sync(path)
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.is_dir() and is_whole(final, digest):
                return  # a stage with another key made the same meanwhile
            if final.is_dir():
                final.rename(self.root / "quarantine" / f"{digest[:16]}-{uuid.uuid4().hex[:8]}")
            temporary.rename(final)
            sync(final.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def commit_manifest(self, key: str, manifest: Mapping[str, Any]) -> None:
        """Write a manifest whole, then make it visible by one rename."""
        final = self.manifest_path(key)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.root / "temporary" / f"{os.getpid()}-{uuid.uuid4().hex}.json"
        temporary.write_bytes(rfc8785.dumps(dict(manifest)))
        sync(temporary)
        temporary.rename(final)
        sync(final.parent)

    def quarantine(self, key: str, manifest: Mapping[str, Any]) -> None:
        """Set a damaged artifact and its manifest aside, for a person to look at."""
        place = self.root / "quarantine" / f"{key[:16]}-{uuid.uuid4().hex[:8]}"
        place.mkdir(parents=True)
        with contextlib.suppress(FileNotFoundError):  # another worker that needs the same may be doing the same
            self.manifest_path(key).rename(place / "manifest.json")
            self.object_path(str(manifest["sha256"])).rename(place / "files")

    def folder(self, parcel: Parcel) -> Path:
        """Return where a parcel's files lie; a source lies where the user keeps it."""
        if parcel.kind == "source":
            return Path(parcel.uri.removeprefix("file://"))
        folder = self.object_path(parcel.sha256)
        if not folder.is_dir():
            raise StoreError(f"the artifact {parcel.sha256[:12]} is gone from {self.root}; run again to make it anew")
        return folder

    @asynccontextmanager
    async def lease(self, key: str, note: Mapping[str, Any] | None = None, *, wait: bool = True) -> AsyncIterator[KernelLease]:
        """Hold the right to compute a key, or wait for it. The kernel frees it when the holder dies, however it dies."""
        held = KernelLease(self.root / "locks" / key)
        while not held.acquire(note or {}):
            if not wait:
                raise taken(key)
            await asyncio.sleep(POLL)
        try:
            yield held
        finally:
            held.release()

    @asynccontextmanager
    async def checkpoints(self, key: str, tell: Callable[[str], None]) -> AsyncIterator[Path]:
        """Give the folder in which a stage under way keeps its checkpoints; here it simply stays where it is."""
        yield self.root / "checkpoints" / key

    def manifests(self) -> Iterator[dict[str, Any]]:
        """Yield every readable manifest."""
        for path in sorted((self.root / "manifests").glob("*/*.json")):
            manifest = self.manifest(path.stem)
            if manifest is not None:
                yield manifest

    # --- upkeep ---

    def damage(self, manifest: Mapping[str, Any]) -> str | None:
        """Hash every file behind a manifest anew; what is wrong is set aside."""
        problem = self.problem(manifest, remember=False)
        if problem:
            self.quarantine(manifest["key"], manifest)
        return problem

    def running(self) -> list[dict[str, Any]]:
        """Return the notes of the leases that are held right now."""
        return [note for path in sorted((self.root / "locks").iterdir()) if (note := KernelLease(path).note_of_holder()) is not None]

    def artifacts(self) -> dict[str, tuple[int, float]]:
        """Return bytes and age of every artifact by its digest."""
        return {folder.name: (bytes_of(folder), time.time() - folder.stat().st_ctime) for folder in sorted((self.root / "objects").glob("*/*"))}

    def remove_result(self, key: str) -> None:
        """Remove a manifest."""
        self.manifest_path(key).unlink(missing_ok=True)

    def remove_artifact(self, digest: str) -> None:
        """Remove an artifact: out of sight by one rename, then for good."""
        doomed = self.root / "temporary" / f"doomed-{uuid.uuid4().hex}"
        if self.object_path(digest).is_dir():
            self.object_path(digest).rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def leftovers(self, older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove workspaces, checkpoints and quarantined files that nobody has touched for ``older`` seconds."""
        return untouched(self.root, ("temporary", "checkpoints", "quarantine"), older, keep, dry=dry)

    def manifest_path(self, key: str) -> Path:
        """Return where a key's manifest lies."""
        return self.root / "manifests" / key[:2] / f"{key}.json"

    def object_path(self, digest: str) -> Path:
        """Return where an artifact lies."""
        return self.root / "objects" / digest[:2] / digest


def sync(path: Path) -> None:
    """Push a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
