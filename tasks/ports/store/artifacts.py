"""What every store agrees on: what an artifact is, what a manifest says of it, and what a store must be able to do.

An artifact is a folder of plain files. Its inventory lists path, size and sha256 of each; the digest of the inventory names the artifact, so
whoever holds the files can check all of them against the name alone.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from tasks.contracts import KINDS, Parcel
from tasks.errors import StoreError
from tasks.ports.fingerprint import hash_file

SCHEMA = 1
HEX = r"^[0-9a-f]{64}$"
IDENTITY = "id"
"""The file of a store that holds its own name."""
CODE = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".py"}
"""Suffixes of files that are code, or whose loading may run some."""

log = logging.getLogger("limbeck.store")

Inventory = Mapping[str, Mapping[str, Any]]
"""Path in the artifact, with ``/``, to ``{"size": bytes, "sha256": hex}``."""


class Lease(Protocol):
    """The right to compute one key."""

    def assert_held(self) -> None:
        """Raise LeaseLost if another worker took over."""


class Store(Protocol):
    """What the door frame needs of a store; ``tests/ports/test_store.py`` says what each part promises."""

    def check(self) -> None:
        """Raise StoreError if the store cannot be read and written right now."""

    def identity(self) -> str:
        """Return the random name that this store was given when it was first asked; it lies among the store's files, and moves with them."""

    def find(self, key: str) -> Parcel | None:
        """Return the verified result of a key, or None."""

    def publish(
        self, key: str, *, kind: str, folder: Path, facts: Mapping[str, Any], stage: str, explanation: Mapping[str, Any], lease: Lease, seconds: float = 0.0,
        used: Mapping[str, Any] | None = None,
    ) -> Parcel:
        """Make a finished folder the result of a key, whole or not at all."""

    def folder(self, parcel: Parcel) -> Path:
        """Return a local folder with a parcel's files, fetched and checked if need be."""

    def lease(self, key: str, note: Mapping[str, Any] | None = None, *, wait: bool = True) -> AbstractAsyncContextManager[Lease]:
        """Hold the right to compute a key; where another holds it, wait, or raise LeaseTaken. The note says to others what is being computed."""

    def checkpoints(self, key: str, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Path]:
        """Give the folder in which a stage under way keeps its checkpoints, filled with those of whoever was interrupted before."""

    def workspace(self) -> Path:
        """Return the folder under which stages work."""

    def manifest(self, key: str) -> dict[str, Any] | None:
        """Return the manifest of a key as it stands, its files unchecked."""

    def manifests(self) -> Iterator[dict[str, Any]]:
        """Yield every readable manifest."""

    def damage(self, manifest: Mapping[str, Any]) -> str | None:
        """Hash every file behind a manifest anew; say what is wrong, or None. What is wrong is set aside, so that it is made again."""

    def running(self) -> list[dict[str, Any]]:
        """Return the notes of the leases that are held right now."""

    def artifacts(self) -> dict[str, tuple[int, float]]:
        """Return bytes and age in seconds of every artifact by its digest, whether or not a manifest names it."""

    def remove_result(self, key: str) -> None:
        """Remove a manifest."""

    def remove_artifact(self, digest: str) -> None:
        """Remove an artifact that no manifest names."""

    def leftovers(self, older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove what crashed workers left more than ``older`` seconds ago, checkpoints of the keys in ``keep`` excepted; return what it is."""


def parcel_of(manifest: Mapping[str, Any], uri: str) -> Parcel:
    """Return the parcel that a manifest describes; where it lies is the store's word, never the manifest's."""
    used = manifest.get("used")
    known = {"seconds": manifest.get("seconds"), **(used if isinstance(used, Mapping) else {})}  # an older manifest has the seconds alone
    return Parcel(str(manifest["kind"]), str(manifest["sha256"]), uri, int(manifest["bytes"]), dict(manifest["facts"]), known)


class Entry(BaseModel):
    """One file of an artifact."""

    model_config = ConfigDict(strict=True, extra="forbid")
    size: int = Field(ge=0, lt=2**53)
    sha256: str = Field(pattern=HEX)


class Manifest(BaseModel):
    """What a manifest must hold to be read at all; someone else may have written it."""

    model_config = ConfigDict(strict=True)
    schema_: Literal[1] = Field(alias="schema")
    key: str = Field(pattern=HEX)
    stage: str
    kind: str
    sha256: str = Field(pattern=HEX)
    bytes: int = Field(ge=0)
    facts: dict[str, Any]
    inventory: dict[str, Entry] = Field(min_length=1)
    explanation: dict[str, Any]
    made_at: float


def manifest_from(body: bytes, key: str) -> dict[str, Any] | None:
    """Read a manifest; one that is not whole, of another schema or key, or that names what no store writes, is none."""
    try:
        values = json.loads(body)
        Manifest.model_validate(values)
        whole = values["key"] == key and values["kind"] in KINDS and digest_of(values["inventory"]) == values["sha256"]
    except (ValueError, RecursionError):
        return None
    planted = [name for name in values["inventory"] if not is_safe(name) or may_carry_code(name)]
    if planted:
        log.warning("the stored result %s names %r, which may carry code or lies outside of it; it is not read", key[:12], planted[0])
    return dict(values) if whole and not planted else None


def is_sound(manifest: Mapping[str, Any], problem: str | None, fate: str) -> bool:
    """Tell whether a result can be used; for one that cannot, the log says what is wrong and what becomes of it."""
    if problem is not None:
        log.warning("stage %s: stored result %s is damaged (%s); it is %s", manifest["stage"], manifest["key"][:12], problem, fate)
    return problem is None


def take_inventory(folder: Path, kind: str, *, remember: bool = False) -> dict[str, dict[str, Any]]:
    """List a folder's files with size and sha256; refuse links, and what may carry code."""
    inventory = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path.name} is a link; an artifact holds plain files only")
        if path.is_file():
            if kind != "any" and may_carry_code(path.name):
                raise StoreError(f"{path.name} may carry code, pickled or plain; models are stored as safetensors only")
            inventory[path.relative_to(folder).as_posix()] = {"size": path.stat().st_size, "sha256": hash_file(path, remember=remember)}
    if not inventory:
        raise StoreError("the stage wrote no file; nothing was published")
    return inventory


