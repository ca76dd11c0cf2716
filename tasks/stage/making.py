"""How a stage gets its result: from the store, from a remote worker, or by computing it.

Of two workers with the same key one computes, under a lease; the result is published completely or not at all.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import evolve
from prefect.logging import get_run_logger
from prefect.runtime import task_run
from prefect.states import Completed, Failed

from tasks.contracts import Artifact, StageInputs
from tasks.errors import (
    BudgetError,
    DispatchError,
    Interrupted,
    LeaseLost,
    LeaseTaken,
    LimbeckError,
    NoWorker,
    StoreError,
)
from tasks.ports.code.fingerprint import key_of
from tasks.ports.files.model_settings import architecture_fact
from tasks.ports.machine import device_class
from tasks.ports.store.artifacts import disk_trouble
from tasks.ports.store.inputs import HeldInputs
from tasks.ports.store_documents import LeaseNote
from tasks.recipe.knobs import Knobs
from tasks.stage.context import StageContext
from tasks.stage.gpu_slots import gpu_slots
from tasks.stage.keys import StageSpec, is_sent, key_explanation, new_record
from tasks.stage.metering import limited, metered, require_rest, within_budget
from tasks.stage.orders import StageRequest, notes_of, require_expected
from tasks.stage.planning import model_bytes, nearest, reason, took
from tasks.stage.progress import ProgressPage
from tasks.stage.session import Session, StageDispatcher, StageRecord


async def run_stage(spec: StageSpec, session: Session, knobs: Knobs, label: str, artifacts: StageInputs) -> Any:
    """Run one stage: find its result, or compute it; return the Prefect state with the outcome."""
    make = make_by_worker if is_sent(spec, session) else compute
    explanation = key_explanation(spec, session, knobs, artifacts)
    record = new_record(spec, session, label, explanation)
    record.model_bytes = model_bytes(artifacts)
    record.task_run = str(task_run.id or "")
    started = time.monotonic()
    try:
        if session.expected is not None:
            require_expected(explanation, session.expected)
        if spec.name not in session.force:
            found = session.just_found(record.key) or await asyncio.to_thread(session.store.find, record.key)
            if found is not None:
                return finish(session, record, found, "hit", started)
        return await make(spec, session, record, knobs, artifacts, started)
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


async def make_by_worker(
    spec: StageSpec, session: Session, record: StageRecord, knobs: Knobs, artifacts: StageInputs, started: float
) -> Any:
    """Have a stage computed by a remote worker. Without a live worker, this run computes it itself, if it may, and all
    later stages, too."""
    dispatcher = session.dispatcher
    try:
        if dispatcher is not None:
            return await make_remotely(spec, session, dispatcher, record, knobs, artifacts, started)
    except NoWorker as error:
        if dispatcher is None or dispatcher.required:
            raise
        stop_sending(session, str(error))
    # Other hardware computes other numbers: the key names the hardware that is used now.
    record.explanation = key_explanation(spec, session, knobs, artifacts)
    record.key = key_of(record.explanation)
    found = None if spec.name in session.force else await asyncio.to_thread(session.store.find, record.key)
    if found is not None:
        return finish(session, record, found, "hit", started)
    return await compute(spec, session, record, knobs, artifacts, started)


def stop_sending(session: Session, why: str) -> None:
    """Send no further stages of this run; the first of several stages that find no worker reports it."""
    if session.dispatcher is None:
        return
    session.dispatcher = None
    said = f"{why}; this run goes on without the pool, on {device_class()}"
    get_run_logger().warning(said)
    if session.watcher is not None:
        session.watcher.note(said)


async def make_remotely(
    spec: StageSpec,
    session: Session,
    dispatcher: StageDispatcher,
    record: StageRecord,
    knobs: Knobs,
    artifacts: StageInputs,
    started: float,
) -> Any:
    """Have a stage computed by a remote worker, and take its result from the store."""
    await foresee(spec, session, record)
    get_run_logger().info(f"computed, because: {record.why} (key {record.key[:12]})")

    def tell(state: str, words: str) -> None:
        record.state = state
        if state == "running" and record.sent is None:
            record.sent = time.monotonic()
        session.tell(record)
        if words:
            get_run_logger().info(words)
        if words and session.watcher is not None:
            session.watcher.log(record, words)

    order: StageRequest = {
        "stage": spec.name,
        "label": record.label,
        "knobs": knobs.model_dump(mode="json", exclude_unset=True),
        "key": record.key,
        "inputs": await notes_of(session.store, artifacts),
        "explanation": record.explanation,
        "force": spec.name in session.force,
        "tracking": await asyncio.to_thread(session.tracker.lend_run) if session.tracker is not None else {},
    }
    async with within_budget(session):
        ours = await dispatcher.make(order, tell)
    found = await asyncio.to_thread(session.store.find, record.key)
    if found is None:
        raise DispatchError(
            f"{record.display_name} was computed elsewhere, and is not in this run's store; the workers must share "
            f"the store of this run"
        )
    # A result that another run requested, and pays for, counts as a hit. For a result of this run, count the seconds of
    # the work, not of the queue.
    return finish(
        session,
        record,
        found,
        "miss" if ours else "hit",
        time.monotonic() - float(found.used.get("seconds") or 0.0) if ours else started,
    )


async def foresee(spec: StageSpec, session: Session, record: StageRecord) -> None:
    """Record why a stage is computed and its estimated resources beforehand; raise BudgetError if they exceed the rest
    of the budget."""
    changes, like = await asyncio.to_thread(nearest, session, record.explanation, record.model_bytes)
    record.why, record.likely = reason(spec, session, changes), took(like)
    require_rest(session, record)


async def compute(
    spec: StageSpec, session: Session, record: StageRecord, knobs: Knobs, artifacts: StageInputs, started: float
) -> Any:
    """Compute a stage's result under its lease, unless another worker computes it meanwhile."""
    note: LeaseNote = {"stage": record.display_name, "key": record.key, "inputs": record.explanation["inputs"]}
    while True:
        record.state = "waiting"
        session.tell(record)
        # Acquire cores before the lease, so that a waiting run does not block a worker that has cores.
        async with session.slots.take(record.cores):
            try:
                async with session.store.lease(record.key, note, wait=False) as lease:
                    return await find_or_make(spec, session, record, knobs, artifacts, lease)
            except LeaseTaken:
                pass
            except LeaseLost as error:
                await overtaken(session, record, error)
        async with session.store.lease(record.key, note):
            pass  # the holder has finished or died
        found = None if spec.name in session.force else await asyncio.to_thread(session.store.find, record.key)
        if found is not None:
            return finish(session, record, found, "hit", started)


