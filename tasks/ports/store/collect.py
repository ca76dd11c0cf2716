"""Garbage collection of a store: everything that no registered model, running stage or recent result depends on.

A result is needed if its artifact is needed, and a needed result needs its input artifacts in turn. So the ancestors of
a registered model stay, and a running stage never loses an input.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tasks.ports.store.artifacts import Store
from tasks.ports.store.index.earlier import rebuild
from tasks.ports.store_documents import Manifest

UNNAMED = 3600.0  # seconds that an artifact without a manifest is kept: a worker may be about to write its manifest


@dataclass(frozen=True)
class CollectedGarbage:
    """The results, artifacts and leftovers that were removed, or would be."""

    results: list[tuple[str, str]]
    """Stage and key of each manifest."""
    artifacts: list[str]
    leftovers: list[str]
    bytes: int
    kept: int
    """Number of results that stay."""


def collect_garbage(
    store: Store, registered: Collection[str], *, keep_days: float, dry: bool, unnamed: float = UNNAMED
) -> CollectedGarbage:
    """Remove all that is not needed; ``registered`` are the digests of the checkpoints of the registry's versions.

    Manifests are removed before the artifacts that they name, so that an interruption leaves no result without its
    files. Leases are listed last, so that a stage that started during the listing keeps its inputs.
    """
    manifests = list(store.manifests())
    recent = [manifest for manifest in manifests if time.time() - manifest["made_at"] < keep_days * 86400]
    there, notes = store.artifacts(), store.running()
    needed = closure(manifests, [*registered, *(manifest["sha256"] for manifest in recent), *inputs_of(notes)])
    under_way = {str(note["key"]) for note in notes}
    doomed = [
        manifest for manifest in manifests if manifest["sha256"] not in needed and manifest["key"] not in under_way
    ]
    named = {manifest["sha256"] for manifest in manifests}
    artifacts = [
        digest for digest, (_, age) in there.items() if digest not in needed and (digest in named or age > unnamed)
    ]
    if not dry:
        for manifest in doomed:
            store.remove_result(manifest["key"])
        for digest in artifacts:
            store.remove_artifact(digest)
        rebuild(store)
    return CollectedGarbage(
        results=[(manifest["stage"], manifest["key"]) for manifest in doomed],
        artifacts=artifacts,
        leftovers=store.leftovers(keep_days * 86400, under_way, dry=dry),
        bytes=sum(there[digest][0] for digest in artifacts),
        kept=len(manifests) - len(doomed),
    )


def closure(manifests: Iterable[Manifest], roots: Iterable[str]) -> set[str]:
    """Return the digests of the roots and of all artifacts that they depend on."""
    parents: dict[str, set[str]] = {}
    for manifest in manifests:
        parents.setdefault(manifest["sha256"], set()).update(inputs_of([manifest["explanation"]]))
    needed: set[str] = set()
    waiting = list(roots)
    while waiting:
        digest = waiting.pop()
        if digest not in needed:
            needed.add(digest)
            waiting.extend(parents.get(digest, ()))
    return needed


def inputs_of(explanations: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the digests of the input artifacts of stages. In notes and old manifests, ``inputs`` may have any type."""
    for explanation in explanations:
        inputs = explanation.get("inputs")
        for given in inputs.values() if isinstance(inputs, Mapping) else ():
            yield from (one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str))
