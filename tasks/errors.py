"""The tree of errors. Every message states the given value, the legal values, and a remedy.

LimbeckError                 the user sees one sentence and a non-zero exit status
├── RecipeError              a recipe or a command requests something that is not legal
├── DataError                rows or texts do not fit the task
├── ModelError               a model, tokenizer or checkpoint cannot be used for its purpose
├── StoreError               the store cannot be read or written
│   ├── ArtifactDamaged      an artifact is missing, or does not match its digest
│   ├── LeaseTaken           another worker is already computing this
│   └── LeaseLost            another worker took over while this one was still computing
├── GateError                a model does not reach a floor that the recipe sets
├── BudgetError              a run would spend, or has spent, more than the recipe allows
├── DispatchError            a stage cannot be sent to a remote worker, or its result cannot be fetched
│   └── NoWorker             no worker of the pool is alive
├── EngineError              a stage stopped half-way
│   ├── OutOfMemory          the machine's memory ran out
│   ├── TooLong              a stage exceeded its limit on the clock
│   └── Interrupted          a person or a scheduler asked the stage to stop
├── RegistryError            the tracker or the model registry refused
│   └── EvaluationChanged    a registered evaluation is not the one that was judged
├── ServerError              a Prefect server is unavailable, or refuses
└── StackError               the servers of this machine cannot be started, reached, saved or restored
"""

from __future__ import annotations


class LimbeckError(Exception):
    """Any error that a user can fix; the command line prints only the message."""


class RecipeError(LimbeckError):
    """A recipe or a command requests something that is not legal."""


class DataError(LimbeckError):
    """Rows or texts do not fit the task."""


class MissingColumn(DataError):
    """A table does not have a column that is read."""


class ModelError(LimbeckError):
    """A model, a tokenizer or a checkpoint cannot be used where it was named."""


class StoreError(LimbeckError):
    """The store cannot be read or written."""


class ArtifactDamaged(StoreError):
    """An artifact is missing, or does not match its digest."""


class LeaseTaken(StoreError):
    """Another worker is already computing this; the caller waits for it, or does something else."""


class LeaseLost(StoreError):
    """Another worker took the stage over; this worker's result is not published."""


class GateError(LimbeckError):
    """A model does not reach a floor that the recipe sets."""


class BudgetError(LimbeckError):
    """A run would spend, or has spent, more than the recipe allows; finished stages are kept."""


class DispatchError(LimbeckError):
    """A stage cannot be sent to a remote worker, or its result cannot be fetched."""


class NoWorker(DispatchError):
    """No worker of the pool for GPU stages is alive; the run computes its stages itself, or stops."""


class EngineError(LimbeckError):
    """A stage stopped half-way; nothing of it was published."""


class OutOfMemory(EngineError):
    """The machine's memory ran out."""


class TooLong(EngineError):
    """A stage exceeded its limit on the clock; its process was ended, and its last checkpoint stays."""


class Interrupted(EngineError):
    """A person or a scheduler asked the stage to stop."""


class RegistryError(LimbeckError):
    """The tracker or the model registry refused."""


class EvaluationChanged(RegistryError):
    """A registered evaluation differs in its bytes from the one that was judged; no model is promoted on it."""


class ServerError(LimbeckError):
    """A Prefect server is unavailable, or refuses."""


class StackError(LimbeckError):
    """The servers of this machine cannot be started, reached, saved or restored."""


BY_NAME: dict[str, type[LimbeckError]] = {
    kind.__name__: kind
    for kind in (
        LimbeckError,
        RecipeError,
        DataError,
        ModelError,
        StoreError,
        ArtifactDamaged,
        LeaseTaken,
        LeaseLost,
        GateError,
        BudgetError,
        DispatchError,
        NoWorker,
        EngineError,
        OutOfMemory,
        TooLong,
        Interrupted,
        RegistryError,
        EvaluationChanged,
        ServerError,
        StackError,
    )
}
"""The error classes by name, so that an error of the engine's process is raised in ours with its own class."""
