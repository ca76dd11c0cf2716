"""The store: artifacts by what their bytes hash to, manifests by key, a lease per key, checkpoints per key.

An artifact is a folder of plain files, committed by one rename; a manifest says which artifact a key led to, and is committed after it. What
decides a hit is a manifest whose inventory matches the files: sizes always, hashes once per host and file.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import rfc8785

from tasks.contracts import Parcel, parcel_from_json
from tasks.errors import LeaseLost, StoreError
from tasks.ports.fingerprint import hash_file

SCHEMA = 1
PICKLED = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
POLL = 0.2  # seconds between two tries for a lease that another worker holds

log = logging.getLogger("limbeck.store")


class Lease(Protocol):
    """The right to compute one key."""

    def assert_held(self) -> None:
        """Raise LeaseLost if another worker took over."""


class Store(Protocol):
    """What the door frame needs of a store; ``tests/ports/test_store.py`` says what each part promises."""

    def find(self, key: str) -> Parcel | None: ...
    def publish(self, key: str, *, kind: str, folder: Path, facts: Mapping[str, Any], stage: str, explanation: Mapping[str, Any], lease: Lease) -> Parcel: ...
    def folder(self, parcel: Parcel) -> Path: ...
    def lease(self, key: str) -> Any: ...
    def checkpoints(self, key: str) -> Path: ...
    def manifests(self) -> Iterator[dict[str, Any]]: ...


class FolderStore:
    """A store in one folder, for one machine or a shared disk with working locks."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        try:
            for name in ("objects", "manifests", "locks", "checkpoints", "quarantine", "temporary"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a folder that can") from error

    def find(self, key: str) -> Parcel | None:
        """Return the parcel of a key if its manifest is there and its files are what the manifest says."""
        manifest = self.manifest(key)
        if manifest is None:
            return None
        problem = self.problem(manifest)
        if problem is None:
            return parcel_from_json(manifest)
        log.warning("stage %s: stored result %s is damaged (%s); it is set aside and made again", manifest["stage"], key[:12], problem)
        self.quarantine(key, manifest)
        return None

    def manifest(self, key: str) -> dict[str, Any] | None:
        """Read a manifest; one that is not whole, or of another schema, is none."""
        try:
            values = json.loads(self.manifest_path(key).read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return None
        return values if isinstance(values, dict) and values.get("schema") == SCHEMA and values.get("key") == key else None

    def problem(self, manifest: Mapping[str, Any]) -> str | None:
        """Say what is wrong with the files behind a manifest, or None."""
        inventory = manifest.get("inventory", {})
        if not all(is_safe(name) for name in inventory):
            return "a path leads out of the artifact"
        if digest_of(inventory) != manifest["sha256"]:
            return "its inventory does not match its digest"
        folder = self.object_path(manifest["sha256"])
        for name, expected in inventory.items():
            path = folder / name
            if path.is_symlink() or not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != expected["size"] or hash_file(path) != expected["sha256"]:
                return f"{name} has changed"
        return None

    def publish(self, key: str, *, kind: str, folder: Path, facts: Mapping[str, Any], stage: str, explanation: Mapping[str, Any], lease: Lease) -> Parcel:
        """Move a finished folder into the store and bind the key to it; nothing is visible before it is whole."""
        try:
            inventory = take_inventory(folder, kind)
            digest = digest_of(inventory)
            lease.assert_held()
            self.commit_object(folder, digest)
            parcel = Parcel(kind, digest, self.object_path(digest).as_uri(), sum(entry["size"] for entry in inventory.values()), dict(facts))
            manifest = {**parcel.as_json(), "schema": SCHEMA, "key": key, "stage": stage, "inventory": inventory,
                        "explanation": explanation, "made_at": time.time()}  # fmt: skip
            self.commit_manifest(key, manifest)
        except OSError as error:
            raise StoreError(said(error, self.root)) from error
        shutil.rmtree(self.root / "checkpoints" / key, ignore_errors=True)
        return parcel

    def commit_object(self, folder: Path, digest: str) -> None:
        """Copy a folder beside its place, sync it, and rename it there; a whole object that is there already stays."""
        final, temporary = self.object_path(digest), self.root / "temporary" / f"{os.getpid()}-{uuid.uuid4().hex}"
        try:
            shutil.copytree(folder, temporary)
            for path in temporary.rglob("*"):
                if path.is_file():
                    sync(path)
            final.parent.mkdir(parents=True, exist_ok=True)
            if final.is_dir():
                # Only reached when its manifest was gone or damaged: the new bytes are known to be right, the old ones are not.
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
        temporary.write_bytes(rfc8785.dumps(json.loads(json.dumps(manifest, allow_nan=False))))
        sync(temporary)
        temporary.rename(final)
        sync(final.parent)

    def quarantine(self, key: str, manifest: Mapping[str, Any]) -> None:
        """Set a damaged artifact and its manifest aside, for a person to look at."""
        place = self.root / "quarantine" / f"{key[:16]}-{uuid.uuid4().hex[:8]}"
        place.mkdir(parents=True)
        self.manifest_path(key).rename(place / "manifest.json")
        folder = self.object_path(str(manifest.get("sha256", "")))
        if folder.is_dir() and folder.parent.parent == self.root / "objects":
            folder.rename(place / "files")

    def folder(self, parcel: Parcel) -> Path:
        """Return where a parcel's files lie; a source lies where the user keeps it."""
        if parcel.kind == "source":
            return Path(parcel.uri.removeprefix("file://"))
        folder = self.object_path(parcel.sha256)
        if not folder.is_dir():
            raise StoreError(f"the artifact {parcel.sha256[:12]} is gone from {self.root}; run again to make it anew")
        return folder

    @asynccontextmanager
    async def lease(self, key: str) -> AsyncIterator[KernelLease]:
        """Wait for and hold the right to compute a key. The kernel frees it when the holder dies, however it dies."""
        path = self.root / "locks" / key
        held = KernelLease(path)
        while not held.acquire():
            await asyncio.sleep(POLL)
        try:
            yield held
        finally:
            held.release()

    def checkpoints(self, key: str) -> Path:
        """Return the folder in which a stage under way keeps its checkpoints."""
        return self.root / "checkpoints" / key

    def manifests(self) -> Iterator[dict[str, Any]]:
        """Yield every readable manifest."""
        for path in sorted((self.root / "manifests").glob("*/*.json")):
            manifest = self.manifest(path.stem)
            if manifest is not None:
                yield manifest

    def manifest_path(self, key: str) -> Path:
        """Return where a key's manifest lies."""
        return self.root / "manifests" / key[:2] / f"{key}.json"

    def object_path(self, digest: str) -> Path:
        """Return where an artifact lies."""
        return self.root / "objects" / digest[:2] / digest


class KernelLease:
    """A lease by the kernel's file lock: free at once when its holder dies, and never held by two."""

    def __init__(self, path: Path) -> None:
        self.path, self.handle = path, -1

    def acquire(self) -> bool:
        """Try once."""
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self.handle = handle
        return True

    def assert_held(self) -> None:
        """Raise LeaseLost if the lock file was replaced behind our back."""
        try:
            same = os.fstat(self.handle).st_ino == self.path.stat().st_ino
        except OSError:
            same = False
        if not same:
            raise LeaseLost(f"the lease {self.path.name[:12]} was taken over; what this worker made is not published")

    def release(self) -> None:
        """Give the lease back; the file stays, so that two waiters never lock two different files of one name."""
        os.close(self.handle)
        self.handle = -1


def take_inventory(folder: Path, kind: str) -> dict[str, dict[str, Any]]:
    """List a folder's files with size and sha256; refuse links, and anything pickled in a checkpoint."""
    inventory = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path.name} is a link; an artifact holds plain files only")
        if path.is_file():
            if kind == "checkpoint" and path.suffix in PICKLED:
                raise StoreError(f"{path.name} may hold pickled code; models are stored as safetensors only")
            inventory[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": hash_file(path, remember=False)}
    if not inventory:
        raise StoreError("the stage wrote no file; nothing was published")
    return inventory


def digest_of(inventory: Mapping[str, Any]) -> str:
    """Return the output digest of an inventory."""
    return sha256(rfc8785.dumps(dict(inventory))).hexdigest()


def is_safe(name: str) -> bool:
    """Tell whether a path stays inside its artifact."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name


def sync(path: Path) -> None:
    """Push a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def said(error: OSError, root: Path) -> str:
    """Say an operating system's error in one sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk of the store {root} is full; nothing was published; make room and run again"
    return f"the store {root} cannot be written ({error.strerror}); nothing was published"
