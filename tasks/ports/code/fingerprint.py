"""Digests of files and of the code that a stage can reach, and the key of a stage, computed from its explanation.

Code is hashed by its syntax tree, so comments, docstrings, formatting and the location of a file do not matter. If a
family of choices (a dict of functions) is indexed only by a knob, only the entries that the knob selects are hashed, so
a new method does not re-run the old ones.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Required, TypedDict

import rfc8785

from tasks.engine.environment import version_of
from tasks.errors import StoreError
from tasks.own_sources import files_as_read
from tasks.ports.code.narrowing import Narrowing, leaves
from tasks.ports.code.program import Program, Root
from tasks.ports.memo import remembered

ROOT = Path(__file__).resolve().parents[3]
NEVER_COUNTED = (
    "tasks.stage",
    "tasks.engine.process",
    "tasks.engine.fork_server",
    "tasks.engine.job",
    "tasks.engine.sources",
    "tasks.contracts",
    "tasks.errors",
    "tasks.recipe",
    "tasks.results",
    "tasks.catalog",
    "tasks.own_sources",
    "tasks.report",
    "tasks.ports.store",
    "tasks.ports.code",
    "tasks.ports.memo",
    "tasks.ports.tracking.tracker",
    "tasks.ports.tracking.client",
    "tasks.ports.tracking.history",
    "tasks.ports.tracking.runs",
    "tasks.ports.tracking.run_context",
    "tasks.ports.tracking.versions",
    "tasks.ports.tracking.download",
    "tasks.ports.tracking.figures",
)
"""Modules and packages whose code is in no key: hashed modules use their types and errors, and no result depends on
their code."""
KEY_SCHEMA = 2
"""Version of the key format. Version 2: the digest of code is independent of its location, and the key contains threads
and environment."""


# --- files ------------------------------------------------------------------------------------------------------------


LARGE = 16 * 2**20  # bytes from which files are hashed side by side: threads cost more than small files
HASH_THREADS = 4  # files that are read at once
MOST_HASHES = 20_000  # hashes that are cached; beyond that, those of missing files go, and then the oldest half
RACY = 2.0  # seconds; the coarsest granularity of times in common file systems


class HashMemo:
    """A cache of hashes by path, size, times and inode, so that a large file is read once per host, not once per run.

    Hashes of files that were changed just before are not cached: another edit of the same size within the clock's
    granularity would not change size, times and inode (Git calls such entries racily clean).
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.known = known_hashes(path)
        self.added: dict[str, list[Any]] = {}

    def get(self, path: Path) -> str:
        """Return the sha256 of a file, from the cache if possible."""
        state, now = path.stat(), time.time()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]
        found = self.known.get(str(path))
        if found and found[0] == stamp:
            return str(found[1])
        digest = hash_now(path)
        if now - max(state.st_mtime, state.st_ctime) > RACY:
            with self.lock:
                self.known[str(path)] = self.added[str(path)] = [stamp, digest]
        return digest

    def save(self) -> None:
        """Add this process's hashes to the cache file, beside those of others; a write error is ignored, because the
        loss costs only time."""
        if not self.added:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("w") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX)  # held for milliseconds; the kernel releases it if a holder dies
                others = {name: entry for name, entry in known_hashes(self.path).items() if name not in self.added}
                self.write(pruned(others | self.added))
        except OSError:
            return

    def write(self, known: Mapping[str, object]) -> None:
        """Replace the cache file atomically by one with its own hash."""
        temporary = self.path.with_suffix(f".{os.getpid()}")
        body = json.dumps(known)
        temporary.write_text(json.dumps({"sha256": sha256(body.encode()).hexdigest(), "known": body}))
        temporary.replace(self.path)


