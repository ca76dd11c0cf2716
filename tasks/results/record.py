"""The record of a run beside its figures: the ledger of its costs, the graph of its stages, its provenance, and the
manifest by which another run is compared with it.

Everything may be missing: results of older releases lack parts, and keep others under older names.
"""

from __future__ import annotations

from pydantic import Field

from tasks.results.row import Amount, Cost, Number, Stated
from tasks.results.teacher_layers import TeacherLayers

# --- ledger -----------------------------------------------------------------------------------------------------------

UNKNOWN_AMOUNT = Amount(value=None, how="unknown")
UNKNOWN_COST = Cost()


class StageCost(Stated):
    """The cost of one stage of a run; of a cached one, that of its original computation."""

    stage: str = ""
    state: str = ""
    cache: str = ""
    ran: bool = False
    cost: Cost | None = None
    used: dict[str, Number | str | None] = {}
    """The resources that it took; see ``tasks/stage/meter.py``."""

    @property
    def display_name(self) -> str:
        """The name of the stage; older releases wrote it in two parts."""
        older = self.model_extra or {}
        return self.stage or str(older.get("shown") or f"{older.get('name', '')} {older.get('label', '')}".strip())

    @property
    def figures(self) -> Cost:
        """Its cost; older releases wrote the figures beside the name."""
        older = self.model_extra or {}
        return self.cost or Cost.model_validate({part: older[part] for part in Cost.model_fields if part in older})


class Billed(Stated):
    """The price of the whole machine for the wall-clock time of a run, or of all machines that computed its stages."""

    hours: Amount
    dollars_on_demand: Amount
    dollars_spot: Amount


class Basis(Stated):
    """The rates behind the costs; None is unknown."""

    market: str = "on-demand"
    instance: str | None = None
    region: str | None = None
    kg_per_kwh: Number | None = None
    grid: str | None = None
    pue: Number = 1.0
    prices: dict[str, Number | str | None] | None = None


class Ledger(Stated):
    """The costs of a run, stage by stage, and the savings by its cache."""

    stages: tuple[StageCost, ...] = ()
    total: Cost = UNKNOWN_COST
    saved: Cost = UNKNOWN_COST
    billed: Billed | None = None
    basis: Basis | None = None
    budget: dict[str, Number | None] = {}
    warnings: tuple[str, ...] = ()


class StagePlan(Stated):
    """One stage of a plan: whether it is cached, why, and its estimated cost."""

    stage: str
    cache: str
    why: str
    seconds: Number | None = None
    cost: Cost


class PlannedRun(Stated):
    """The stages of a planned run, their estimated cost and the savings by the cache."""

    stages: tuple[StagePlan, ...]
    total: Cost
    saved: Cost
    refused: str = ""
    """The reason if the budget is too small; empty if it suffices."""
    warnings: tuple[str, ...] = ()
    teacher_layers: tuple[TeacherLayers, ...] = ()
    """Whether the teacher's inner layers would be stored, by layer map."""

    @property
    def missing(self) -> tuple[StagePlan, ...]:
        """The stages that would run."""
        return tuple(stage for stage in self.stages if stage.cache == "miss")


# --- stages as a graph ------------------------------------------------------------------------------------------------


class LineageNode(Stated):
    """A stage or a source of a run."""

    id: str
    name: str
    label: str = ""
    cache: str = ""
    made: str = ""
    """The digest of its artifact."""


class Lineage(Stated):
    """The stages and sources of a run, and for each stage an edge from everything that it reads."""

    nodes: tuple[LineageNode, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()


# --- provenance -------------------------------------------------------------------------------------------------------

NamedFacts = dict[str, Number | str | bool | None | list[str]] | str
"""Facts by name; one text in older results."""


class Provenance(Stated):
    """How a result was made."""

    teacher: str = ""
    date: str = ""
    command: str | None = None
    commit: str | None = None
    versions: NamedFacts = {}
    hardware: NamedFacts = {}
    minutes: dict[str, Number] = {}
    """Minutes that the run took (``run``), and that its cached stages took at first (``cached``)."""


class CodeState(Stated):
    """The identity of the code: release, commit, whether files differ from it (None if unknown), and a digest of the
    sources."""

    version: str | None = None
    commit: str | None = None
    changed: bool | None = None
    sha256: str = ""


class SourceDigest(Stated):
    """The digest and the size of one external source."""

    sha256: str
    bytes: int = 0


class ManifestStage(Stated):
    """Everything that determines the output of one stage, and the digest of that output."""

    stage: str
    key: str
    sha256: str | None = None
    cache: str = ""
    threads: int | None = None
    processes: int | None = None
    measured: bool = False
    """Whether it is a measurement, whose output is never the same twice."""
    explanation: dict[str, object] = {}
    """The parts of its key, by name."""


class ManifestModel(Stated):
    """The digest of one model's weights, and its headline score."""

    checkpoint: str | None = None
    headline: str = ""
    score: Number | None = None


class RunManifest(Stated):
    """Everything that determines the outputs of a run, and the digests of these outputs."""

    schema_: int = Field(1, alias="schema")
    kind: str = "run"
    recipe: dict[str, object] = {}
    code: CodeState = CodeState()
    sources: dict[str, SourceDigest] = {}
    versions: dict[str, str] = {}
    seeds: dict[str, object] = {}
    hardware: dict[str, Number | str | None] = {}
    stages: tuple[ManifestStage, ...] = ()
    models: dict[str, ManifestModel] = {}


class StageComparison(Stated):
    """The digests of one stage in two runs, the verdict on them, and its reason."""

    stage: str
    then: str | None = None
    now: str | None = None
    verdict: str
    why: str = ""


class ScoreComparison(Stated):
    """The headline scores of one model in two runs, and their difference in points."""

    model: str
    headline: str
    then: Number | None = None
    now: Number | None = None
    points: float | None = None


class Reproduction(Stated):
    """The comparison of a run with an earlier one."""

    run: str = ""
    """Id of the earlier run."""
    sources: tuple[str, ...] = ()
    """Messages on sources that have changed since."""
    equal: bool
    stages: tuple[StageComparison, ...]
    surroundings: tuple[str, ...] = ()
    """Differences of versions, machines and code."""
    scores: tuple[ScoreComparison, ...] = ()


# --- page -------------------------------------------------------------------------------------------------------------


class AboutRun(Stated):
    """The content of a page beside the figures."""

    run: str | None = None
    """Id of the run in MLflow."""
    confidence: Number
    made: Provenance
    lineage: Lineage
    licences: tuple[dict[str, str], ...] = ()
    texts: str | None = None
    """The file of texts in the suggested commands."""