def digest_of(inventory: Inventory) -> str:
    """Return the output digest of an inventory."""
    return sha256(rfc8785.dumps({name: dict(entry) for name, entry in inventory.items()})).hexdigest()


def is_whole(folder: Path, digest: str, *, remember: bool = False) -> bool:
    """Tell whether a folder holds exactly the files that a digest names."""
    try:
        return digest_of(take_inventory(folder, "any", remember=remember)) == digest
    except (StoreError, OSError):
        return False


def new_manifest(
    key: str, kind: str, digest: str, inventory: Inventory, facts: Mapping[str, Any], stage: str, explanation: Mapping[str, Any], seconds: float,
    used: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a manifest as plain JSON values; a figure that is not a number is an error here, not later."""
    size = sum(entry["size"] for entry in inventory.values())
    values = {
        "schema": SCHEMA, "key": key, "stage": stage, "kind": kind, "sha256": digest, "bytes": size, "facts": dict(facts),
        "inventory": inventory, "explanation": explanation, "made_at": time.time(), "seconds": round(seconds, 3),
        "used": dict(used or {}),
    }  # fmt: skip
    plain: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    return plain


def is_safe(name: str) -> bool:
    """Tell whether a path stays inside its artifact."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and str(path) == name


def untouched(root: Path, rooms: Collection[str], older: float, keep: Collection[str], *, dry: bool) -> list[str]:
    """Remove what lies in some rooms of a folder and was not touched for ``older`` seconds, unless ``dry``; return what it is."""
    found = [path for room in rooms if (root / room).is_dir() for path in sorted((root / room).iterdir())]
    old = [path for path in found if path.name not in keep and time.time() - path.stat().st_mtime > older]
    for path in old if not dry else []:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [str(path.relative_to(root)) for path in old]


def disk_trouble(error: OSError, place: Path) -> str:
    """Say an operating system's error about a disk in one sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk under {place} is full; nothing was published; make room and run again"
    return f"a file under {place} cannot be written or read ({error.strerror or error}); nothing was published"


def may_carry_code(name: str) -> bool:
    """Tell, by its suffix, whether a file is code or may hold pickled code."""
    return PurePosixPath(name).suffix.lower() in CODE


def bytes_of(folder: Path) -> int:
    """Return the bytes that a folder's files take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