def pruned(known: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return at most ``MOST_HASHES`` hashes: without those of missing files, and then without the oldest half."""
    if len(known) <= MOST_HASHES:
        return known
    there = {name: entry for name, entry in known.items() if os.path.exists(name)}
    return there if len(there) <= MOST_HASHES else dict(list(there.items())[-MOST_HASHES // 2 :])


def known_hashes(path: Path) -> dict[str, list[Any]]:
    """Return the hashes of a cache file; a damaged file, or one of an earlier release, counts as empty."""
    try:
        kept = json.loads(path.read_bytes())
        body = kept["known"]
        known = json.loads(body) if sha256(body.encode()).hexdigest() == kept["sha256"] else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: entry for name, entry in known.items() if is_entry(entry)} if isinstance(known, dict) else {}


def is_entry(entry: Any) -> bool:
    """Return whether an entry of the cache consists of a stamp and a hash."""
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], list)
        and isinstance(entry[1], str)
        and len(entry[1]) == 64
    )


@cache
def memo() -> HashMemo:
    """Return the cache of hashes of this home folder."""
    home = Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser()
    found = HashMemo(home / "cache" / "hashes.json")
    atexit.register(found.save)
    return found


def hash_now(path: Path) -> str:
    """Read a file and return its sha256."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def hash_file(path: Path, *, remember: bool = True) -> str:
    """Return the sha256 of a file, from the cache if ``remember`` and the file is unchanged."""
    return memo().get(path.resolve()) if remember else hash_now(path)


def hash_files(paths: Sequence[Path], *, remember: bool) -> list[str]:
    """Return the sha256 of each file; large ones are read side by side, because the hash releases the interpreter."""
    one = partial(hash_file, remember=remember)
    if len(paths) < 2 or sum(path.stat().st_size for path in paths) < LARGE:
        return [one(path) for path in paths]
    with ThreadPoolExecutor(min(HASH_THREADS, len(paths))) as pool:
        return list(pool.map(one, paths))


# --- code -------------------------------------------------------------------------------------------------------------


@cache
def program() -> Program:
    """Return the package's sources as this process has loaded them, even if files are edited meanwhile."""
    return Program({name: file.body.decode() for name, file in files_as_read().items()}, NEVER_COUNTED)


@cache
def narrowing(roots: tuple[Root, ...]) -> Narrowing:
    """Return the index expressions of the families of choices in the code that the roots can reach."""
    return Narrowing(program(), roots)


def code_digest(roots: Iterable[Root], knobs: Mapping[str, object]) -> str:
    """Return the digest of every definition that the roots can reach; of families of choices, only the entries that the
    knobs can select.

    Parsing takes most of a second for a whole recipe, so the result is cached on this machine until a source changes.
    """
    asked = [list(root) for root in roots], sorted({(path, value or "") for path, value in leaves(knobs)})
    digest: str = remembered("code", [sys.version, sources_sha256(), asked], lambda: read_digest(roots, knobs))
    return digest


@cache
def sources_sha256() -> str:
    """Return one digest of all sources."""
    return sha256(json.dumps(dict(program().sources)).encode()).hexdigest()


def read_digest(roots: Iterable[Root], knobs: Mapping[str, object]) -> str:
    """Compute a code digest from the sources, without the cache."""
    starts = tuple(roots)
    return program().digest(starts, narrowing(starts).entries(knobs))


# --- keys -------------------------------------------------------------------------------------------------------------


class ComputedBy(TypedDict, total=False):
    """The part of a key that only stages with an engine have."""

    device: str
    environment: dict[str, str]
    """Variables that affect numbers."""
    threads: int
    processes: int
    hardware: str
    """This very machine, for measurements."""


class KeyExplanation(ComputedBy, total=False):
    """Everything in a stage's key, by name."""

    schema: Required[int]
    stage: Required[str]
    code: Required[str]
    """Digest of the code that determines the result."""
    knobs: Required[Mapping[str, object]]
    inputs: Required[dict[str, str | list[str]]]
    """Digests of the input artifacts."""
    libraries: Required[dict[str, str]]
    """Versions by name."""
    architectures: list[str]
    """Architectures of the stage's models, if there are any."""


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of libraries without local build tags."""
    return {name: version_of(name) for name in names}


def canonical(values: Mapping[str, object]) -> bytes:
    """Return canonical JSON; values without a canonical form raise StoreError instead of disabling the cache."""
    try:
        plain: Any = dict(values)
        return rfc8785.dumps(plain)
    except (rfc8785.CanonicalizationError, TypeError, ValueError) as error:
        raise StoreError(f"the key of a stage cannot be computed: {error}") from error


def key_of(explanation: Mapping[str, object]) -> str:
    """Return the key of a stage, 256 bits in hex."""
    return sha256(canonical({"schema": KEY_SCHEMA, **explanation})).hexdigest()


def differences(now: Mapping[str, object], then: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Yield the fields in which two explanations of a stage differ, as text; for different schemas, yield only one
    sentence about the schemas."""
    schemas = [explanation.get("schema", 1) for explanation in (now, then)]
    if not path and schemas[0] != schemas[1]:
        yield (
            f"the computation of keys changed in schema {max(one for one in schemas if isinstance(one, int))}, so "
            f"earlier results are computed again"
        )
        return
    for name in sorted({*now, *then}):
        ours, theirs = now.get(name), then.get(name)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            yield from differences(ours, theirs, f"{path}{name}.")
        elif ours != theirs:
            yield f"{path}{name}: {short(theirs)} → {short(ours)}"


def short(value: object) -> str:
    """Return a value as text, shortened for one line."""
    text = str(value)
    return text[:8] + "…" if len(text) == 64 and text.isalnum() else text if len(text) <= 40 else text[:39] + "…"
