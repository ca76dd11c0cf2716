"""What may go: everything in a store that no registered model, no running lease and no recent result was made from.

Marking is by need: a result is needed if its artifact is, and it needs in turn the artifacts that it was made from. So
the parents of a registered model stay, and a stage under way never loses an input.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.ports.store.artifacts import Store

UNNAMED = 3600.0  # seconds that an artifact without a manifest is left alone: a worker may be about to name it


@dataclass(frozen=True)
class Sweep:
    """What goes, or would go."""

    results: list[tuple[str, str]]
    """Stage and key of each manifest."""
    artifacts: list[str]
    leftovers: list[str]
    bytes: int
    kept: int
    """How many results stay."""


def sweep(store: Store, registered: Collection[str], *, keep_days: float, dry: bool, unnamed: float = UNNAMED) -> Sweep:
    """Remove what nothing needs; ``registered`` are the digests of the checkpoints behind the registry's versions.

    Manifests go before the artifacts that they name, so that whatever stops this leaves no result without its files.
    Leases are asked last: a stage that began while we were counting keeps its inputs.
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
    return Sweep(
        results=[(manifest["stage"], manifest["key"]) for manifest in doomed],
        artifacts=artifacts,
        leftovers=store.leftovers(keep_days * 86400, under_way, dry=dry),
        bytes=sum(there[digest][0] for digest in artifacts),
        kept=len(manifests) - len(doomed),
    )


def closure(manifests: Iterable[Mapping[str, Any]], roots: Iterable[str]) -> set[str]:
    """Return the digests that the roots are, and all that they were made from."""
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


def inputs_of(explanations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the digests of the artifacts that stages take; notes and old manifests may say anything under this name."""
    for explanation in explanations:
        inputs = explanation.get("inputs")
        for given in inputs.values() if isinstance(inputs, Mapping) else ():
            yield from (one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str))
