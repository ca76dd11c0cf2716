"""Manifests: the description of an artifact in a store, bound to its key and sealed.

The explanation in a manifest must hash to its key, and a seal (a digest over all its fields) detects edited values.
Manifests of other releases are read for maintenance only: they are never used as results, and never quarantined.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, cast

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from tasks.contracts import KINDS, Artifact, Used
from tasks.errors import ArtifactDamaged, StoreError
from tasks.ports.code.fingerprint import KEY_SCHEMA, key_of
from tasks.ports.store.artifacts import digest_of, is_safe, log, may_carry_code
from tasks.ports.store_documents import Inventory, Manifest

SCHEMA = 2


HEX = r"^[0-9a-f]{64}$"


NAMES_IN_USED = ("cpu", "gpu")
"""The fields of a meter that have text values; all others are numbers."""


def artifact_of(manifest: Manifest, uri: str) -> Artifact:
    """Return the artifact that a manifest describes; its location comes from the store, never from the manifest."""
    return Artifact(
        str(manifest["kind"]),
        str(manifest["sha256"]),
        uri,
        int(manifest["bytes"]),
        dict(manifest["facts"]),
        used_of(manifest),
    )


def used_of(manifest: Manifest) -> Used:
    """Return the resources that a result has used. Manifests of other releases have no valid seal, so only plain values
    are read."""
    plain = {
        name: value
        for name, value in manifest.get("used", {}).items()
        if is_figure(value) or name in NAMES_IN_USED and isinstance(value, str)
    }
    return cast(Used, {"seconds": manifest.get("seconds"), **plain})  # an older manifest has only the seconds


def is_figure(value: object) -> bool:
    """Return whether a value is a number, or None for an unknown one."""
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


class Entry(BaseModel):
    """One file of an artifact."""

    model_config = ConfigDict(strict=True, extra="forbid")
    size: int = Field(ge=0, lt=2**53)
    sha256: str = Field(pattern=HEX)


class CheckedManifest(BaseModel):
    """The fields of a manifest that maintenance reads, for all releases; the file is untrusted input."""

    model_config = ConfigDict(strict=True)
    schema_: int = Field(alias="schema")
    key: str = Field(pattern=HEX)
    stage: str
    kind: str
    sha256: str = Field(pattern=HEX)
    bytes: int = Field(ge=0)
    facts: dict[str, object]
    inventory: dict[str, Entry] = Field(min_length=1)
    explanation: dict[str, object]
    made_at: float = Field(allow_inf_nan=False)
    seconds: float = Field(0.0, allow_inf_nan=False)
    used: dict[str, object] = {}
    key_schema: int = 1
    seal: str = ""


def manifest_from(body: bytes, key: str) -> Manifest | None:
    """Return a manifest; None for one of another release that cannot be read here.

    Raises ArtifactDamaged with the problem if a manifest of this release is incomplete or does not belong to this key.
    """
    try:
        values = json.loads(body, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArtifactDamaged("its manifest is not JSON") from error
    foreign = isinstance(values, dict) and isinstance(values.get("schema"), int) and not is_of_this_release(values)
    try:
        CheckedManifest.model_validate(values)
    except (ValueError, RecursionError) as error:
        if foreign:
            return None
        raise ArtifactDamaged("its manifest lacks a field, or has one of a wrong type") from error
    problem = None if foreign else problem_of_manifest(values, key)
    if problem is not None:
        raise ArtifactDamaged(problem)
    manifest: Manifest = values
    return manifest if manifest["key"] == key else None


def is_of_this_release(manifest: Mapping[str, object]) -> bool:
    """Return whether a manifest has the schemas of this release; any other is never used as a result."""
    return manifest.get("schema") == SCHEMA and manifest.get("key_schema") == KEY_SCHEMA


def problem_of_manifest(manifest: Manifest, key: str) -> str | None:
    """Return the reason why a manifest with all its fields is not the one that was stored under a key, or None."""
    planted = [name for name in manifest["inventory"] if not is_safe(name) or may_carry_code(name)]
    if planted:
        return f"its manifest names {planted[0]!r}, which may contain code or lies outside the artifact"
    try:
        explained = key_of(manifest["explanation"])
        sealed = seal_of(manifest)
    except (StoreError, ValueError, RecursionError):
        return "its manifest has no canonical form"
    if not key == manifest["key"] == explained:
        return "its manifest belongs to another key"
    if manifest["explanation"].get("stage") != manifest["stage"]:
        return "its manifest belongs to another stage"
    size = sum(entry["size"] for entry in manifest["inventory"].values())
    if (
        digest_of(manifest["inventory"]) != manifest["sha256"]
        or size != manifest["bytes"]
        or manifest["kind"] not in KINDS
    ):
        return "its manifest contradicts itself"
    return "its manifest was edited" if manifest.get("seal") != sealed else None


def seal_of(manifest: Manifest) -> str:
    """Return the digest of all fields of a manifest except the seal itself."""
    return sha256(canonical_manifest({name: value for name, value in manifest.items() if name != "seal"})).hexdigest()


def canonical_manifest(values: Any) -> bytes:
    """Return a manifest, or a part of one, in the form in which it is stored and hashed."""
    return rfc8785.dumps(values)


def refuse_constant(name: str) -> Any:
    """Refuse NaN and infinity, which Python's JSON parser would accept."""
    raise ValueError(f"{name} is not JSON")


def manifest_to_list(body: bytes | None, key: str) -> Manifest | None:
    """Return a manifest for listings and maintenance, or None if it is damaged or missing."""
    try:
        return None if body is None else manifest_from(body, key)
    except ArtifactDamaged:
        return None


def manifest_to_take(body: bytes | None, key: str, set_aside: Callable[[str], None]) -> Manifest | None:
    """Return the manifest of a usable result, before a check of its files, or None; the log states the reason.

    A damaged manifest is quarantined. One of another release stays in place.
    """
    if body is None:
        return None
    try:
        manifest = manifest_from(body, key)
    except ArtifactDamaged as error:
        log.warning("stored result %s is damaged (%s); it is set aside and computed again", key[:12], error)
        set_aside(key)
        return None
    if manifest is not None and is_of_this_release(manifest):
        return manifest
    log.warning(
        "stored result %s was computed by another release of Limbeck: it is not used, and stays until limbeck gc",
        key[:12],
    )
    return None


def is_sound(manifest: Manifest, problem: str | None, fate: str) -> bool:
    """Return whether a result can be used; if not, log the problem and the ``fate`` of the result."""
    if problem is not None:
        log.warning(
            "stage %s: stored result %s is damaged (%s); it is %s",
            manifest["stage"],
            manifest["key"][:12],
            problem,
            fate,
        )
    return problem is None


def new_manifest(
    key: str,
    kind: str,
    digest: str,
    inventory: Inventory,
    facts: Mapping[str, object],
    stage: str,
    explanation: Mapping[str, object],
    seconds: float,
    used: Used | None = None,
) -> Manifest:
    """Return a manifest as plain JSON values; NaN and infinity raise ValueError here, not later."""
    size = sum(entry["size"] for entry in inventory.values())
    values: Manifest = {
        "schema": SCHEMA,
        "key_schema": KEY_SCHEMA,
        "key": key,
        "stage": stage,
        "kind": kind,
        "sha256": digest,
        "bytes": size,
        "facts": dict(facts),
        "inventory": inventory,
        "explanation": explanation,
        "made_at": time.time(),
        "seconds": round(seconds, 3),
        "used": {**(used or {})},
    }
    plain: Manifest = json.loads(json.dumps(values, allow_nan=False))
    return {**plain, "seal": seal_of(plain)}
