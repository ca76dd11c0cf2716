"""The S3 store: every worker finds the results of all others.

The manifest is the commit: it is written last, by one conditional PUT, so publication is atomic. A cache hit costs two
small requests and transfers no artifact. Files are fetched when a stage requests them, and checked against the digest
of the artifact.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tasks.contracts import Artifact, Used
from tasks.errors import ArtifactDamaged, LeaseLost, StoreError
from tasks.ports.files.sources import copy_source
from tasks.ports.store.artifacts import (
    IDENTITY,
    Lease,
    digest_of,
    is_whole,
    log,
    require_identity,
    take_inventory,
    untouched,
)
from tasks.ports.store.bucket import RETRY_SECONDS, Bucket
from tasks.ports.store.bucket_errors import NOT_THERE, code_of
from tasks.ports.store.cache import ArtifactCache
from tasks.ports.store.checkpoint_sync import SyncedCheckpoints
from tasks.ports.store.index.entries import entry_names
from tasks.ports.store.index.files import BucketIndex
from tasks.ports.store.leases import BucketLease, taken
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

CACHE_BYTES = 50 * 2**30
TEMPORARY = ("checkpoints/", "quarantine/", "leases/", "temporary/")
LEASE_SECONDS = 120.0  # seconds until a lease without renewal expires: longer than usual network outages


class S3Store:
    """A store in ``s3://bucket/prefix``, with a cache folder on this host."""

    def __init__(
        self,
        address: str,
        cache: Path,
        *,
        cache_bytes: int = CACHE_BYTES,
        lease_seconds: float = LEASE_SECONDS,
        patience: float = RETRY_SECONDS,
    ) -> None:
        self.bucket = Bucket(address, patience=patience)
        self.index = BucketIndex(self.bucket)
        self.local, self.lease_seconds = cache, lease_seconds
        try:
            self.cache = ArtifactCache(cache, cache_bytes)
            self.workspace().mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the cache folder {cache} cannot be written ({error.strerror}); set LIMBECK_HOME to a writable folder"
            ) from error

    def check(self) -> None:
        """Raise StoreError if the bucket cannot be read and written right now."""
        self.bucket.check()

    def identity(self) -> str:
        """Return this store's own name; if several processes create it at once, the first one's name counts."""
        found = self.bucket.read(IDENTITY)
        if found is None:
            self.bucket.create(IDENTITY, uuid.uuid4().hex.encode())
            found = self.bucket.read(IDENTITY) or b""
        return require_identity(found[:100].decode("utf-8", "replace"), self.bucket.address)

    def workspace(self) -> Path:
        """Return the folder for the working folders of stages, on the disk of the cache, so that results can be moved
        into the cache."""
        return self.local / "workspace"

    # --- results ---

    def find(self, key: str) -> Artifact | None:
        """Return the artifact of a key if its manifest exists and its files have the names and sizes in the
        manifest."""
        manifest = manifest_to_take(self.bucket.read(manifest_name(key)), key, self.set_manifest_aside)
        if manifest is None:
            return None
        if is_sound(manifest, self.problem(manifest), "set aside and computed again"):
            return self.artifact(manifest)
        self.set_manifest_aside(key)
        self.quarantine(manifest["sha256"])
        return None

    def manifest(self, key: str) -> Manifest | None:
        """Return the stored manifest, including one of another release, or None if it is missing or damaged."""
        return manifest_to_list(self.bucket.read(manifest_name(key)), key)

    def problem(self, manifest: Manifest) -> str | None:
        """Return the problem with the objects of a manifest, judged by their names and sizes, or None."""
        prefix = object_name(manifest["sha256"], "")
        there = {entry.name.removeprefix(prefix): entry.size for entry in self.bucket.entries(prefix)}
        for name, expected in manifest["inventory"].items():
            if name not in there:
                return f"{name} is missing"
            if there[name] != expected["size"]:
                return f"{name} has changed"
        surplus = sorted(there.keys() - manifest["inventory"].keys())
        return f"{surplus[0]!r} is an extra file that was not stored" if surplus else None

    def artifact(self, manifest: Manifest) -> Artifact:
        """Return the artifact of a manifest."""
        return artifact_of(manifest, f"{self.bucket.address.rstrip('/')}/{object_name(manifest['sha256'], '')}")

    def folder(self, artifact: Artifact) -> Path:
        """Return an artifact's folder in the cache; the first use on a host fetches the files and checks every byte.
        For a source that was not uploaded, return the user's own path."""
        if artifact.kind == "source" and not artifact.uri.startswith("s3://"):
            return Path(artifact.uri.removeprefix("file://"))
        return self.cache.folder(artifact.sha256, lambda folder: self.fetch(artifact.sha256, folder))

    def own_copy(self, source: Artifact) -> Path:
        """Return a source's copy in this host's cache: downloaded if it was uploaded, else copied from the user."""
        if source.uri.startswith("s3://"):
            return self.folder(source)
        return self.cache.folder(source.sha256, partial(copy_source, source))

    def fetch(self, digest: str, folder: Path, *, set_aside: bool = True) -> None:
        """Fetch an artifact; raise ArtifactDamaged if its bytes do not match its digest, and quarantine it if
        ``set_aside``."""
        prefix = object_name(digest, "")
        entries = self.bucket.entries(prefix)
        if not entries:
            raise ArtifactDamaged(
                f"the artifact {digest[:12]} is missing in {self.bucket.address}; run again to compute it again"
            )
        for entry in entries:
            path = folder / entry.name.removeprefix(prefix)
            if path.resolve() == folder.resolve() or not path.resolve().is_relative_to(folder.resolve()):
                raise ArtifactDamaged(
                    f"the artifact {digest[:12]} in {self.bucket.address} names a file outside its folder; it is not "
                    f"read"
                )
            self.bucket.download(entry.name, path, entry.size)
        if not is_whole(folder, digest):
            damage = f"the artifact {digest[:12]} in {self.bucket.address} is damaged"
            if not set_aside:
                raise ArtifactDamaged(damage)
            self.quarantine(digest)
            raise ArtifactDamaged(f"{damage}; it was set aside; run again to compute it again")

    def quarantine(self, digest: str) -> None:
        """Move a damaged artifact to quarantine, for inspection by a person; without its files no manifest is a hit.

        A worker may lack the right to remove artifacts: then they stay until maintenance (limbeck verify) moves them,
        and are not used meanwhile.
        """
        place = f"quarantine/{digest[:16]}-{uuid.uuid4().hex[:8]}/"
        try:
            for entry in self.bucket.entries(object_name(digest, "")):
                self.bucket.copy(entry.name, place + entry.name.removeprefix(object_name(digest, "")))
                self.bucket.delete(entry.name)
        except StoreError as error:
            log.warning("the damaged artifact %s could not be set aside: %s", digest[:12], error)

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
        """Upload a finished folder, then bind the key to it; the result is visible only with its manifest."""
        inventory = take_inventory(folder, kind)
        digest = digest_of(inventory)
        lease.assert_held()
        for name, entry in inventory.items():
            self.bucket.upload(folder / name, object_name(digest, name), entry["sha256"])
        manifest = new_manifest(key, kind, digest, inventory, facts, stage, explanation, seconds, used)
        self.commit(key, manifest, lease)
        self.index.add(entry_names([manifest]))
        self.cache.put(digest, folder)
        self.remove_checkpoints(key)
        return self.artifact(manifest)

    def remove_checkpoints(self, key: str) -> None:
        """Remove the checkpoints of a key, in the bucket and on this host."""
        for entry in self.bucket.entries(f"checkpoints/{key}/"):
            self.bucket.delete(entry.name)
        shutil.rmtree(self.local / "checkpoints" / key, ignore_errors=True)

    def commit(self, key: str, manifest: Manifest, lease: Lease) -> None:
        """Make a manifest visible; an existing one is replaced only by the holder of the lease, which knows that a
        replacement is necessary."""
        lease.assert_held()
        body = canonical_manifest(manifest)
        if self.bucket.create(manifest_name(key), body):
            return
        # The existing result is damaged, or the stage was forced to run again: quarantine the manifest and retry once.
        lease.assert_held()
        self.set_manifest_aside(key)
        if not self.bucket.create(manifest_name(key), body):
            raise LeaseLost(f"another worker published {key[:12]} first; the result of this one is not needed")

    def manifests(self, keys: Iterable[str] | None = None) -> Iterator[Manifest]:
        """Yield every readable manifest, or those of ``keys``, of all releases; they are fetched concurrently."""
        found = self.bucket.pool.map(self.manifest, self.keys() if keys is None else keys)
        yield from (manifest for manifest in found if manifest is not None)

    def keys(self) -> list[str]:
        """Return the keys that have a manifest, readable or not."""
        names = [entry.name for entry in self.bucket.entries("manifests/") if entry.name.endswith(".json")]
        return sorted({name.rsplit("/", 1)[-1].removesuffix(".json") for name in names} - {""})

    # --- upkeep ---

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield key and damage of every manifest that is itself damaged, and move each to quarantine."""
        for key in self.keys():
            try:
                manifest_from(self.bucket.read(manifest_name(key)) or b"", key)
            except ArtifactDamaged as error:
                self.set_manifest_aside(key)
                yield key, str(error)

    def damage(self, manifest: Manifest) -> str | None:
        """Fetch every file of a manifest without the cache, hash it, and return the problem, or None. Damaged files of
        this release are quarantined; those of other releases stay."""
        ours, problem = is_of_this_release(manifest), self.problem(manifest)
        if problem is None:
            with tempfile.TemporaryDirectory(dir=self.workspace()) as folder:
                try:
                    self.fetch(manifest["sha256"], Path(folder), set_aside=ours)
                except ArtifactDamaged as error:  # a network failure is not damage
                    problem = str(error)
        elif ours:
            self.quarantine(manifest["sha256"])
        if problem and ours:
            self.set_manifest_aside(manifest["key"])
        return problem

    def set_manifest_aside(self, key: str) -> None:
        """Move a manifest to quarantine, for inspection by a person."""
        try:
            self.bucket.copy(manifest_name(key), f"quarantine/{key[:16]}-{uuid.uuid4().hex[:8]}.json")
        except StoreError as error:
            if code_of(error.__cause__) not in NOT_THERE:  # if missing, another worker has already moved it
                raise
        self.bucket.delete(manifest_name(key))

    def running(self) -> list[LeaseNote]:
        """Return the notes of all leases that are currently held."""
        keys = sorted({entry.name.split("/")[1] for entry in self.bucket.entries("leases/")})
        return [
            note
            for key in keys
            if (note := BucketLease(self.bucket, key, self.lease_seconds).note_of_holder()) is not None
        ]

    def artifacts(self) -> dict[str, tuple[int, float]]:
        """Return size in bytes and age in seconds of every artifact by digest; the age is that of its newest file."""
        found: dict[str, tuple[int, float]] = {}
        for entry in self.bucket.entries("objects/"):
            size, age = found.get(digest := entry.name.split("/")[2], (0, entry.age))
            found[digest] = (size + entry.size, min(age, entry.age))
        return found

    def remove_result(self, key: str) -> None:
        """Remove a manifest."""
        self.bucket.delete(manifest_name(key))

    def remove_artifact(self, digest: str) -> None:
        """Remove an artifact's files."""
        for entry in self.bucket.entries(object_name(digest, "")):
            self.bucket.delete(entry.name)

    def leftovers(self, older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove temporary data older than ``older`` seconds from the bucket and from the cache folder of this host,
        unless ``dry``; return the names."""
        # an upload does not say which stage it is of; while stages run, only those of earlier days are given up
        uploads = max(older, 86400.0) if keep else older
        old = self.bucket.remove_old(TEMPORARY, older, keep, dry=dry) + self.bucket.stale_uploads(uploads, dry=dry)
        return old + untouched(self.local, ("workspace", "temporary", "checkpoints"), older, keep, dry=dry)

    # --- work under way ---

    @asynccontextmanager
    async def lease(self, key: str, note: LeaseNote | None = None, *, wait: bool = True) -> AsyncIterator[BucketLease]:
        """Hold the right to compute a key, or wait for it; a holder that dies without a release loses it after
        ``lease_seconds``."""
        held = BucketLease(self.bucket, key, self.lease_seconds)
        while not await asyncio.to_thread(held.acquire, note or {}):
            if not wait:
                raise taken(key)
            # Random waiting times, so that not all waiting workers send requests at once when the lease is free.
            await asyncio.sleep(min(5.0, self.lease_seconds / 10) * random.uniform(0.5, 1))
        try:
            yield held
        # A suspended worker uploads checkpoints again when it resumes; if a result exists they are not needed.
        except LeaseLost:
            if await asyncio.to_thread(self.manifest, key) is not None:
                await asyncio.to_thread(self.remove_checkpoints, key)
            raise
        finally:
            await asyncio.shield(asyncio.to_thread(held.release))

    @asynccontextmanager
    async def checkpoints(self, key: str, tell: Callable[[str], None]) -> AsyncIterator[Path]:
        """Yield a folder with the newest checkpoint of this key, and upload new ones from it while the stage runs."""
        folder = self.local / "checkpoints" / key
        travelling = SyncedCheckpoints(self.bucket, f"checkpoints/{key}/", folder)
        await asyncio.to_thread(travelling.download, tell)
        travelling.start()
        try:
            yield folder
        finally:
            await asyncio.shield(asyncio.to_thread(travelling.stop))


def manifest_name(key: str) -> str:
    """Return the name of a key's manifest."""
    return f"manifests/{key[:2]}/{key}.json"


def object_name(digest: str, path: str) -> str:
    """Return the name of a file of an artifact."""
    return f"objects/{digest[:2]}/{digest}/{path}"
