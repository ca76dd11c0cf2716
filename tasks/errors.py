"""What can go wrong, as a tree. Every message says what was given, what is legal, and what to do.

LimbeckError                 the user sees one sentence and a non-zero exit
├── RecipeError              a recipe or a command asks for something that is not legal
├── DataError                rows or texts that do not fit the task
├── ModelError               a model, tokenizer or checkpoint that cannot serve
├── StoreError               the store cannot be read or written
│   ├── ArtifactDamaged      an artifact is gone, or is not what its name says
│   ├── LeaseTaken           another worker is computing this already
│   └── LeaseLost            another worker took over while this one was still computing
├── GateError                a model does not clear a floor that the recipe sets
├── BudgetError              a run would spend, or has spent, more than the recipe allows
├── DispatchError            a stage cannot be handed to a worker elsewhere, or taken back from it
├── EngineError              a stage stopped half-way
│   ├── OutOfMemory          the machine's memory ran out
│   └── Interrupted          a person or a scheduler asked the stage to stop
├── RegistryError            the tracker or the model registry refused
│   └── EvaluationChanged    a registered evaluation is not the one that was judged
├── ServerError              a Prefect server is not there, or refuses
└── StackError               the servers of this machine cannot be started, asked, saved or restored
"""

from __future__ import annotations


class LimbeckError(Exception):
    """Anything that a user can mend; the command line prints the message alone."""


class RecipeError(LimbeckError):
    """A recipe or a command asks for something that is not legal."""


class DataError(LimbeckError):
    """Rows or texts do not fit the task."""


class ModelError(LimbeckError):
    """A model, a tokenizer or a checkpoint cannot serve where it was named."""


class StoreError(LimbeckError):
    """The store cannot be read or written."""


class ArtifactDamaged(StoreError):
    """An artifact is gone, or is not what its name says."""


class LeaseTaken(StoreError):
    """Another worker is computing this already; it is waited for, or something else is done."""


class LeaseLost(StoreError):
    """Another worker took the stage over; what this one made is not published."""


class GateError(LimbeckError):
    """A model does not clear a floor that the recipe sets."""


class BudgetError(LimbeckError):
    """A run would spend, or has spent, more than the recipe allows; what it finished stays."""


class DispatchError(LimbeckError):
    """A stage cannot be handed to a worker elsewhere, or what it made cannot be taken back."""


class EngineError(LimbeckError):
    """A stage stopped half-way; nothing of it was published."""


class OutOfMemory(EngineError):
    """The machine's memory ran out."""


class Interrupted(EngineError):
    """A person or a scheduler asked the stage to stop."""


class RegistryError(LimbeckError):
    """The tracker or the model registry refused."""


class EvaluationChanged(RegistryError):
    """A registered evaluation is not, byte for byte, the one that was judged; nobody is promoted on it."""


class ServerError(LimbeckError):
    """A Prefect server is not there, or refuses."""


class StackError(LimbeckError):
    """The servers of this machine cannot be started, asked, saved or restored."""


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
        EngineError,
        OutOfMemory,
        Interrupted,
        RegistryError,
        EvaluationChanged,
        ServerError,
        StackError,
    )
}
"""The tree by name, so that an error crosses from the engine's process to ours as itself."""
