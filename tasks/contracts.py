"""The artifacts that stage tasks exchange: small frozen values, an address and a digest, never a model or a tensor.

An artifact is deliberately not a dataclass or a pydantic model: Prefect inspects those and links tasks by the identity
of the strings in them, which draws false edges in the run graph. An attrs class is opaque to it, so only the artifact
itself is an edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, TypeVar

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
    "metric",
    "comparison",
    "speed",
    "contributions",
    "similarity",
    "shapes",
    "inspection",
    "registration",
    "export",
    "leaks",
)


class Used(TypedDict, total=False):
    """The resources that a stage took, as its meter recorded them (``tasks/stage/meter.py``); None is unknown, and a
    record of an older release lacks fields."""

    seconds: float | None
    machine_seconds: float | None
    """Its share of the machine's time, by the cores that it held."""
    held_seconds: float | None
    """Seconds times cores."""
    cpu_seconds: float | None
    peak_bytes: int | None
    threads: int | None
    processes: int | None
    cpu: str | None
    gpu: str | None
    gpus: int | None
    gpu_seconds: float | None
    gpu_joules: float | None
    cpu_joules: float | None
    model_bytes: int | None
    """Size of the largest model that it read: another stage takes as long only with a model of that size."""


class TrackedRun(TypedDict):
    """A run in MLflow as a worker elsewhere finds it, to log a stage below it."""

    experiment: str
    run: str
    number: int
    """The place of the stage among those of the run."""


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
    used: Used = attrs.field(factory=lambda: Used(), eq=False)
    """Resources that its computation took, for the ledger; empty if they were not recorded."""
    task_run: str = attrs.field(default="", eq=False)
    """Id of the Prefect task run that returned it in this flow run; empty for what no stage of the run returned."""

    def read(self, model: type[FactsModel]) -> FactsModel:
        """Return its facts as the model of its stage (``tasks/results/facts.py``).

        Raises pydantic's ValidationError for facts of another kind of stage, and in a plan for most.
        """
        return model.model_validate(self.facts)


StageInputs = Mapping[str, Artifact | list[Artifact] | None]
"""The inputs of a stage by name; None for one that it does without."""
