"""The declaration of a stage, and its key: everything that can change its result, by name.

Only a verified manifest under that key is a hit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.contracts import Artifact, StageInputs
from tasks.engine.environment import NUMERIC, environment
from tasks.modeling import registration
from tasks.modeling.names import OWN_TYPES
from tasks.ports.code.fingerprint import (
    KEY_SCHEMA,
    ComputedBy,
    KeyExplanation,
    code_digest,
    key_of,
    library_versions,
)
from tasks.ports.code.narrowing import ARCHITECTURES
from tasks.ports.code.program import Root
from tasks.ports.machine import cpu_class, device_class, hardware
from tasks.recipe.knobs import Knobs
from tasks.stage.session import Session, StageRecord

Body = Callable[..., Awaitable[None]]


WITHOUT_A_MODEL = {"tokenize", "mix", "learn-vocabulary", "sentences", "generation-config"}
"""Jobs of the training engine that run no model. Declared here and not in the stage tasks, because a stage task's
decorator is part of its key."""


OTHER_RELEASE = "results of another release of Limbeck are not used"


TOKENIZERS = ("tokenizers", "sentencepiece")
"""Libraries that read a tokenizer's files."""


ENGINE_LIBRARIES = ("torch", "transformers", *TOKENIZERS, "safetensors", "numpy", "pyarrow")
"""Libraries with which the training engine computes, and reads and writes its files."""


OF_WRITTEN_TEXTS = ("nltk", "sacrebleu")
"""Libraries by which written texts are judged, and which no stage of another task loads."""
WRITTEN_TEXTS = {"seq2seq", "bleu", "chrf", "rouge_1", "rouge_2", "rouge_l", "rouge_lsum"}
"""The task type and the metrics of such texts, one of which is among the knobs of each stage that judges them."""


OWN_MODELS: dict[str, Root] = dict.fromkeys(OWN_TYPES, (registration.__name__, "register_classes", None))
"""Architectures whose models are classes of this package: transformers finds them by the name in a folder's config, so
no stage mentions them."""


UNKNOWN = "0" * 64
"""The digest of an artifact that a plan cannot know, because its stage would run first."""


@dataclass(frozen=True)
class StageSpec:
    """The declaration of a stage."""

    name: str
    makes: str
    body: Body
    engine: str | None
    module: str
    threads: str
    libraries: tuple[str, ...]
    hardware: bool
    distributed: bool

    @property
    def device(self) -> str:
        """The class of hardware on which its engine computes here."""
        return device_class() if self.on_gpu else cpu_class()

    @property
    def on_gpu(self) -> bool:
        """Whether its engine runs models on a GPU, if there is one; scoring and exports always run on the CPU."""
        return self.module == "tasks.training" and self.engine is not None and self.engine not in WITHOUT_A_MODEL

    @property
    def roots(self) -> tuple[Root, ...]:
        """Entry points of the code that determines its result: the function itself, its engine's job, and the set-up of
        the engine."""
        own = (self.body.__module__, self.body.__name__, None)
        if self.engine is None:
            return (own,)
        set_up = [(f"{self.module}.__main__", "main", None), (environment.__module__, environment.__name__, None)]
        return own, (f"{self.module}.jobs", "JOBS", self.engine), *set_up


def roots_for(spec: StageSpec, architectures: Sequence[str] | None) -> tuple[Root, ...]:
    """Return the entry points of a stage's code with models of these architectures; None: they are not known yet, and
    may be any."""
    if spec.engine is None or spec.engine in WITHOUT_A_MODEL:
        return spec.roots
    named = OWN_MODELS if architectures is None else architectures
    return (*spec.roots, *(OWN_MODELS[one] for one in named if one in OWN_MODELS))


def is_sent(spec: StageSpec, session: Session) -> bool:
    """Tell whether a remote worker computes a stage."""
    return session.dispatcher is not None and spec.on_gpu


def new_record(spec: StageSpec, session: Session, label: str, explanation: KeyExplanation) -> StageRecord:
    """Add a stage to the run's list."""
    record = StageRecord(
        spec.name,
        label,
        key_of(explanation),
        spec.makes,
        explanation,
        number=len(session.records),
        threads=session.threads_for(spec.threads),
    )
    record.processes = session.processes if spec.distributed else 1
    record.cores = session.cores if spec.hardware else min(session.cores, record.threads * record.processes)
    session.records.append(record)
    return record


def key_explanation(spec: StageSpec, session: Session, knobs: Knobs, artifacts: StageInputs) -> KeyExplanation:
    """Return everything in a stage's key, by name, so that two keys can be compared field by field."""
    values = knobs.key_values()
    models = architectures_of(artifacts)
    beside = {} if models is None else {ARCHITECTURES: models}
    explanation: KeyExplanation = {
        "schema": KEY_SCHEMA,
        "stage": spec.name,
        "code": code_digest(roots_for(spec, models), {**values, **beside}),
        "knobs": values,
        "inputs": {name: digests(artifact) for name, artifact in artifacts.items() if artifact is not None},
        "libraries": library_versions((*spec.libraries, *further_libraries(values))),
    }
    if models:
        explanation["architectures"] = models
    return {**explanation, **computed_by(spec, session)} if spec.engine is not None else explanation


def further_libraries(values: Any) -> tuple[str, ...]:
    """Return the libraries that a stage needs for its task alone, from the values of its knobs."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return OF_WRITTEN_TEXTS if any(map(further_libraries, values)) else ()
    return OF_WRITTEN_TEXTS if isinstance(values, str) and values in WRITTEN_TEXTS else ()


def architectures_of(artifacts: StageInputs) -> list[str] | None:
    """Return the architectures of a stage's models; None where that of one is not known, as in a plan: then the code of
    all of them counts."""
    lists = (each if isinstance(each, list) else [each] for each in artifacts.values() if each is not None)
    given = [one for each in lists for one in each]
    if any(one.kind in ("checkpoint", "export") and "architecture" not in one.facts for one in given):
        return None
    return sorted({str(one.facts["architecture"]) for one in given if "architecture" in one.facts})


def computed_by(spec: StageSpec, session: Session) -> ComputedBy:
    """Return the part of the key that affects an engine's numbers: device, environment, threads, processes, hardware.
    Stages without an engine read and count rows, with the same result everywhere."""
    sent_to = session.dispatcher if spec.on_gpu else None
    found: ComputedBy = {
        "device": spec.device if sent_to is None else sent_to.device,
        "environment": NUMERIC,
    }
    if spec.threads != "single":
        found["threads"] = session.threads_for(spec.threads)
    if spec.distributed and session.processes > 1:
        found["processes"] = session.processes
    if spec.hardware:
        found["hardware"] = hardware()
    return found


def digests(artifact: Artifact | Sequence[Artifact]) -> str | list[str]:
    """Return the output digests of an input: one artifact, or a list."""
    return artifact.sha256 if isinstance(artifact, Artifact) else [one.sha256 for one in artifact]