async def overtaken(session: Session, record: StageRecord, error: LeaseLost) -> None:
    """Record that another worker took a stage over, for example because this machine slept: the run waits for its
    result."""
    get_run_logger().warning(str(error))
    if session.tracker is not None:
        await asyncio.to_thread(session.tracker.stage_failed, record, str(error), True)


async def find_or_make(
    spec: StageSpec, session: Session, record: StageRecord, knobs: Knobs, artifacts: StageInputs, lease: Any
) -> Any:
    """Compute a stage's result, with the lease and the cores held; look it up first, because it may have been published
    meanwhile."""
    started = time.monotonic()
    found = None if spec.name in session.force else await asyncio.to_thread(session.store.find, record.key)
    if found is not None:
        return finish(session, record, found, "hit", started)
    await foresee(spec, session, record)
    async with gpu_slots(session.gpu_limit if spec.on_gpu else "", record.processes):
        record.state, started = "running", time.monotonic()
        get_run_logger().info(f"computed, because: {record.why} (key {record.key[:12]})")
        session.tell(record)
        if session.tracker is not None:
            await asyncio.to_thread(session.tracker.stage_started, record)
        artifact = await work(spec, session, record, knobs, artifacts, lease, started)
    state = finish(session, record, artifact, "miss", started)
    if session.tracker is not None:
        await asyncio.to_thread(session.tracker.stage_finished, record)
    return state


async def work(
    spec: StageSpec,
    session: Session,
    record: StageRecord,
    knobs: Knobs,
    artifacts: StageInputs,
    lease: Any,
    started: float,
) -> Artifact:
    """Run the stage's function in a workspace of its own and publish its output; the workspace is deleted in every
    case."""
    store, whole = session.store, False
    # the name has the key, by which an upkeep sees that the stage is running
    workspace = Path(tempfile.mkdtemp(prefix=f"{spec.name}-{record.key}-", dir=store.workspace()))
    page = ProgressPage(
        record.display_name, session.tracker.url_of_stage(record) if session.tracker is not None else None
    )
    try:
        async with store.checkpoints(record.key, get_run_logger().info) as checkpoints:
            held = await asyncio.to_thread(HeldInputs, store, list(all_of(artifacts)))
            context = StageContext(spec, session, record, workspace, checkpoints, held, page=page)
            with held.in_words():
                async with metered(session, record), limited(session, record):
                    await spec.body(context, knobs, **artifacts)
            await asyncio.to_thread(held.require_unchanged)
        whole = True
        return await asyncio.to_thread(
            store.publish,
            record.key,
            kind=spec.makes,
            folder=context.output,
            facts=context.facts | architecture_fact(context.output),
            stage=spec.name,
            explanation=record.explanation,
            lease=lease,
            seconds=time.monotonic() - started,
            used=record.used,
        )
    finally:
        try:
            await page.close(whole=whole)
        finally:  # a run may be stopped a second time while the page is closed
            await asyncio.to_thread(shutil.rmtree, workspace, True)


def all_of(artifacts: StageInputs) -> Iterator[Artifact]:
    """Yield every artifact among a stage's inputs."""
    for given in artifacts.values():
        if given is not None:
            yield from given if isinstance(given, list) else [given]


def finish(session: Session, record: StageRecord, artifact: Artifact, cache: str, started: float) -> Any:
    """Record a stage's end and return its Prefect state."""
    artifact = evolve(artifact, task_run=record.task_run)
    record.cache, record.artifact, record.state = cache, artifact, "cached" if cache == "hit" else "completed"
    record.seconds = time.monotonic() - started
    record.used = artifact.used
    session.tell(record)
    if cache == "hit":
        return Completed(name="Cached", message=f"verified result {artifact.sha256[:12]}", data=artifact)
    return Completed(message=f"computed {artifact.sha256[:12]}, {artifact.bytes:,} bytes", data=artifact)


async def fail(session: Session, record: StageRecord, error: BaseException, started: float) -> None:
    """Record how a stage failed; nothing of it was published."""
    killed = isinstance(error, (Interrupted, asyncio.CancelledError, KeyboardInterrupt))
    refused = isinstance(error, BudgetError)
    record.state, record.seconds = (
        "stopped" if killed else "refused" if refused else "failed",
        time.monotonic() - started,
    )
    session.tell(record)
    if session.tracker is not None:
        await asyncio.to_thread(session.tracker.stage_failed, record, str(error), killed)
