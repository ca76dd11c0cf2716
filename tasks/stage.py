"""The door frame: the one decorator that makes a function a cached stage.

A stage's key is made of what can change its result; a verified manifest under that key is a hit, and nothing else is. Of two workers with the
same key one computes, under a lease; what it made is published whole, or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.runtime import task_run
from prefect.states import Completed, Failed

from tasks.contracts import Parcel
from tasks.dispatch import notes_of, require_expected
from tasks.engine_environment import NUMERIC, environment
from tasks.engine_process import run_engine
from tasks.errors import BudgetError, DispatchError, Interrupted, LeaseLost, LeaseTaken, LimbeckError, StoreError
from tasks.gpu_slots import gpu_slots
from tasks.meter import Meter
from tasks.ports.fingerprint import KEY_SCHEMA, code_digest, differences, key_of, library_versions
from tasks.ports.machine import cpu_class, device_class, hardware
from tasks.ports.program import Root
from tasks.ports.store.artifacts import disk_trouble, is_of_this_release, used_of
from tasks.ports.store.inputs import HeldInputs
from tasks.recipe import Knobs
from tasks.scoring.ledger import cost_of, headline_figures
from tasks.session import Session, StageRecord, current_session
from tasks.set_back import told_in_order
from tasks.stage_progress import ProgressPage

Body = Callable[..., Awaitable[None]]
LOOK = 5.0  # seconds between two looks at what a stage under way takes
WITHOUT_A_MODEL = {"tokenize", "mix"}
"""Jobs of the training engine that run no model. Said here and not at the doors, because a door's decorator is part of its key."""
OTHER_RELEASE = "what another release of Limbeck stored is not taken"
TOKENIZERS = ("tokenizers", "sentencepiece")
"""What reads a tokenizer's files."""
ENGINE_LIBRARIES = ("torch", "transformers", *TOKENIZERS, "safetensors", "numpy", "pyarrow")
"""What the training engine computes with, and reads and writes its files with."""
UNKNOWN = "0" * 64
"""The digest of a parcel that a plan has not seen, because its stage would run first."""


@dataclass(frozen=True)
class Frame:
    """What a stage declares about itself."""

    name: str
    makes: str
    body: Body
    engine: str | None
    module: str
    threads: str
    libraries: tuple[str, ...]
    hardware: bool
    together: bool

    @property
    def device(self) -> str:
        """The class of hardware on which its engine computes here."""
        return device_class() if self.on_gpu else cpu_class()

    @property
    def on_gpu(self) -> bool:
        """Whether its engine runs models where a GPU is, if there is one; the scales and the packing room always work on the CPU."""
        return self.module == "tasks.training" and self.engine is not None and self.engine not in WITHOUT_A_MODEL

    @property
    def roots(self) -> tuple[Root, ...]:
        """Where the code begins that makes its result: the function itself, its engine's job, and how an engine is set up before it."""
        own = (self.body.__module__, self.body.__name__, None)
        if self.engine is None:
            return (own,)
        set_up = [(f"{self.module}.__main__", "main", None), (environment.__module__, environment.__name__, None)]
        return own, (f"{self.module}.jobs", "JOBS", self.engine), *set_up


