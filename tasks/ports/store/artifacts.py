"""The definition of an artifact and the interface of a store; ``manifests`` has the manifests.

An artifact is a folder of plain files. Its inventory lists path, size and sha256 of each file. The digest of the
inventory is the artifact's name, so the name alone is enough to check all files. A surplus file, a link or a special
file counts as damage, as a changed byte does.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import rfc8785

from tasks.contracts import Artifact, Used
from tasks.errors import StoreError
from tasks.ports.code.fingerprint import hash_files
from tasks.ports.files.copies import copy_hashed
from tasks.ports.store_documents import FileEntry, Inventory, LeaseNote, Manifest

IDENTITY = "id"
"""The file that holds the store's identity."""
CODE = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".py"}
"""Suffixes of files that are code, or that may run code when they are loaded."""

GONE = (FileNotFoundError, NotADirectoryError)
"""Errors for a missing file; other errors are faults of the disk, not damage of an artifact."""

log = logging.getLogger("limbeck.store")


class Lease(Protocol):
    """The right to compute one key."""

    def assert_held(self) -> None:
        """Raise LeaseLost if another worker took over."""


class IndexFiles(Protocol):
    """The files of an index in a store."""

    def names(self) -> list[str]:
        """Return the names of all entries."""

    def add(self, names: Collection[str]) -> None:
        """Add entries. A failure is ignored, because the next plan adds them."""

    def remove(self, names: Collection[str]) -> None:
        """Remove entries; missing ones are no error."""


