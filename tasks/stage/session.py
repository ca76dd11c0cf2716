"""State of one run of one flow, as its stages see it: the store, the tracker, the watcher, and the cores to share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasks.contracts import Artifact, TrackedRun, Used
from tasks.engine.fork_server import ForkServer
from tasks.ports.code.fingerprint import KeyExplanation
from tasks.ports.store.artifacts import Store
from tasks.ports.store.index.earlier import EarlierResults
from tasks.recipe.running import STAGE_HOURS, THREADS_ALONE
from tasks.results.teacher_layers import TeacherLayers
from tasks.scoring.costs.rates import Rates
from tasks.stage.budget import RunBudget
from tasks.stage.meter import Machine, Meter
from tasks.stage.orders import StageRequest

PLAN_TRUST_SECONDS = 30.0  # seconds for which a run trusts its plan on the contents of the store


@dataclass
class StageRecord:
    """The record of one stage of a run."""

    number: int = field(kw_only=True)
    """Its place among the stages of the session, from 0: two stages may agree in everything else, key and label
    included."""
    name: str
    label: str
    key: str
    kind: str
    explanation: KeyExplanation
    state: str = "pending"
    cache: str = "miss"
    why: str = ""
    seconds: float = 0.0
    estimate: float | None = None
    used: Used = field(default_factory=lambda: Used())
    """Its resources; of a cached stage, those of its original computation."""
    likely: Used = field(default_factory=lambda: Used())
    """The resources of a similar earlier stage, with a model of that size; empty where there is none."""
    model_bytes: int | None = None
    """Size of the largest model that it reads; None where it reads none, and 0 where the size is not known."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The known figures of its cost, by their names in MLflow."""
    meter: Meter | None = None
    """The meter of a running stage."""
    sent: float | None = None
    """When another machine began to compute it, on the monotonic clock."""
    silence: asyncio.Timeout | None = None
    """The time by which the engine of a running stage has to report something."""
    threads: int = 1
    processes: int = 1
    cores: int = 1
    """Cores that it holds while it is computed: at most those of the run, even if it has more threads."""
    artifact: Artifact | None = None
    task_run: str = ""

    @property
    def display_name(self) -> str:
        """Return the stage's display name."""
        return f"{self.name}/{self.label}" if self.label else self.name


class StageTracker(Protocol):
    """Records the stages of a run."""

    def lend_run(self) -> TrackedRun:
        """Reserve the next number of a stage for a worker elsewhere; return it with experiment and run."""

    def stage_started(self, record: StageRecord) -> None:
        """Note that a stage is under way."""

    def stage_finished(self, record: StageRecord) -> None:
        """Note that a stage has its result."""

    def stage_failed(self, record: StageRecord, error: str, killed: bool) -> None:
        """Note that a stage has none; ``killed`` where it was stopped from outside."""

    def curve(self, record: StageRecord, step: int, figures: Mapping[str, float]) -> None:
        """Note figures of a training at a step."""

    def url_of_stage(self, record: StageRecord) -> str | None:
        """Return the address of a stage's page; None where there is no server."""


class StageWatcher(Protocol):
    """Shows the stages of a run while they go on."""

    def note(self, words: str) -> None:
        """Show a sentence about the run as a whole."""

    def stage(self, record: StageRecord) -> None:
        """Show a stage's new state."""

    def progress(self, record: StageRecord, done: int, total: int, unit: str, figures: Mapping[str, float]) -> None:
        """Show how far a stage is."""

    def log(self, record: StageRecord, message: str) -> None:
        """Show a sentence of a stage."""


class StageDispatcher(Protocol):
    """Requests stages from workers elsewhere."""

    @property
    def device(self) -> str:
        """The class of their hardware, which is part of keys."""

    @property
    def required(self) -> bool:
        """Whether a run stops if no worker is alive; otherwise it makes its stages itself."""

    async def make(self, order: StageRequest, tell: Callable[[str, str], None]) -> bool:
        """Have one stage made; tell whether it was made for this run."""