@dataclass
class Bench:
    """Where a stage works: its inputs as folders, its output folder, and the engine it may start."""

    frame: Frame
    session: Session
    record: StageRecord
    workspace: Path
    checkpoints: Path
    held: HeldInputs
    facts: dict[str, Any] = field(default_factory=dict)
    heard: float = 0.0
    page: ProgressPage | None = None

    @property
    def output(self) -> Path:
        """The folder that is published when the stage succeeds."""
        folder = self.workspace / "output"
        folder.mkdir(exist_ok=True)
        return folder

    def folder(self, parcel: Parcel) -> Path:
        """Return the files behind an input; of a source, the copy that the store keeps."""
        return self.held.folder(parcel)

    async def run(
        self,
        knobs: Mapping[str, Any],
        *,
        inputs: Mapping[str, Parcel | None] | None = None,
        lists: Mapping[str, Sequence[Parcel]] | None = None,
        folders: Mapping[str, Path] | None = None,
    ) -> None:
        """Run the stage's engine on its inputs; inputs that are None are left out."""
        given = {name: str(self.folder(parcel)) for name, parcel in (inputs or {}).items() if parcel is not None}
        order = {
            "job": self.frame.engine,
            "knobs": dict(knobs),
            "inputs": given | {name: str(folder) for name, folder in (folders or {}).items()},
            "lists": {name: [str(self.folder(parcel)) for parcel in parcels] for name, parcels in (lists or {}).items()},
            "output": str(self.output),
            "checkpoints": str(self.checkpoints),
            "threads": self.record.threads,
            "processes": self.record.processes,
            "device": self.frame.device.split("-")[0],
            "libraries": self.record.explanation["libraries"],
        }
        self.facts |= await run_engine(self.frame.module, order, self.workspace, self.listen, self.session.engines)

    def listen(self, event: Mapping[str, Any]) -> None:
        """Pass what the engine says on to the watcher, the tracker and the Prefect log."""
        watcher, tracker = self.session.watcher, self.session.tracker
        if event["event"] == "log":
            get_run_logger().info(event["message"])
            if watcher is not None:
                watcher.log(self.record, event["message"])
        elif event["event"] == "progress":
            if watcher is not None:
                watcher.progress(self.record, event["done"], event["total"], event["unit"], event["figures"])
            self.log_progress(event)
            if self.page is not None:
                self.page.move(event["done"], event["total"])
        elif event["event"] == "curve" and tracker is not None:
            tracker.curve(self.record, event["step"], event["figures"])
        elif event["event"] == "used":
            self.record.meter.hear(event)

    def log_progress(self, event: Mapping[str, Any]) -> None:
        """Log every tenth of the way, so that the page in the Prefect UI stays readable."""
        share = event["done"] / max(1, event["total"])
        if share >= self.heard + 0.1 or share >= 1 > self.heard:
            self.heard = share
            figures = ", ".join(f"{name} {value:.4g}" for name, value in event["figures"].items())
            get_run_logger().info(f"{event['done']:,} of {event['total']:,} {event['unit']}{', ' + figures if figures else ''}")


def stage(
    *,
    makes: str,
    engine: str | None = None,
    module: str = "tasks.training",
    threads: Literal["single", "branch", "alone"] = "single",
    libraries: tuple[str, ...] = ENGINE_LIBRARIES,
    hardware: bool = False,
    together: bool = False,
) -> Callable[[Body], Callable[..., Awaitable[Parcel]]]:
    """Make a function a stage. It is called as ``await door(knobs, name=parcel, …, label="shown")`` inside a run, and returns a parcel.

    ``makes`` is the kind of parcel; ``engine`` the job that the function starts, whose code is part of the key. The recipe says how many
    ``threads`` a stage has that runs beside others like it (``branch``) or that others wait for (``alone``); ``single`` adds nothing up by threads.
    ``libraries`` have their versions in the key. ``hardware``: it is keyed by this very machine. ``together``: processes may share its training.
    """

    def frame_it(body: Body) -> Callable[..., Awaitable[Parcel]]:
        frame = Frame(body.__name__.replace("_", "-"), makes, body, engine, module, threads, libraries, hardware, together)

        @task(name=frame.name, task_run_name=frame.name + "{shown}", persist_result=False, cache_policy=NO_CACHE)
        async def door(knobs: Knobs, shown: str, parcels: dict[str, Any]) -> Any:
            return await enter(frame, current_session(), knobs, shown.lstrip("/"), parcels)

        @functools.wraps(body)
        async def call(knobs: Knobs, *, label: str = "", **parcels: Any) -> Parcel:
            session = current_session()
            if session.planning:
                return await plan_stage(frame, session, knobs, label, parcels)
            # Inputs travel as the states of the tasks that made them: that is what draws the edges of the run graph.
            state = await told_in_order(door(knobs, f"/{label}" if label else "", linked(session, parcels), return_state=True))
            parcel: Parcel = await state.aresult()
            session.made_by[id(parcel)] = state
            return parcel

        vars(call)["frame"] = frame
        return call

    return frame_it


def linked(session: Session, parcels: Mapping[str, Any]) -> dict[str, Any]:
    """Replace parcels by the states of the tasks that made them; Prefect turns them back before the task sees them."""
    return {
        name: [session.made_by.get(id(one), one) for one in given] if isinstance(given, list) else session.made_by.get(id(given), given)
        for name, given in parcels.items()
    }


