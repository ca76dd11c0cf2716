"""An index of a store's results by stage, so that a plan compares each missing stage with a few similar results.

An entry is an empty file whose name has the digests of three parts of a key: code, knobs and inputs. It is derived from
a manifest, written after it, and never decides about a cache hit. An entry that is missing, because a process was
killed or an older release stored the result, is added by the next plan; an entry without a manifest is ignored until
maintenance removes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import rfc8785

from tasks.errors import StoreError
from tasks.ports.code.fingerprint import KEY_SCHEMA
from tasks.ports.store.artifacts import Store
from tasks.ports.store.bucket import Bucket
from tasks.ports.store.manifests import SCHEMA

PARTS = ("code", "knobs", "inputs")
PART = r"_([0-9a-f]{12})"
PART = r"_([0-9a-f]{12})"
NAME = re.compile(r"([a-z0-9][a-z0-9-]{0,99})/(\d{1,9}\.\d{1,9})_(\d{1,12})" + PART * len(PARTS) + r"_([0-9a-f]{64})")
MOST = 12  # results that are compared for each combination of equal parts, the newest first
OWN = f"{SCHEMA}.{KEY_SCHEMA}"
"""The release of a manifest that may be used as a result."""

SUBSETS = [subset for size in (3, 2, 1, 0) for subset in combinations(range(len(PARTS)), size)]
"""Combinations of the parts of a key; the most equal parts come first."""


@dataclass(frozen=True)
class IndexEntry:
    """One result in the index."""

    stage: str
    release: str
    made_at: int
    """Seconds since the epoch."""
    parts: tuple[str, ...]
    """Digests of ``PARTS``."""
    key: str

    @property
    def name(self) -> str:
        """The name of the entry's file below the index."""
        return f"{self.stage}/{self.release}_{self.made_at}_{'_'.join(self.parts)}_{self.key}"


def entry_from(name: str) -> IndexEntry | None:
    """Return the entry with a name, or None for a name that is none of this release's."""
    found = NAME.fullmatch(name)
    if found is None:
        return None
    stage, release, made_at, *parts, key = found.groups()
    return IndexEntry(stage, release, int(made_at), tuple(parts), key)


def entry_of(manifest: Mapping[str, Any]) -> IndexEntry | None:
    """Return the entry of a manifest; None if the stage of another release has a name that is no legal file name."""
    release = f"{manifest['schema']}.{manifest.get('key_schema', 1)}"
    made = IndexEntry(
        manifest["stage"],
        release,
        max(0, int(manifest["made_at"])),
        parts_of(manifest["explanation"]),
        manifest["key"],
    )
    return made if NAME.fullmatch(made.name) else None


def names_of(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the entries of some manifests."""
    return [entry.name for manifest in manifests if (entry := entry_of(manifest)) is not None]


def parts_of(explanation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the digest of each part of a key."""
    return tuple(sha256(canonical(explanation.get(part))).hexdigest()[:12] for part in PARTS)


def canonical(value: Any) -> bytes:
    """Return a value as canonical JSON; a value of another release may have only plain JSON."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        return json.dumps(value, sort_keys=True).encode()


class FolderIndex:
    """The files of an index below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """Return the names of all entries."""
        stages = [path for path in files_below(self.root) if path.is_dir(follow_symlinks=False)]
        return [f"{stage.name}/{entry.name}" for stage in stages for entry in files_below(stage.path)]

    def add(self, names: Collection[str]) -> None:
        """Add entries. A failure is ignored, because the next plan adds them."""
        with contextlib.suppress(OSError):
            for name in names:
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name).touch()

    def remove(self, names: Collection[str]) -> None:
        """Remove entries; missing ones are no error."""
        for name in names:
            (self.root / name).unlink(missing_ok=True)


def files_below(folder: Path | str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none for one that does not exist."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


class BucketIndex:
    """The files of an index in a bucket: empty objects, of which one listing returns a thousand names."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return [entry.name.removeprefix("index/") for entry in self.bucket.entries("index/")]

    def add(self, names: Collection[str]) -> None:
        """Add entries. A failure is ignored, because the next plan adds them."""
        first, *others = [f"index/{name}" for name in names] or [""]
        with contextlib.suppress(StoreError):  # without the right to write, the first attempt is the only one
            if first:
                self.bucket.write(first, b"")
            list(self.bucket.pool.map(lambda name: self.bucket.write(name, b""), others))

    def remove(self, names: Collection[str]) -> None:
        """Remove entries; missing ones are no error."""
        list(self.bucket.pool.map(lambda name: self.bucket.delete(f"index/{name}"), names))


class EarlierResults:
    """The earlier results of a store, as they were when they were first requested; safe for several threads."""

    def __init__(self, store: Store) -> None:
        self.store, self.lock = store, threading.Lock()
        self.by_stage: dict[str, list[IndexEntry]] | None = None
        self.groups: dict[str, dict[tuple[Any, ...], list[str]]] = {}
        self.read: dict[str, Mapping[str, Any]] = {}

    def like(self, explanation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the manifests of earlier results of the same stage that have the most parts of their keys in common,
        with ``MOST`` for each combination of equal parts; those of other releases only if there are no others."""
        with self.lock:
            keys = self.keys_like(str(explanation["stage"]), parts_of(explanation))
            unread = [key for key in keys if key not in self.read]
            self.read |= {manifest["key"]: manifest for manifest in self.store.manifests(unread)}
            return [self.read[key] for key in keys if key in self.read]

    def keys_like(self, stage: str, parts: tuple[str, ...]) -> list[str]:
        """Return the keys of results of a stage, those with the most equal parts first."""
        if self.by_stage is None:
            self.by_stage = entries_by_stage(self.store)
        if stage not in self.groups:
            self.groups[stage] = grouped(self.by_stage.get(stage, []))
        groups = self.groups[stage]
        found = (groups.get((subset, *(parts[number] for number in subset)), [])[:MOST] for subset in SUBSETS)
        return list(dict.fromkeys(key for keys in found for key in keys))


def grouped(entries: Iterable[IndexEntry]) -> dict[tuple[Any, ...], list[str]]:
    """Return the keys of one stage's results by each combination of parts, the newest first."""
    every = sorted(entries, key=lambda entry: (-entry.made_at, entry.key))
    own = [entry for entry in every if entry.release == OWN]
    groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for entry in own or every:
        for subset in SUBSETS:
            groups[(subset, *(entry.parts[number] for number in subset))].append(entry.key)
    return groups


def entries_by_stage(store: Store) -> dict[str, list[IndexEntry]]:
    """Return the entries of all results of a store by stage, and add those that are missing."""
    entries = {entry.key: entry for name in store.index.names() if (entry := entry_from(name)) is not None}
    there = store.keys()
    lost = [made for one in store.manifests([key for key in there if key not in entries]) if (made := entry_of(one))]
    store.index.add([entry.name for entry in lost])
    found: dict[str, list[IndexEntry]] = defaultdict(list)
    for entry in [*(entries[key] for key in there if key in entries), *lost]:
        found[entry.stage].append(entry)
    return found


def rebuild(store: Store) -> None:
    """Make the index agree with the manifests. The names are listed first, so that a result that is published meanwhile
    keeps its entry."""
    listed = set(store.index.names())
    right = set(names_of(store.manifests()))
    store.index.remove(sorted(listed - right))
    store.index.add(sorted(right - listed))