class Cores:
    """Shares cores among stages, first come, first served. A stage's threads never depend on them, because results
    depend on threads."""

    def __init__(self, total: int) -> None:
        self.total, self.free = total, total
        self.turn = asyncio.Condition()
        self.queue: list[object] = []

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Wait for ``count`` cores and hold them."""
        me = object()
        async with self.turn:
            self.queue.append(me)
            try:
                await self.turn.wait_for(lambda: self.queue[0] is me and self.free >= count)
                self.free -= count
            finally:
                self.queue.remove(me)
                self.turn.notify_all()
        try:
            yield
        finally:
            async with self.turn:
                self.free += count
                self.turn.notify_all()


@dataclass
class Session:
    """The state of one run."""

    store: Store
    cores: int
    threads: int = 1
    """Threads of a stage that runs in parallel with similar ones."""
    threads_alone: int = THREADS_ALONE
    """Threads of a stage that all others wait for."""
    tracker: StageTracker | None = None
    watcher: StageWatcher | None = None
    force: frozenset[str] = frozenset()
    planning: bool = False
    records: list[StageRecord] = field(default_factory=list)
    made_by: dict[str, object] = field(default_factory=dict)
    """The Prefect state behind each artifact of this run, by the id of its task run."""
    plan: Session | None = None
    """A plan of the same recipe, made just before."""
    processes: int = 1
    """Processes that share one training. Results agree up to the order of sums and the draw of dropout."""
    budget: RunBudget | None = None
    """The run's budget; None if nothing is counted."""
    dispatcher: StageDispatcher | None = None
    """Requests stages for a GPU from remote workers; None if this machine computes them itself."""
    placed: str = ""
    """One sentence on the place of such stages, for a plan."""
    expected: Mapping[str, object] | None = None
    """The required explanation of this session's only stage, on a worker that computes it for another run."""
    engines: ForkServer | None = None
    """The fork server of the engines; None if each is started as a new process."""
    stage_hours: float = STAGE_HOURS
    """Hours on the clock after which a stage is ended."""
    silent_minutes: float = 0.0
    """Minutes without a report of its engine after which a stage is ended as one that hangs; 0: no limit."""
    gpu_limit: str = ""
    """The global concurrency limit of which a stage for a GPU takes slots while it computes; empty: none."""
    teacher_layers: list[TeacherLayers] = field(default_factory=list)
    """The choices of this run to store the teacher's inner layers, or not."""
    vocabulary: int | None = None
    """The number of words among which the teacher answers; None while its model is not known."""

    def __post_init__(self) -> None:
        self.slots = Cores(self.cores)
        self.machine = Machine(shared=bool(self.expected))
        self.opened = time.monotonic()
        self.earlier: EarlierResults = self.plan.earlier if self.plan else EarlierResults(self.store)
        self.found = {record.key: record.artifact for record in self.plan.records} if self.plan else {}

    def just_found(self, key: str) -> Artifact | None:
        """Return the artifact that the plan found and verified a moment ago, so that a remote store is not read twice.
        Later it could be deleted."""
        return self.found.get(key) if time.monotonic() - self.opened < PLAN_TRUST_SECONDS else None

    def taken(self) -> list[Used]:
        """Return the resources of every stage that this run computed, of running ones up to now."""
        self.machine.close_slice()
        return [self.taken_by(record) for record in self.records if record.cache == "miss"]

    def taken_by(self, record: StageRecord) -> Used:
        """Return the resources of a stage; of one on another machine that has not ended, the time since it began."""
        if record.meter is not None:
            return record.meter.used(self.machine, self.machine.looked)
        if record.sent is not None and record.state == "running":
            seconds = time.monotonic() - record.sent
            return {"seconds": seconds, "machine_seconds": seconds}
        return record.used

    @property
    def rates(self) -> Rates:
        """The prices and factors that costs are computed with; the defaults where nobody counts."""
        return Rates() if self.budget is None else self.budget.rates

    def require_plan(self) -> None:
        """Refuse a plan that would take more than the budget, where there is one. Raises BudgetError."""
        if self.budget is not None:
            self.budget.require_plan([record.likely for record in self.records if record.cache == "miss"])

    def threads_for(self, how: str) -> int:
        """Return the threads of a stage: from the recipe, never from the machine, because another number changes the
        bytes of results."""
        return {"single": 1, "branch": self.threads, "alone": self.threads_alone}[how]

    def state_of(self, artifact: Any) -> Any:
        """Return the Prefect state of the task run that an artifact came from; what came from none is returned as it
        is."""
        return self.made_by.get(artifact.task_run, artifact) if isinstance(artifact, Artifact) else artifact

    def artifact_of(self, name: str, label: str) -> Artifact | None:
        """Return the artifact of a finished stage of this run."""
        found = [record.artifact for record in self.records if (record.name, record.label) == (name, label)]
        return found[-1] if found else None

    def used_by(self, name: str, label: str) -> Used:
        """Return the resources of a stage of this run, now or at its original computation."""
        found = [record.used for record in self.records if (record.name, record.label) == (name, label)]
        return found[-1] if found else {}

    def is_guess(self, artifact: Artifact) -> bool:
        """Tell whether an artifact is a plan's placeholder for a result that does not exist yet."""
        return self.planning and artifact.kind != "source" and not artifact.uri

    def tell(self, record: StageRecord) -> None:
        """Report a stage's new state to the watcher."""
        if self.watcher is not None:
            self.watcher.stage(record)


CURRENT: ContextVar[Session | None] = ContextVar("session", default=None)


@contextmanager
def use_session(session: Session) -> Iterator[Session]:
    """Make a session the current one inside the block."""
    token = CURRENT.set(session)
    try:
        yield session
    finally:
        CURRENT.reset(token)


def current_session() -> Session:
    """Return the session of this run."""
    session = CURRENT.get()
    if session is None:
        raise RuntimeError("a stage was called outside a run; open one with use_session")
    return session
