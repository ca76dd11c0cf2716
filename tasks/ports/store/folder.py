"""A store in one folder, for one machine or a shared disk with working locks.

An artifact is committed by one rename, and its manifest afterwards by another. A cache hit is a manifest whose
inventory matches the files: sizes are always compared, hashes once per host and file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tasks.contracts import Artifact, Used
from tasks.engine.checkpoint_files import sync
from tasks.errors import ArtifactDamaged, StoreError
from tasks.ports.files.sources import copy_source
from tasks.ports.store.artifacts import (
    IDENTITY,
    Lease,
    bytes_of,
    digest_of,
    disk_trouble,
    first_link,
    is_whole,
    log,
    problem_of_files,
    remove_tree,
    require_identity,
    take_over,
    untouched,
)
from tasks.ports.store.cache import ArtifactCache
from tasks.ports.store.index.entries import entry_names
from tasks.ports.store.index.files import FolderIndex, files_below
from tasks.ports.store.leases import POLL, KernelLease, taken
from tasks.ports.store.manifests import (
    artifact_of,
    canonical_manifest,
    is_of_this_release,
    is_sound,
    manifest_from,
    manifest_to_list,
    manifest_to_take,
    new_manifest,
)
from tasks.ports.store_documents import LeaseNote, Manifest

SOURCES_BYTES = 50 * 2**30
ROOMS = ("objects", "manifests", "locks", "checkpoints", "quarantine", "temporary")


class FolderStore:
    """Artifacts, manifests, leases and checkpoints under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        try:
            for name in ROOMS:
                (self.root / name).mkdir(parents=True, exist_ok=True)
            self.sources = ArtifactCache(self.root / "sources", SOURCES_BYTES)
            self.index = FolderIndex(self.root / "index")
        except OSError as error:
            raise StoreError(
                f"the store {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a writable folder"
            ) from error

    def check(self) -> None:
        """Raise StoreError if the store cannot be written."""
        try:
            probe = self.workspace() / f"probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"limbeck")
            probe.unlink()
        except OSError as error:
            raise StoreError(disk_trouble(error, self.root)) from error

    def identity(self) -> str:
        """Return this store's own name; if several processes create it at once, the first one's name counts."""
        place, given = self.root / IDENTITY, self.workspace() / f"identity-{uuid.uuid4().hex}"
        try:
            if place.is_symlink() or (place.exists() and not place.is_file()):
                raise StoreError(
                    f"{place} is a link or is not a file; a store's name must be a regular file: restore it, or "
                    f"delete the link"
                )
            if not place.exists():
                given.write_text(uuid.uuid4().hex)
                with contextlib.suppress(FileExistsError):
                    os.link(given, place)  # atomic, and never replaces another process's name
                given.unlink()
            return require_identity(place.read_bytes()[:100].decode("utf-8", "replace"), str(self.root))
        except OSError as error:
            raise StoreError(disk_trouble(error, self.root)) from error

    def workspace(self) -> Path:
        """Return the folder for the working folders of stages, on the disk of the store."""
        return self.root / "temporary"

    def find(self, key: str) -> Artifact | None:
        """Return the artifact of a key if its manifest exists and its files match the manifest."""
        manifest = manifest_to_take(self.manifest_body(key), key, self.set_manifest_aside)
        if manifest is None:
            return None
        problem = self.problem(manifest)
        if problem is not None and self.manifest(key) != manifest:
            return None  # another worker has set it aside meanwhile, and its new result is not the damaged one
        if is_sound(manifest, problem, "set aside and computed again"):
            return self.artifact(manifest)
        self.quarantine(key, manifest)
        return None

    def manifest(self, key: str) -> Manifest | None:
        """Return the stored manifest, including one of another release, or None if it is missing or damaged."""
        return manifest_to_list(self.manifest_body(key), key)

    def manifest_body(self, key: str) -> bytes | None:
        """Return the bytes of a manifest, or None if it is missing. For a link, a special file or a path behind a link,
        return empty bytes, which are no valid manifest."""
        path = self.manifest_path(key)
        try:
            plain = first_link(self.root, path) is None and stat.S_ISREG(path.lstat().st_mode)
            return path.read_bytes() if plain else b""
        except OSError:
            return None

    def artifact(self, manifest: Manifest) -> Artifact:
        """Return the artifact of a manifest."""
        return artifact_of(manifest, f"file://{self.object_path(manifest['sha256'])}")

    def problem(self, manifest: Manifest, *, remember: bool = True) -> str | None:
        """Return the problem with the files of a manifest, or None."""
        folder = self.object_path(manifest["sha256"])
        link = first_link(self.root, folder)
        if link is not None:
            return f"{link.relative_to(self.root)} is a link"
        return problem_of_files(folder, manifest["inventory"], remember=remember)

    def publish(
        self,
        key: str,
        *,
        kind: str,
        folder: Path,
        facts: Mapping[str, object],
        stage: str,
        explanation: Mapping[str, object],
        lease: Lease,
        seconds: float = 0.0,
        used: Used | None = None,
    ) -> Artifact:
        """Move a finished folder from the workspace into the store, or copy any other, and bind the key to it; nothing
        is visible before it is complete."""
        temporary = self.root / "temporary" / f"{key}-{uuid.uuid4().hex}"
        try:
            inventory = take_over(folder, temporary, kind, self.workspace())
            digest = digest_of(inventory)
            lease.assert_held()
            self.commit_object(temporary, digest)
            manifest = new_manifest(key, kind, digest, inventory, facts, stage, explanation, seconds, used)
            self.commit_manifest(key, manifest)
            self.index.add(entry_names([manifest]))
        except OSError as error:
            raise StoreError(disk_trouble(error, self.root)) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(self.root / "checkpoints" / key, ignore_errors=True)
        return self.artifact(manifest)

    def commit_object(self, temporary: Path, digest: str) -> None:
        """Sync a copy and rename it to its final path. An intact artifact that already exists stays, because others may
        be reading it."""
        final = self.object_path(digest)
        if self.holds(digest):
            return
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        self.set_aside(final, self.root / "quarantine" / f"{digest[:16]}-{uuid.uuid4().hex[:8]}")
        final.parent.mkdir(parents=True, exist_ok=True)
        if self.holds(digest):
            return  # a stage with another key has published the same artifact meanwhile
        try:
            temporary.rename(final)
        except OSError:
            if not self.holds(digest):  # another process's copy, committed at the same moment, is as good
                raise
        sync(final.parent)

    def holds(self, digest: str) -> bool:
        """Return whether an artifact is present and intact, and no part of its path is a link."""
        final = self.object_path(digest)
        return first_link(self.root, final) is None and is_whole(final, digest, remember=True)

    def commit_manifest(self, key: str, manifest: Manifest) -> None:
        """Write the complete manifest to a temporary file, then make it visible by one rename."""
        final = self.manifest_path(key)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.root / "temporary" / f"{key}-{uuid.uuid4().hex}.json"
        temporary.write_bytes(canonical_manifest(manifest))
        sync(temporary)
        temporary.rename(final)
        sync(final.parent)

    def quarantine(self, key: str, manifest: Manifest) -> None:
        """Move a damaged artifact and its manifest to quarantine, for inspection by a person."""
        place = self.root / "quarantine" / f"{key[:16]}-{uuid.uuid4().hex[:8]}"
        place.mkdir(parents=True)
        self.set_aside(self.manifest_path(key), place / "manifest.json")
        self.set_aside(self.object_path(str(manifest["sha256"])), place / "files")

    def set_manifest_aside(self, key: str) -> None:
        """Move a damaged manifest to quarantine. Its artifact stays, because it may belong to another result."""
        self.set_aside(self.manifest_path(key), self.root / "quarantine" / f"{key[:16]}-{uuid.uuid4().hex[:8]}.json")

    def set_aside(self, path: Path, place: Path) -> None:
        """Move a path to ``place``; if the path contains a link, move the link, never its target."""
        with contextlib.suppress(FileNotFoundError):  # another worker may be moving the same path
            (first_link(self.root, path) or path).rename(place)
        for room in ("objects", "manifests"):
            (self.root / room).mkdir(exist_ok=True)

    def folder(self, artifact: Artifact) -> Path:
        """Return the folder of an artifact's files, checked as a cache hit is; for a source, the user's own path."""
        if artifact.kind == "source":
            return Path(artifact.uri.removeprefix("file://"))
        folder = self.object_path(artifact.sha256)
        if self.holds(artifact.sha256):
            return folder
        if folder.exists() or folder.is_symlink():
            self.set_aside(folder, self.root / "quarantine" / f"{artifact.sha256[:16]}-{uuid.uuid4().hex[:8]}")
            log.warning("artifact %s is damaged; it is set aside", artifact.sha256[:12])
            raise ArtifactDamaged(
                f"the artifact {artifact.sha256[:12]} in {self.root} is damaged; it was set aside; run again to "
                f"compute it again"
            )
        raise ArtifactDamaged(
            f"the artifact {artifact.sha256[:12]} is missing in {self.root}; run again to compute it again"
        )

    def own_copy(self, source: Artifact) -> Path:
        """Return this store's copy of a source: the uploaded one if there is one, else a copy that is created once."""
        if self.holds(source.sha256):
            return self.object_path(source.sha256)
        return self.sources.folder(source.sha256, partial(copy_source, source))

    @asynccontextmanager
    async def lease(self, key: str, note: LeaseNote | None = None, *, wait: bool = True) -> AsyncIterator[KernelLease]:
        """Hold the right to compute a key, or wait for it. The kernel releases it when the holder dies for any
        reason."""
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
        """Yield the checkpoint folder of a running stage; in this store it is a fixed path and needs no transfer."""
        yield self.root / "checkpoints" / key

    def manifests(self, keys: Iterable[str] | None = None) -> Iterator[Manifest]:
        """Yield every readable manifest, or those of ``keys``, including those of other releases."""
        for key in self.keys() if keys is None else keys:
            manifest = self.manifest(key)
            if manifest is not None:
                yield manifest

    def keys(self) -> list[str]:
        """Return the keys that have a manifest, readable or not."""
        names = [
            (folder.name, entry.name.removesuffix(".json"))
            for folder in files_below(self.root / "manifests")
            for entry in files_below(folder.path)
            if entry.name.endswith(".json")
        ]
        return sorted(key for folder, key in names if key[:2] == folder)

    # --- upkeep ---

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield key and damage of every manifest that is itself damaged, and move each to quarantine."""
        for key in self.keys():
            try:
                manifest_from(self.manifest_body(key) or b"", key)
            except ArtifactDamaged as error:
                self.set_manifest_aside(key)
                yield key, str(error)

    def damage(self, manifest: Manifest) -> str | None:
        """Hash every file of a manifest again and return the problem, or None. Damaged files of this release are moved
        to quarantine; those of other releases stay."""
        problem = self.problem(manifest, remember=False)
        if problem and is_of_this_release(manifest):
            self.quarantine(manifest["key"], manifest)
        return problem

    def running(self) -> list[LeaseNote]:
        """Return the notes of all leases that are currently held."""
        return [
            note
            for path in sorted((self.root / "locks").iterdir())
            if (note := KernelLease(path).note_of_holder()) is not None
        ]

    def artifacts(self) -> dict[str, tuple[int, float]]:
        """Return size in bytes and age in seconds of every artifact by digest."""
        return {
            folder.name: (bytes_of(folder), time.time() - folder.lstat().st_ctime)
            for folder in sorted((self.root / "objects").glob("*/*"))
        }

    def remove_result(self, key: str) -> None:
        """Remove a manifest."""
        self.manifest_path(key).unlink(missing_ok=True)

    def remove_artifact(self, digest: str) -> None:
        """Remove an artifact: hide it by one rename, then delete it."""
        doomed = self.root / "temporary" / f"doomed-{uuid.uuid4().hex}"
        with contextlib.suppress(FileNotFoundError):
            self.object_path(digest).rename(doomed)
            remove_tree(doomed)

    def leftovers(self, older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove workspaces, checkpoints, quarantined files and copies of sources that were unused for ``older``
        seconds, unless ``dry``; return their relative paths."""
        unused = [f"sources/{digest}" for digest in self.sources.unused(older, dry=dry)]
        half_copied = [f"sources/{name}" for name in untouched(self.sources.root, ("temporary",), older, keep, dry=dry)]
        return (
            unused
            + half_copied
            + untouched(self.root, ("temporary", "checkpoints", "quarantine"), older, keep, dry=dry)
        )

    def manifest_path(self, key: str) -> Path:
        """Return the path of a key's manifest."""
        return self.root / "manifests" / key[:2] / f"{key}.json"

    def object_path(self, digest: str) -> Path:
        """Return the path of an artifact."""
        return self.root / "objects" / digest[:2] / digest
