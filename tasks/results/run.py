"""The results of one run: its rows and decisions, as stored in ``results.json``, ``--json`` and MLflow.

``RunResult.model_validate`` is the only reader, ``RunResult.as_json`` the only writer. Only fields that every release
wrote are required, so that a run of an older release can still be displayed and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NotRequired, TypedDict

from pydantic import BeforeValidator, ConfigDict

from tasks.results.facts import HeldBackFacts
from tasks.results.record import Ledger, Lineage, Provenance, RunManifest
from tasks.results.row import Number, ResultRow, Stated, Verdict
from tasks.results.search import SearchResult
from tasks.results.teacher_layers import TeacherLayers
from tasks.results.trials import TrialsResult


def listed(aliases: object) -> object:
    """Return aliases as a list: older releases wrote one string, with commas between several aliases."""
    if isinstance(aliases, str):
        return [one.strip() for one in aliases.split(",")]
    return aliases


def counted(rows: object) -> object:
    """Return the numbers of rows by split: older releases wrote null if none were counted."""
    return {} if rows is None else rows


class StageLine(Stated):
    """One stage of a run; ``seconds`` is its duration in this run."""

    name: str
    label: str = ""
    state: str = ""
    cache: str = ""
    seconds: Number = 0.0
    key: str = ""


class Registered(Stated):
    """One registered candidate: its version, the gate's decision, and its aliases."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str = ""
    version: str = ""
    candidate: str
    new: bool = False
    alias: tuple[str, ...] | str | None = None
    aliases: Annotated[tuple[str, ...] | None, BeforeValidator(listed)] = None
    verdict: Verdict = None
    decision: str = ""
    reasons: tuple[str, ...] = ()
    closest: bool = False
    outcome: str = ""
    why: str = ""


class Champion(Stated):
    """The version with the alias champion after a run."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    version: str
    candidate: str = ""


class StoredOutcome(Stated):
    """The outcome for one version, with its reason."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    version: str
    outcome: str = ""
    reason: str = ""


class Promotion(Stated):
    """The changes of aliases after a run or a person's request, and the champion."""

    moves: dict[str, str | None] = {}
    aliases: dict[str, str] = {}
    champion: Champion | None = None
    news: bool = False
    words: tuple[StoredOutcome, ...] = ()


class RunResult(Stated):
    """The results of a finished run."""

    recipe: str
    task: str
    task_type: str = ""
    """The type of the task; empty in results of older releases."""
    headline: str
    split: str
    rows: Annotated[dict[str, int], BeforeValidator(counted)] = {}
    """Rows by split."""
    synthetic: bool = False
    stages: tuple[StageLine, ...] = ()
    models: tuple[ResultRow, ...]
    """One row per model; the teacher first."""
    registered: tuple[Registered, ...] = ()
    promotion: Promotion | None = None
    links: dict[str, str] | None = None
    ledger: Ledger | None = None
    labels: tuple[str, ...] | None = None
    held_back: HeldBackFacts | None = None
    teacher_layers: tuple[TeacherLayers, ...] = ()
    """Whether the teacher's inner layers were stored, by layer map; empty if no student learned from them."""
    search: SearchResult | None = None
    """The search that chose the candidates; None for a run of a recipe as it is."""
    trials: TrialsResult | None = None
    """The search over recipes that chose the candidates."""
    manifest: RunManifest | None = None
    run: str | None = None
    """Id of the run in MLflow."""
    confidence: Number | None = None
    made: Provenance | None = None
    lineage: Lineage | None = None
    licences: tuple[dict[str, str], ...] | None = None
    texts: str | None = None
    """The file of texts in the suggested commands for the registered model."""

    @property
    def chosen_by(self) -> SearchResult | TrialsResult | None:
        """The search that chose the candidates, over shapes or over recipes."""
        return self.search or self.trials


# --- cards ------------------------------------------------------------------------------------------------------------


class Licence(TypedDict):
    """A source of a run's models with its licence, as stated in the recipe."""

    what: str
    source: str
    licence: str


class SourceFacts(TypedDict):
    """The facts on the sources of a run's models, for their cards."""

    licences: Sequence[Licence]
    teacher_licence: str
    teacher: str
    synthetic: bool
    digests: Mapping[str, str]
    """Digests of the sources, by name."""
    rows: Mapping[str, int]
    """Rows by split."""
    held_back: NotRequired[HeldBackFacts]


class CardFacts(SourceFacts):
    """The same with the registered model's name, and the id of the run in MLflow."""

    registered: str
    run: str


class RunDescription(TypedDict):
    """The provenance of a run's models, for their registration."""

    teacher: str
    data: SourceFacts
    versions: Mapping[str, str]
    """Versions of libraries, by name."""
    stages: Sequence[StageLine]
