"""An index of a store's results by stage, so that a plan compares each missing stage with a few similar results.

An entry is an empty file whose name has the digests of three parts of a key: code, knobs and inputs. It is derived from
a manifest, written after it, and never decides about a cache hit. An entry that is missing, because a process was
killed or an older release stored the result, is added by the next plan; an entry without a manifest is ignored until
maintenance removes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import rfc8785

from tasks.ports.store_documents import Manifest

KEY_PARTS = ("code", "knobs", "inputs")
PART_PATTERN = r"_([0-9a-f]{12})"
ENTRY_NAME = re.compile(
    r"([a-z0-9][a-z0-9-]{0,99})/(\d{1,9}\.\d{1,9})_(\d{1,12})" + PART_PATTERN * len(KEY_PARTS) + r"_([0-9a-f]{64})"
)


@dataclass(frozen=True)
class IndexEntry:
    """One result in the index."""

    stage: str
    release: str
    made_at: int
    """Seconds since the epoch."""
    parts: tuple[str, ...]
    """Digests of ``KEY_PARTS``."""
    key: str

    @property
    def name(self) -> str:
        """The name of the entry's file below the index."""
        return f"{self.stage}/{self.release}_{self.made_at}_{'_'.join(self.parts)}_{self.key}"


def entry_from(name: str) -> IndexEntry | None:
    """Return the entry with a name, or None for a name that is none of this release's."""
    found = ENTRY_NAME.fullmatch(name)
    if found is None:
        return None
    stage, release, made_at, *parts, key = found.groups()
    return IndexEntry(stage, release, int(made_at), tuple(parts), key)


def entry_of_manifest(manifest: Manifest) -> IndexEntry | None:
    """Return the entry of a manifest; None if the stage of another release has a name that is no legal file name."""
    release = f"{manifest['schema']}.{manifest.get('key_schema', 1)}"
    made = IndexEntry(
        manifest["stage"],
        release,
        max(0, int(manifest["made_at"])),
        part_digests(manifest["explanation"]),
        manifest["key"],
    )
    return made if ENTRY_NAME.fullmatch(made.name) else None


def entry_names(manifests: Iterable[Manifest]) -> list[str]:
    """Return the names of the entries of some manifests."""
    return [entry.name for manifest in manifests if (entry := entry_of_manifest(manifest)) is not None]


def part_digests(explanation: Mapping[str, object]) -> tuple[str, ...]:
    """Return the digest of each part of a key."""
    return tuple(sha256(canonical_json(explanation.get(part))).hexdigest()[:12] for part in KEY_PARTS)


def canonical_json(value: Any) -> bytes:
    """Return a value as canonical JSON; a value of another release may have only plain JSON."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        return json.dumps(value, sort_keys=True).encode()