async def enter(frame: Frame, session: Session, knobs: Knobs, label: str, parcels: Mapping[str, Any]) -> Any:
    """Pass one stage: find its result, or make it; return the Prefect state that says which."""
    explanation = explain(frame, session, knobs, parcels)
    record = new_record(frame, session, label, explanation)
    record.task_run = str(task_run.id or "")
    started = time.monotonic()
    try:
        if session.expected is not None:
            require_expected(explanation, session.expected)
        if frame.name not in session.force:
            found = session.just_found(record.key) or await asyncio.to_thread(session.store.find, record.key)
            if found is not None:
                return finish(session, record, found, "hit", started)
        make = dispatch if is_sent(frame, session) else compute
        return await make(frame, session, record, knobs, parcels, started)
    except LimbeckError as error:
        await fail(session, record, error, started)
        return Failed(name="Refused" if isinstance(error, BudgetError) else None, message=str(error), data=error)
    except OSError as error:
        told = StoreError(disk_trouble(error, session.store.workspace()))
        await fail(session, record, told, started)
        return Failed(message=str(told), data=told)
    except BaseException as error:
        await asyncio.shield(fail(session, record, error, started))
        raise


def is_sent(frame: Frame, session: Session) -> bool:
    """Tell whether a stage is made by a worker elsewhere."""
    return session.dispatcher is not None and frame.on_gpu


async def dispatch(frame: Frame, session: Session, record: StageRecord, knobs: Knobs, parcels: Mapping[str, Any], started: float) -> Any:
    """Have a stage made by a worker elsewhere, and take its result from the store."""
    await foresee(frame, session, record)
    get_run_logger().info(f"key {record.key[:12]}: {record.why}")

    def tell(state: str, words: str) -> None:
        record.state = state
        session.tell(record)
        if words:
            get_run_logger().info(words)
        if words and session.watcher is not None:
            session.watcher.log(record, words)

    order = {
        "stage": frame.name, "label": record.label, "knobs": knobs.model_dump(mode="json", exclude_unset=True), "key": record.key,
        "inputs": await notes_of(session.store, parcels), "explanation": record.explanation, "force": frame.name in session.force,
        "tracking": await asyncio.to_thread(session.tracker.place) if session.tracker is not None else {},
    }  # fmt: skip
    async with within_budget(session):
        ours = await session.dispatcher.make(order, tell)
    found = await asyncio.to_thread(session.store.find, record.key)
    if found is None:
        raise DispatchError(f"{record.shown} was made elsewhere, and is not in this run's store; its workers must share the store of this run")
    # What another run asked for, and pays, is to this one as if it had been there. Of its own, the seconds are those of the work, not of the queue.
    return finish(session, record, found, "miss" if ours else "hit", time.monotonic() - float(found.used.get("seconds") or 0.0) if ours else started)


async def foresee(frame: Frame, session: Session, record: StageRecord) -> None:
    """Note why a stage is made and what it will probably take, before it is; refuse it where the rest of the budget does not hold that."""
    changes, like = await asyncio.to_thread(nearest, frame, session, record.explanation)
    record.why, record.likely = reason(frame, session, changes), took(like)
    require_rest(session, record)


async def compute(frame: Frame, session: Session, record: StageRecord, knobs: Knobs, parcels: Mapping[str, Any], started: float) -> Any:
    """Make a stage's result under its lease, unless another worker makes it meanwhile."""
    note = {"stage": record.shown, "key": record.key, "inputs": record.explanation["inputs"]}
    while True:
        record.state = "waiting"
        session.tell(record)
        # Cores come before the lease: one that waited for cores would keep a worker that has some from the stage.
        async with session.slots.take(record.cores):
            try:
                async with session.store.lease(record.key, note, wait=False) as lease:
                    return await find_or_make(frame, session, record, knobs, parcels, lease)
            except LeaseTaken:
                pass
            except LeaseLost as error:
                await overtaken(session, record, error)
        async with session.store.lease(record.key, note):
            pass  # whoever held it is done, or gone
        found = None if frame.name in session.force else await asyncio.to_thread(session.store.find, record.key)
        if found is not None:
            return finish(session, record, found, "hit", started)


async def overtaken(session: Session, record: StageRecord, error: LeaseLost) -> None:
    """Note that another worker took a stage over, as from a machine that slept: the run waits for its result."""
    get_run_logger().warning(str(error))
    if session.tracker is not None:
        await asyncio.to_thread(session.tracker.stage_failed, record, str(error), True)


