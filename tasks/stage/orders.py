"""The order for a stage that a remote worker computes: its knobs, its inputs by digest, and its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never, TypedDict

from attrs import evolve
from pydantic import BaseModel, ConfigDict, Field

from tasks.contracts import Artifact, StageInputs, TrackedRun
from tasks.errors import DispatchError, LimbeckError
from tasks.ports.code.fingerprint import KeyExplanation, differences
from tasks.ports.files.model_settings import architecture_fact
from tasks.ports.store.artifacts import Store
from tasks.ports.store.manifests import HEX
from tasks.ports.store.uploaded_sources import find_uploaded, upload_source
from tasks.recipe.running import STAGE_HOURS, THREADS_ALONE


class InputNote(BaseModel):
    """An input of a stage: its kind and its digest. The reader's own store knows where it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str = Field(title="Kind", description="Kind of the artifact: rows, a checkpoint, predictions.")
    sha256: str = Field(pattern=HEX, title="Digest", description="SHA-256 of its files, its address in the store.")
    bytes: int = Field(ge=0, title="Bytes", description="Size in bytes.")


class PlainNote(TypedDict):
    """An ``InputNote`` as a run sends it."""

    kind: str
    sha256: str
    bytes: int


class StageRequest(TypedDict):
    """The fields of a ``StageOrder`` that say which stage a run requests."""

    stage: str
    label: str
    knobs: dict[str, object]
    key: str
    inputs: dict[str, PlainNote | list[PlainNote]]
    explanation: KeyExplanation
    force: bool
    tracking: TrackedRun | dict[str, Never]


class OrderTerms(TypedDict, total=False):
    """The fields of a ``StageOrder`` that all orders of a run share."""

    store: str
    own_folder: bool
    """Whether the store is a folder that the environment does not name. It is not sent."""
    costs: dict[str, object]
    cores: int | None
    threads: int
    threads_alone: int
    processes: int
    stage_hours: float


class StageOrder(BaseModel):
    """One stage that a run requests: the arguments of its stage task, and the key that the worker must arrive at.
    Written by runs; people start recipes."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    stage: str = Field(title="Stage", description="The stage's name, for example finetune-teacher.")
    label: str = Field(
        "", title="Label", description="Label that distinguishes it from other stages of that name in its run."
    )
    knobs: dict[str, object] = Field(title="Knobs", description="The stage's slice of the recipe.")
    inputs: dict[str, InputNote | list[InputNote]] = Field(title="Inputs", description="The digests of its inputs.")
    key: str = Field(pattern=HEX, title="Key", description="Key of its result in the store.")
    explanation: dict[str, object] = Field(
        title="Explanation", description="Parts of the key; a worker that computes another key refuses the stage."
    )
    store: str = Field(title="Store", description="The address of the store that the run and the pool's workers share.")
    force: bool = Field(False, title="Force", description="Compute it although its result is cached.")
    costs: dict[str, object] = Field(
        default_factory=dict, title="Costs", description="Prices and factors of the ledger."
    )
    cores: int | None = Field(
        None,
        ge=1,
        title="Cores",
        description="Maximum number of cores used by stages at once; empty: all cores of the worker.",
    )
    threads: int = Field(
        1, ge=1, title="Threads", description="Threads of a stage that runs in parallel with others of its kind."
    )
    threads_alone: int = Field(
        THREADS_ALONE, ge=1, title="Threads alone", description="Threads of a stage on which all others depend."
    )
    processes: int = Field(
        1, ge=1, title="Processes", description="Processes that share a training, one per GPU of the worker."
    )
    stage_hours: float = Field(
        STAGE_HOURS, gt=0, title="Hours", description="Hours on the clock after which the stage is ended."
    )
    tracking: dict[str, str | int] = Field(
        default_factory=dict, title="Tracking", description="The MLflow run to which the stage belongs."
    )
    asked_by: str = Field("", title="Requested by", description="The flow run that requested it.")

    @property
    def display_name(self) -> str:
        """Return the stage's display name."""
        return f"{self.stage}/{self.label}" if self.label else self.stage


def require_expected(explanation: Mapping[str, object], expected: Mapping[str, object]) -> None:
    """Raise DispatchError if this worker would compute something else than the requested stage."""
    found = list(differences(explanation, expected))
    if found:
        raise DispatchError(
            f"this worker would compute another result than requested ({'; '.join(found[:3])}); install the same "
            f"code and libraries here and for the requesting run, and set LIMBECK_DISPATCH_DEVICE there to the class "
            f"of this pool's hardware"
        )


async def notes_of(store: Store, artifacts: StageInputs) -> dict[str, PlainNote | list[PlainNote]]:
    """Return the inputs of an order; the user's own sources are put into the store first."""
    return {
        name: [await note_of(store, one) for one in given] if isinstance(given, list) else await note_of(store, given)
        for name, given in artifacts.items()
        if given is not None
    }


async def note_of(store: Store, given: Artifact) -> PlainNote:
    """Return the note of one input."""
    if given.kind == "source":
        await upload_source(store, given)
    return {"kind": given.kind, "sha256": given.sha256, "bytes": given.bytes}


def artifacts_of(
    store: Store, inputs: Mapping[str, InputNote | list[InputNote]]
) -> dict[str, Artifact | list[Artifact]]:
    """Return the inputs of an order as artifacts of this worker's store."""
    return {
        name: [artifact_of(store, one) for one in given] if isinstance(given, list) else artifact_of(store, given)
        for name, given in inputs.items()
    }


def artifact_of(store: Store, note: InputNote) -> Artifact:
    """Return one input; raise DispatchError if this worker does not share the store of the requesting run."""
    missing = DispatchError(
        f"the input {note.sha256[:12]} is not in this worker's store: limbeck gc removed it meanwhile, and the "
        f"run makes it again if it is started again; or the store is another one, and a pool's workers and runs must "
        f"share one"
    )
    if note.kind == "source":
        found = find_uploaded(store, note.sha256)
        if found is None:
            raise missing
        return with_architecture(store, found)
    try:
        return with_architecture(store, Artifact(note.kind, note.sha256, "", note.bytes))
    except LimbeckError as error:
        raise missing from error


def with_architecture(store: Store, artifact: Artifact) -> Artifact:
    """Return an input with the fact that its key depends on, which does not travel with an order."""
    return evolve(artifact, facts={**artifact.facts, **architecture_fact(store.folder(artifact))})


def key_and_store(parameters: Mapping[str, object]) -> tuple[str, str]:
    """Return the key that a flow run computes, and the store that it uses."""
    order = parameters.get("order")
    return (str(order.get("key", "")), str(order.get("store", ""))) if isinstance(order, Mapping) else ("", "")


def tag_of(key: str) -> str:
    """Return the tag by which the flow runs of a key are found."""
    return f"key:{key[:16]}"


def named(order: StageRequest) -> str:
    """Return the display name of an order's stage."""
    return f"{order['stage']}/{order['label']}" if order["label"] else str(order["stage"])
