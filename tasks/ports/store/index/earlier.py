"""The earlier results that a missing stage is compared with, chosen by the index, and the repair of the index."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from tasks.ports.code.fingerprint import KEY_SCHEMA
from tasks.ports.store.artifacts import Store
from tasks.ports.store.index.entries import (
    KEY_PARTS,
    IndexEntry,
    entry_from,
    entry_names,
    entry_of_manifest,
    part_digests,
)
from tasks.ports.store.manifests import SCHEMA
from tasks.ports.store_documents import Manifest

MOST_COMPARED = 12  # results that are compared for each combination of equal parts, the newest first
OWN_RELEASE = f"{SCHEMA}.{KEY_SCHEMA}"
"""The release of a manifest that may be used as a result."""

SUBSETS = [subset for size in (3, 2, 1, 0) for subset in combinations(range(len(KEY_PARTS)), size)]
"""Combinations of the parts of a key; the most equal parts come first."""


class EarlierResults:
    """The earlier results of a store, as they were when they were first requested; safe for several threads."""

    def __init__(self, store: Store) -> None:
        self.store, self.lock = store, threading.Lock()
        self.by_stage: dict[str, list[IndexEntry]] | None = None
        self.groups: dict[str, dict[tuple[Any, ...], list[str]]] = {}
        self.read: dict[str, Manifest] = {}

    def like(self, explanation: Mapping[str, object]) -> list[Manifest]:
        """Return the manifests of earlier results of the same stage that have the most parts of their keys in common,
        at most ``MOST_COMPARED`` for each combination of equal parts; those of other releases only if there are no
        others."""
        with self.lock:
            keys = self.keys_like(str(explanation["stage"]), part_digests(explanation))
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
        found = (groups.get((subset, *(parts[number] for number in subset)), [])[:MOST_COMPARED] for subset in SUBSETS)
        return list(dict.fromkeys(key for keys in found for key in keys))


def grouped(entries: Iterable[IndexEntry]) -> dict[tuple[Any, ...], list[str]]:
    """Return the keys of one stage's results by each combination of parts, the newest first."""
    every = sorted(entries, key=lambda entry: (-entry.made_at, entry.key))
    own = [entry for entry in every if entry.release == OWN_RELEASE]
    groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for entry in own or every:
        for subset in SUBSETS:
            groups[(subset, *(entry.parts[number] for number in subset))].append(entry.key)
    return groups


def entries_by_stage(store: Store) -> dict[str, list[IndexEntry]]:
    """Return the entries of all results of a store by stage, and add those that are missing."""
    entries = {entry.key: entry for name in store.index.names() if (entry := entry_from(name)) is not None}
    there = store.keys()
    lost = [
        made
        for one in store.manifests([key for key in there if key not in entries])
        if (made := entry_of_manifest(one))
    ]
    store.index.add([entry.name for entry in lost])
    found: dict[str, list[IndexEntry]] = defaultdict(list)
    for entry in [*(entries[key] for key in there if key in entries), *lost]:
        found[entry.stage].append(entry)
    return found


def rebuild(store: Store) -> None:
    """Make the index agree with the manifests. The names are listed first, so that a result that is published meanwhile
    keeps its entry."""
    listed = set(store.index.names())
    right = set(entry_names(store.manifests()))
    store.index.remove(sorted(listed - right))
    store.index.add(sorted(right - listed))