async def find_or_make(frame: Frame, session: Session, record: StageRecord, knobs: Knobs, parcels: Mapping[str, Any], lease: Any) -> Any:
    """Make a stage's result, with the lease and the cores in hand; it may have been made since it was looked for."""
    started = time.monotonic()
    found = None if frame.name in session.force else await asyncio.to_thread(session.store.find, record.key)
    if found is not None:
        return finish(session, record, found, "hit", started)
    await foresee(frame, session, record)
    async with gpu_slots(session.gpu_limit if frame.on_gpu else "", record.processes):
        record.state, started = "running", time.monotonic()
        get_run_logger().info(f"key {record.key[:12]}: {record.why}")
        session.tell(record)
        if session.tracker is not None:
            await asyncio.to_thread(session.tracker.stage_started, record)
        parcel = await work(frame, session, record, knobs, parcels, lease, started)
    state = finish(session, record, parcel, "miss", started)
    if session.tracker is not None:
        await asyncio.to_thread(session.tracker.stage_finished, record)
    return state


async def work(frame: Frame, session: Session, record: StageRecord, knobs: Knobs, parcels: Mapping[str, Any], lease: Any, started: float) -> Parcel:
    """Run the body in a workspace of its own and publish what it wrote; the workspace goes away in every case."""
    store, whole = session.store, False
    workspace = Path(tempfile.mkdtemp(prefix=f"{frame.name}-", dir=store.workspace()))
    page = ProgressPage(record.shown, session.tracker.url_of_stage(record) if session.tracker is not None else None)
    try:
        async with store.checkpoints(record.key, get_run_logger().info) as checkpoints:
            held = await asyncio.to_thread(HeldInputs, store, list(all_of(parcels)))
            bench = Bench(frame, session, record, workspace, checkpoints, held, page=page)
            with held.in_words():
                async with metered(session, record):
                    await frame.body(bench, knobs, **parcels)
            await asyncio.to_thread(held.require_unchanged)
        whole = True
        return await asyncio.to_thread(
            store.publish, record.key, kind=frame.makes, folder=bench.output, facts=bench.facts,
            stage=frame.name, explanation=record.explanation, lease=lease, seconds=time.monotonic() - started, used=record.used,
        )  # fmt: skip
    finally:
        await page.close(whole=whole)
        await asyncio.to_thread(shutil.rmtree, workspace, True)


@contextlib.asynccontextmanager
async def metered(session: Session, record: StageRecord) -> AsyncIterator[None]:
    """Measure what is done inside, and end it in order once the run has spent its budget; what it took is noted however it ends."""
    with contextlib.ExitStack() as at_the_end:
        meter = session.machine.begin(record.threads, record.processes, record.cores)
        record.meter = meter
        at_the_end.callback(note_used, session, record, meter)
        async with within_budget(session):
            yield


def note_used(session: Session, record: StageRecord, meter: Meter) -> None:
    """Note what a stage took when it ends."""
    session.machine.end(meter)
    record.used, record.meter = meter.used(session.machine, session.machine.looked), None
    if session.purse is not None:
        record.figures = headline_figures(cost_of(record.used, session.purse.rates), session.purse.rates.market)


@contextlib.asynccontextmanager
async def within_budget(session: Session) -> AsyncIterator[None]:
    """Look now and then while something is done inside; cancel it when the budget is spent, and say so."""
    doer, over = asyncio.current_task(), []
    assert doer is not None

    async def look() -> None:
        while not over:
            await asyncio.sleep(LOOK)
            try:
                require_rest(session, None)
            except BudgetError as error:
                over.append(error)
                doer.cancel()

    looking = asyncio.ensure_future(look())
    try:
        yield
        if over:  # it was done at the very moment: the cancelling that is under way is ours, and ends here
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        # As asyncio.timeout does: only our own cancelling becomes an error of ours.
        if over and doer.uncancel() == 0:
            raise over[0] from None
        raise
    finally:
        looking.cancel()


def require_rest(session: Session, record: StageRecord | None) -> None:
    """Refuse to go on, or to start a stage, where the run's budget is spent or would be."""
    if session.purse is not None:
        session.purse.require_rest(session.taken(), record.shown if record else "", record.likely if record else None)
    else:
        session.machine.look()


def all_of(parcels: Mapping[str, Any]) -> Iterator[Parcel]:
    """Yield every parcel among a stage's inputs."""
    for given in parcels.values():
        if given is not None:
            yield from given if isinstance(given, list) else [given]


def finish(session: Session, record: StageRecord, parcel: Parcel, cache: str, started: float) -> Any:
    """Note a stage's end and return its Prefect state."""
    record.cache, record.parcel, record.state = cache, parcel, "cached" if cache == "hit" else "completed"
    record.seconds = time.monotonic() - started
    record.used = parcel.used
    session.tell(record)
    if cache == "hit":
        return Completed(name="Cached", message=f"verified result {parcel.sha256[:12]}", data=parcel)
    return Completed(message=f"made {parcel.sha256[:12]}, {parcel.bytes:,} bytes", data=parcel)


