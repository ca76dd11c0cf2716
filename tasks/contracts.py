"""The artifacts that stage tasks exchange: small frozen values, an address and a digest, never a model or a tensor.

An artifact is deliberately not a dataclass or a pydantic model: Prefect inspects those and links tasks by the identity
of the strings in them, which draws false edges in the run graph. An attrs class is opaque to it, so only the artifact
itself is an edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import attrs
from pydantic import BaseModel

FactsModel = TypeVar("FactsModel", bound=BaseModel)

KINDS = (
    "source",
    "rows",
    "corpus",
    "checkpoint",
    "candidates",
    "answers",
    "signals",
    "scorecard",
    "comparison",
    "speed",
    "contributions",
    "similarity",
    "inspection",
    "registration",
    "export",
    "leaks",
)


@attrs.frozen
class Artifact:
    """The result of one stage, or an input of the user: its location and the digest of its bytes."""

    kind: str = attrs.field(validator=attrs.validators.in_(KINDS))
    sha256: str = attrs.field(validator=attrs.validators.matches_re(r"[0-9a-f]{64}"))
    """Digest of the inventory (path, size and sha256 of every file): the output digest that downstream keys use."""
    uri: str
    """Its location; never part of a key."""
    bytes: int
    facts: Mapping[str, object] = attrs.field(factory=dict, eq=False)
    """Small figures measured while it was computed (scores, counts), for gates and tables; never part of a key.
    They are empty in a plan, which has no figures."""
    used: Mapping[str, Any] = attrs.field(factory=dict, eq=False)
    """Resources that its computation took (seconds, CPU seconds, joules; see ``tasks/stage/meter.py``), for the ledger;
    empty if they were not recorded."""
    task_run: str = attrs.field(default="", eq=False)
    """Id of the Prefect task run that returned it in this flow run; empty for what no stage of the run returned."""

    def read(self, model: type[FactsModel]) -> FactsModel:
        """Return its facts as the model of its stage (``tasks/results/facts.py``).

        Raises pydantic's ValidationError for facts of another kind of stage, and in a plan for most.
        """
        return model.model_validate(self.facts)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for manifests and reports."""
        return {
            "kind": self.kind,
            "sha256": self.sha256,
            "uri": self.uri,
            "bytes": self.bytes,
            "facts": dict(self.facts),
        }


def artifact_from_json(values: Mapping[str, Any]) -> Artifact:
    """Read an artifact back from ``Artifact.as_json``."""
    return Artifact(**{name: values[name] for name in ("kind", "sha256", "uri", "bytes", "facts")})
