"""The JSON documents of a store (``store/``), field by field: manifests, inventories, and the notes of leases.

They are typed dicts, and no models, because a plan reads thousands of manifests: ``manifests`` checks each one when it
is read, and all that follows are plain look-ups, whose names mypy checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NotRequired, TypedDict


class FileEntry(TypedDict):
    """One file of an artifact."""

    size: int
    """Bytes."""
    sha256: str


Inventory = Mapping[str, FileEntry]
"""The files of an artifact by their paths in it, with ``/``."""


class Manifest(TypedDict):
    """The description of one artifact, of this release or of another; see ``manifests.CheckedManifest``."""

    schema: int
    key_schema: NotRequired[int]
    key: str
    stage: str
    kind: str
    sha256: str
    """Digest of the inventory."""
    bytes: int
    facts: Mapping[str, object]
    """The facts of its stage; ``tasks/results/facts.py`` has a model for each kind."""
    inventory: Inventory
    explanation: Mapping[str, object]
    """Everything in its key, by name: a ``KeyExplanation`` if a stage of this release computed it."""
    made_at: float
    """Seconds since the epoch."""
    seconds: NotRequired[float]
    used: NotRequired[Mapping[str, object]]
    """Resources that its computation took: ``contracts.Used``, in a manifest whose seal is valid."""
    seal: NotRequired[str]


class LeaseNote(TypedDict, total=False):
    """A lease's note for people and for garbage collection. Another release may have written it."""

    host: str
    pid: int
    token: str
    stage: str
    key: str
    inputs: object
    """Digests of input artifacts by name; other types of values have no inputs."""


class UnfinishedUpload(TypedDict):
    """An interrupted upload, as S3 lists it."""

    Key: str
    UploadId: str
    Initiated: datetime