async def fail(session: Session, record: StageRecord, error: BaseException, started: float) -> None:
    """Note how a stage failed; nothing of it was published."""
    killed = isinstance(error, (Interrupted, asyncio.CancelledError, KeyboardInterrupt))
    refused = isinstance(error, BudgetError)
    record.state, record.seconds = "stopped" if killed else "refused" if refused else "failed", time.monotonic() - started
    session.tell(record)
    if session.tracker is not None:
        await asyncio.to_thread(session.tracker.stage_failed, record, str(error), killed)


def new_record(frame: Frame, session: Session, label: str, explanation: Mapping[str, Any]) -> StageRecord:
    """Enter a stage in the run's list."""
    record = StageRecord(frame.name, label, key_of(explanation), frame.makes, explanation, threads=session.threads_for(frame.threads))
    record.processes = session.processes if frame.together else 1
    record.cores = session.cores if frame.hardware else min(session.cores, record.threads * record.processes)
    session.records.append(record)
    return record


def explain(frame: Frame, session: Session, knobs: Knobs, parcels: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that a stage's key is made of, by name, so that two keys can be compared field by field."""
    values = knobs.key_values()
    return {
        "schema": KEY_SCHEMA,
        "stage": frame.name,
        "code": code_digest(frame.roots, values),
        "knobs": values,
        "inputs": {name: digests(parcel) for name, parcel in parcels.items() if parcel is not None},
        "libraries": library_versions(frame.libraries),
        **(computed_by(frame, session) if frame.engine is not None else {}),
    }


def computed_by(frame: Frame, session: Session) -> dict[str, Any]:
    """Return what an engine's numbers are computed by, for its key. Rows are read and counted: they are the same everywhere."""
    return {
        "device": session.dispatcher.device if is_sent(frame, session) else frame.device,
        "environment": NUMERIC,
        **({"threads": session.threads_for(frame.threads)} if frame.threads != "single" else {}),
        **({"processes": session.processes} if frame.together and session.processes > 1 else {}),
        **({"hardware": hardware()} if frame.hardware else {}),
    }


def digests(parcel: Parcel | Sequence[Parcel]) -> Any:
    """Return the output digests of an input."""
    return parcel.sha256 if isinstance(parcel, Parcel) else [one.sha256 for one in parcel]


async def plan_stage(frame: Frame, session: Session, knobs: Knobs, label: str, parcels: Mapping[str, Any]) -> Parcel:
    """Say what a run would do with this stage, without doing it; what is not known yet makes everything after it a miss."""
    explanation = explain(frame, session, knobs, parcels)
    record = new_record(frame, session, label, explanation)
    waiting = [name for name, digest in explanation["inputs"].items() if UNKNOWN in ([digest] if isinstance(digest, str) else digest)]
    found = None if waiting or frame.name in session.force else await asyncio.to_thread(session.store.find, record.key)
    record.cache, record.state = ("hit", "cached") if found else ("miss", "would run")
    if found is not None:
        record.why, record.parcel, record.used = "a verified result is there", found, found.used
        return found
    changes, like = nearest(frame, session, explanation)
    record.estimate, record.likely = (like or {}).get("seconds"), took(like)
    record.why = f"waits for {', '.join(waiting)}" if waiting else reason(frame, session, changes)
    return Parcel(frame.makes, UNKNOWN, "", 0, {})


def reason(frame: Frame, session: Session, changes: list[str] | None) -> str:
    """Say why a stage misses: what differs from the nearest earlier result of the same stage."""
    if frame.name in session.force:
        return "forced"
    if changes is None:
        return "never made before"
    return "; ".join(changes[:3]) or "its result is damaged or gone"


def nearest(frame: Frame, session: Session, explanation: Mapping[str, Any]) -> tuple[list[str] | None, Mapping[str, Any] | None]:
    """Return how the nearest earlier result of a stage differs, and its manifest; None for what is not known.

    One of another release still says how long the stage took, but it is never taken.
    """
    earlier = [(list(differences(explanation, then["explanation"])), then) for then in session.earlier(frame.name)]
    own = [found for found in earlier if is_of_this_release(found[1])]
    changes, like = min(own or earlier, key=lambda found: len(found[0]), default=(None, None))
    return ([OTHER_RELEASE] if earlier and not own else changes), like


def took(manifest: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what making an earlier result took."""
    return used_of(manifest) if manifest else {}