class Store(Protocol):
    """The methods of a store that the stage decorator uses; ``tests/ports/store/`` specifies each of them."""

    def check(self) -> None:
        """Raise StoreError if the store cannot be read and written right now."""

    def identity(self) -> str:
        """Return the store's random name. The first call creates it as a file of the store, so it moves with the
        store."""

    def find(self, key: str) -> Artifact | None:
        """Return the verified result of a key, or None."""

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
        """Store a finished folder as the result of a key, atomically."""

    def folder(self, artifact: Artifact) -> Path:
        """Return a local folder with the artifact's files, after a download and a check if they are necessary; for a
        source, return the user's own path.

        Raises ArtifactDamaged if the files are missing or do not match the artifact's digest.
        """

    def own_copy(self, source: Artifact) -> Path:
        """Return a copy of a source in the store's own folder; later edits of the original do not change it.

        Raises DataError if the source no longer matches its digest.
        """

    def lease(
        self, key: str, note: LeaseNote | None = None, *, wait: bool = True
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the right to compute a key; if another worker holds it, wait or raise LeaseTaken. The note describes the
        computation to other workers."""

    def checkpoints(self, key: str, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Path]:
        """Yield the checkpoint folder of a running stage; it contains the checkpoints of an earlier interrupted
        attempt."""

    def workspace(self) -> Path:
        """Return the folder for the working folders of stages."""

    def manifest(self, key: str) -> Manifest | None:
        """Return the stored manifest of a key, without a check of its files."""

    @property
    def index(self) -> IndexFiles:
        """The files of the index of results by stage."""

    def keys(self) -> list[str]:
        """Return the keys that have a manifest, readable or not."""

    def manifests(self, keys: Iterable[str] | None = None) -> Iterator[Manifest]:
        """Yield every readable manifest, or those of ``keys``, including those of other releases."""

    def damage(self, manifest: Manifest) -> str | None:
        """Hash every file of a manifest again and return the problem, or None. Damaged files are moved to quarantine,
        so that they are computed again."""

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield key and damage of every manifest that is itself damaged, and move each to quarantine."""

    def running(self) -> list[LeaseNote]:
        """Return the notes of all leases that are currently held."""

    def artifacts(self) -> dict[str, tuple[int, float]]:
        """Return size in bytes and age in seconds of every artifact by digest, with or without a manifest."""

    def remove_result(self, key: str) -> None:
        """Remove a manifest."""

    def remove_artifact(self, digest: str) -> None:
        """Remove an artifact that no manifest names."""

    def leftovers(self, older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove files that crashed workers left more than ``older`` seconds ago, except checkpoints of the keys in
        ``keep``; return the names of these files."""


def plain_files(folder: Path) -> tuple[dict[str, Path], set[str]]:
    """Return the files of an artifact's folder by relative path, sorted, and the relative paths of its subfolders.

    Raises StoreError if the folder, or anything in it, is a link or a special file.
    """
    files: dict[str, Path] = {}
    folders: set[str] = set()
    waiting = [("", folder)]
    while waiting:
        inside, place = waiting.pop()
        if not stat.S_ISDIR(place.lstat().st_mode):
            raise StoreError(f"{place.name} is a link or is not a folder; an artifact contains regular files only")
        for entry in list(os.scandir(place)):
            name = inside + entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.add(name)
                waiting.append((f"{name}/", Path(entry.path)))
            elif entry.is_file(follow_symlinks=False):
                files[name] = Path(entry.path)
            else:
                raise StoreError(
                    f"{name} is {'a link' if entry.is_symlink() else 'a special file'}; an artifact contains regular "
                    f"files only"
                )
    return dict(sorted(files.items())), folders


def take_inventory(folder: Path, kind: str, *, remember: bool = False) -> dict[str, FileEntry]:
    """Return size and sha256 of each file in a folder; refuse links and files that may carry code."""
    return inventory_of(publishable(folder, kind), remember=remember)


def inventory_of(files: Mapping[str, Path], *, remember: bool) -> dict[str, FileEntry]:
    """Return size and sha256 of files by name."""
    hashes = hash_files(list(files.values()), remember=remember)
    return {
        name: {"size": path.stat().st_size, "sha256": digest}
        for (name, path), digest in zip(files.items(), hashes, strict=True)
    }


def publishable(folder: Path, kind: str) -> dict[str, Path]:
    """Return the files that a stage wrote, by relative path; refuse links, files that may carry code, and an empty
    folder."""
    files, _ = plain_files(folder)
    carriers = [name for name in files if kind != "any" and may_carry_code(name)]
    if carriers:
        raise StoreError(f"{carriers[0]} may contain code, pickled or plain; models are stored as safetensors only")
    if not files:
        raise StoreError("the stage wrote no file; nothing was published")
    return files


def take_over(folder: Path, target: Path, kind: str, workspace: Path) -> dict[str, FileEntry]:
    """Move the output of a stage to a new folder by a rename if it is in the store's own ``workspace``, else copy it;
    return the inventory of the new folder."""
    files = publishable(folder, kind)
    if not may_be_moved(folder, files, workspace):
        return copy_artifact(files, target)
    folder.rename(target)
    inventory = take_inventory(target, kind)
    mode = workspace.stat().st_mode & 0o777  # temporary folders are closed to other users, and stores are not
    for path in (target, *target.rglob("*")):
        path.chmod(mode if path.is_dir() else mode & 0o666)
    return inventory


def may_be_moved(folder: Path, files: Mapping[str, Path], workspace: Path) -> bool:
    """Return whether a folder is in a workspace on the same disk, and none of its files has a second name, under which
    it could be changed later."""
    inside = folder.resolve().is_relative_to(workspace.resolve()) and folder.stat().st_dev == workspace.stat().st_dev
    return inside and all(path.stat().st_nlink == 1 for path in files.values())


def copy_artifact(files: Mapping[str, Path], target: Path) -> dict[str, FileEntry]:
    """Copy files into a new folder and return the inventory of the copy. The hashes are those of the stored bytes."""
    target.mkdir(parents=True)
    inventory: dict[str, FileEntry] = {}
    for name, path in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        digest = copy_hashed(path, target / name)
        inventory[name] = {"size": (target / name).stat().st_size, "sha256": digest}
    return inventory


def problem_of_files(folder: Path, inventory: Inventory, *, remember: bool) -> str | None:
    """Return the difference between a folder and an inventory, or None. A surplus file is a problem just as a missing
    or a changed one is."""
    try:
        files, folders = plain_files(folder)
        missing, surplus = sorted(inventory.keys() - files.keys()), sorted(files.keys() - inventory.keys())
        surplus += sorted(folders - parents_of(inventory))
        if missing or surplus:
            return f"{missing[0]} is missing" if missing else f"{surplus[0]} is an extra file that was not stored"
        resized = [name for name, expected in inventory.items() if files[name].stat().st_size != expected["size"]]
        found = inventory_of({name: files[name] for name in inventory}, remember=remember) if not resized else {}
        changed = resized or [name for name in inventory if found[name]["sha256"] != inventory[name]["sha256"]]
        if changed:
            return f"{changed[0]} has changed"
    except GONE:
        return "its files are missing"
    except StoreError as error:
        return str(error)
    return None


def digest_of(inventory: Inventory) -> str:
    """Return the output digest of an inventory."""
    files: Any = {name: {"size": one["size"], "sha256": one["sha256"]} for name, one in inventory.items()}
    return sha256(rfc8785.dumps(files)).hexdigest()


def is_whole(folder: Path, digest: str, *, remember: bool = False) -> bool:
    """Return whether a folder contains exactly the files of a digest and no empty subfolder."""
    try:
        inventory, (_, folders) = take_inventory(folder, "any", remember=remember), plain_files(folder)
        return digest_of(inventory) == digest and folders <= parents_of(inventory)
    except (StoreError, ValueError, *GONE):
        return False


def parents_of(names: Iterable[str]) -> set[str]:
    """Return the parent folders of files, as relative paths in the artifact."""
    return {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}


def first_link(root: Path, path: Path) -> Path | None:
    """Return the first component of a path below ``root`` that is a link, or None. A link could lead out of the
    store."""
    parts = path.relative_to(root).parts
    places = [root.joinpath(*parts[: count + 1]) for count in range(len(parts))]
    return next((place for place in places if place.is_symlink()), None)


def is_safe(name: str) -> bool:
    """Return whether a path stays inside its artifact."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and str(path) == name


def untouched(root: Path, rooms: Collection[str], older: float, keep: Collection[str], *, dry: bool) -> list[str]:
    """Remove entries of the subfolders ``rooms`` that were not modified for ``older`` seconds, unless ``dry``; those
    whose name contains a key of ``keep`` stay. Return their relative paths."""
    found = [path for room in rooms if (root / room).is_dir() for path in sorted((root / room).iterdir())]
    # the time of a folder is not that of the files below it: a stage may write there for days
    unused = [path for path in found if not any(key in path.name for key in keep)]
    old = [path for path in unused if time.time() - path.lstat().st_mtime > older]
    for path in old if not dry else []:
        remove_tree(path)
    return [str(path.relative_to(root)) for path in old]


def remove_tree(path: Path) -> None:
    """Remove a file, a folder, or a link without its target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def require_identity(found: str, address: str) -> str:
    """Return the store's name if it is valid; refuse an empty or edited one, because it could not serve as a lock
    between promotions."""
    name = found.strip()
    if not re.fullmatch(r"[0-9a-f]{32}", name):
        raise StoreError(
            f"the file {IDENTITY!r} of the store {address} contains no store name ({name[:40]!r}), so promotions "
            f"under it would not exclude each other; restore the file, or delete it if no model was ever promoted "
            f"with this store"
        )
    return name


def disk_trouble(error: OSError, place: Path) -> str:
    """Return an operating system's disk error as one sentence."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # The copy of a folder raises one error for all files: it loses the error number, but keeps the messages.
    if error.errno in full or any(os.strerror(number) in str(error) for number in full):
        return f"the disk under {place} is full; nothing was published; free some space and run again"
    return f"a file under {place} cannot be written or read ({error.strerror or error}); nothing was published"


def may_carry_code(name: str) -> bool:
    """Return whether a file, by its suffix, is code or may contain pickled code."""
    return PurePosixPath(name).suffix.lower() in CODE


def bytes_of(folder: Path) -> int:
    """Return the total size in bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
