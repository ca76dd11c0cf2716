"""What every store agrees on: what an artifact is, and what a store must be able to do; manifests are in ``manifests``.

An artifact is a folder of plain files. Its inventory lists path, size and sha256 of each; the digest of the inventory
names the artifact, so whoever holds the files can check all of them against the name alone. A file too many, a link or
a special file is damage like a changed byte.
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

from tasks.contracts import Parcel
from tasks.errors import StoreError
from tasks.ports.code.fingerprint import hash_file
from tasks.ports.files.copies import copy_hashed

IDENTITY = "id"
"""The file of a store that holds its own name."""
CODE = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".py"}
"""Suffixes of files that are code, or whose loading may run some."""

GONE = (FileNotFoundError, NotADirectoryError)
"""What says that a file is not there; other errors are the disk's, and no damage of an artifact."""

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
        """Return the random name that this store was given when it was first asked; it lies among the store's files,
        and moves with them."""

    def find(self, key: str) -> Parcel | None:
        """Return the verified result of a key, or None."""

    def publish(
        self,
        key: str,
        *,
        kind: str,
        folder: Path,
        facts: Mapping[str, Any],
        stage: str,
        explanation: Mapping[str, Any],
        lease: Lease,
        seconds: float = 0.0,
        used: Mapping[str, Any] | None = None,
    ) -> Parcel:
        """Make a finished folder the result of a key, whole or not at all."""

    def folder(self, parcel: Parcel) -> Path:
        """Return a local folder with a parcel's files, fetched and checked if need be; of a source, where the user
        keeps it.

        Raises ArtifactDamaged where the files are gone, or are not what the parcel's digest says.
        """

    def own_copy(self, source: Parcel) -> Path:
        """Return a copy of a source in the store's own place, which has the source's digest whatever is done to the
        original.

        Raises DataError where the source is not any more what its digest says.
        """

    def lease(
        self, key: str, note: Mapping[str, Any] | None = None, *, wait: bool = True
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the right to compute a key; where another holds it, wait, or raise LeaseTaken. The note says to others
        what is being computed."""

    def checkpoints(self, key: str, tell: Callable[[str], None]) -> AbstractAsyncContextManager[Path]:
        """Give the folder in which a stage under way keeps its checkpoints, filled with those of whoever was
        interrupted before."""

    def workspace(self) -> Path:
        """Return the folder under which stages work."""

    def manifest(self, key: str) -> dict[str, Any] | None:
        """Return the manifest of a key as it stands, its files unchecked."""

    def manifests(self) -> Iterator[dict[str, Any]]:
        """Yield every readable manifest, those of other releases too."""

    def damage(self, manifest: Mapping[str, Any]) -> str | None:
        """Hash every file behind a manifest anew; say what is wrong, or None. What is wrong is set aside, so that it is
        made again."""

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Yield key and damage of every manifest that is damaged itself; each is set aside."""

    def running(self) -> list[dict[str, Any]]:
        """Return the notes of the leases that are held right now."""

    def artifacts(self) -> dict[str, tuple[int, float]]:
        """Return bytes and age in seconds of every artifact by its digest, whether or not a manifest names it."""

    def remove_result(self, key: str) -> None:
        """Remove a manifest."""

    def remove_artifact(self, digest: str) -> None:
        """Remove an artifact that no manifest names."""

    def leftovers(self, older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove what crashed workers left more than ``older`` seconds ago, checkpoints of the keys in ``keep``
        excepted; return what it is."""


def plain_files(folder: Path) -> tuple[dict[str, Path], set[str]]:
    """Return the files of an artifact's folder by their names in it, and the names of its folders, in order.

    Raises StoreError where the folder, or anything in it, is a link or a special file.
    """
    files: dict[str, Path] = {}
    folders: set[str] = set()
    waiting = [("", folder)]
    while waiting:
        inside, place = waiting.pop()
        if not stat.S_ISDIR(place.lstat().st_mode):
            raise StoreError(f"{place.name} is a link, or no folder; an artifact holds plain files only")
        for entry in list(os.scandir(place)):
            name = inside + entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.add(name)
                waiting.append((f"{name}/", Path(entry.path)))
            elif entry.is_file(follow_symlinks=False):
                files[name] = Path(entry.path)
            else:
                raise StoreError(
                    f"{name} is {'a link' if entry.is_symlink() else 'a special file'}; an artifact holds plain "
                    f"files only"
                )
    return dict(sorted(files.items())), folders


def take_inventory(folder: Path, kind: str, *, remember: bool = False) -> dict[str, dict[str, Any]]:
    """List a folder's files with size and sha256; refuse links, and what may carry code."""
    files = publishable(folder, kind)
    return {
        name: {"size": path.stat().st_size, "sha256": hash_file(path, remember=remember)}
        for name, path in files.items()
    }


def publishable(folder: Path, kind: str) -> dict[str, Path]:
    """Return the files that a stage wrote by their names; refuse links, what may carry code, and a stage that wrote
    nothing."""
    files, _ = plain_files(folder)
    carriers = [name for name in files if kind != "any" and may_carry_code(name)]
    if carriers:
        raise StoreError(f"{carriers[0]} may carry code, pickled or plain; models are stored as safetensors only")
    if not files:
        raise StoreError("the stage wrote no file; nothing was published")
    return files


def copy_artifact(folder: Path, target: Path, kind: str) -> dict[str, dict[str, Any]]:
    """Copy what a stage wrote into a new folder and return the inventory of the copy: the bytes that are hashed are
    those that are kept."""
    files = publishable(folder, kind)
    target.mkdir(parents=True)
    inventory = {}
    for name, path in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        digest = copy_hashed(path, target / name)
        inventory[name] = {"size": (target / name).stat().st_size, "sha256": digest}
    return inventory


def problem_of_files(folder: Path, inventory: Inventory, *, remember: bool) -> str | None:
    """Say how a folder differs from an inventory, or None: a file too many is as wrong as one that is missing or
    changed."""
    try:
        files, folders = plain_files(folder)
        missing, surplus = sorted(inventory.keys() - files.keys()), sorted(files.keys() - inventory.keys())
        surplus += sorted(folders - parents_of(inventory))
        if missing or surplus:
            return f"{missing[0]} is missing" if missing else f"{surplus[0]} is in it, and was not stored with it"
        for name, expected in inventory.items():
            if (
                files[name].stat().st_size != expected["size"]
                or hash_file(files[name], remember=remember) != expected["sha256"]
            ):
                return f"{name} has changed"
    except GONE:
        return "its files are missing"
    except StoreError as error:
        return str(error)
    return None


def digest_of(inventory: Inventory) -> str:
    """Return the output digest of an inventory."""
    return sha256(rfc8785.dumps({name: dict(entry) for name, entry in inventory.items()})).hexdigest()


def is_whole(folder: Path, digest: str, *, remember: bool = False) -> bool:
    """Tell whether a folder holds exactly the files that a digest names, and no empty folder."""
    try:
        inventory, (_, folders) = take_inventory(folder, "any", remember=remember), plain_files(folder)
        return digest_of(inventory) == digest and folders <= parents_of(inventory)
    except (StoreError, ValueError, *GONE):
        return False


def parents_of(names: Iterable[str]) -> set[str]:
    """Return the folders in which files lie, by their names in the artifact."""
    return {parent.as_posix() for name in names for parent in PurePosixPath(name).parents}


def first_link(root: Path, path: Path) -> Path | None:
    """Return the first part of a path below ``root`` that is a link, or None: what a store holds lies in the store."""
    parts = path.relative_to(root).parts
    places = [root.joinpath(*parts[: count + 1]) for count in range(len(parts))]
    return next((place for place in places if place.is_symlink()), None)


def is_safe(name: str) -> bool:
    """Tell whether a path stays inside its artifact."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and str(path) == name


def untouched(root: Path, rooms: Collection[str], older: float, keep: Collection[str], *, dry: bool) -> list[str]:
    """Remove what lies in some rooms of a folder and was not touched for ``older`` seconds, unless ``dry``; return what
    it is."""
    found = [path for room in rooms if (root / room).is_dir() for path in sorted((root / room).iterdir())]
    old = [path for path in found if path.name not in keep and time.time() - path.lstat().st_mtime > older]
    for path in old if not dry else []:
        remove_tree(path)
    return [str(path.relative_to(root)) for path in old]


def remove_tree(path: Path) -> None:
    """Remove a file, a folder, or a link without what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def require_identity(found: str, address: str) -> str:
    """Return a store's own name as it was read; one that was emptied or edited keeps nobody out, and is refused."""
    name = found.strip()
    if not re.fullmatch(r"[0-9a-f]{32}", name):
        raise StoreError(
            f"the file {IDENTITY!r} of the store {address} holds no name of a store ({name[:40]!r}), and promotions "
            f"under it would not keep each "
            "other out; bring the file back, or delete it if no model was ever promoted with this store"
        )
    return name


def disk_trouble(error: OSError, place: Path) -> str:
    """Say an operating system's error about a disk in one sentence."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # A copy of a folder raises one error for all of its files, whose number is lost; their words are not.
    if error.errno in full or any(os.strerror(number) in str(error) for number in full):
        return f"the disk under {place} is full; nothing was published; make room and run again"
    return f"a file under {place} cannot be written or read ({error.strerror or error}); nothing was published"


def may_carry_code(name: str) -> bool:
    """Tell, by its suffix, whether a file is code or may hold pickled code."""
    return PurePosixPath(name).suffix.lower() in CODE


def bytes_of(folder: Path) -> int:
    """Return the bytes that a folder's files take."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
