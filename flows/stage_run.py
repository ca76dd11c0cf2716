"""One stage as a flow run of its own: a pool of GPU workers runs it for a run on a small machine.

It calls the same stage task as the run would, in a session of this worker, with the same lease, checkpoints and
publishing; it refuses if the stage's key differs. The artifact is in the store; its key and sha256 are returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import get_type_hints

from prefect import flow

from flows.branches.makers import MAKERS, StageTask
from flows.home import Home
from flows.run.ledger import new_budget
from flows.run.remote import gpu_limit_of_server, is_cancelled, silent_minutes, stage_hours
from flows.run.spot import heeding_notices
from flows.run.stopping import cancel_tasks, is_stop, stopped_by_sigterm
from tasks.augment_text import augment_text
from tasks.contracts import Artifact
from tasks.drop_layers import measure_similarity
from tasks.errors import DispatchError, LimbeckError
from tasks.finetune_teacher import answer_rows, answer_texts, finetune_teacher, tune_thresholds
from tasks.ports.machine import available_cores
from tasks.ports.store.open import open_store, whole_address
from tasks.ports.tracking.tracker import Tracker
from tasks.prepare_corpus import pretrain_base, pretrain_encoder
from tasks.recipe.knobs import Knobs
from tasks.recipe.running import Costs
from tasks.stage.orders import StageOrder, artifacts_of
from tasks.stage.remote import FLOW
from tasks.stage.session import Session, use_session


def name_of_stage(stage_task: StageTask) -> str:
    """Return the name of a stage, which is that of its function."""
    return stage_task.__name__.replace("_", "-")


STAGE_TASKS: dict[str, StageTask] = {
    "pretrain-base": pretrain_base,
    "pretrain-encoder": pretrain_encoder,
    "finetune-teacher": finetune_teacher,
    "answer-rows": answer_rows,
    "answer-texts": answer_texts,
    "tune-thresholds": tune_thresholds,
    "augment-text": augment_text,
    "measure-similarity": measure_similarity,
    **{name_of_stage(one): one for maker in MAKERS.values() for one in maker.stages},
}
"""The stage tasks that run models, on a GPU if there is one."""


@flow(name=FLOW, persist_result=False)
async def make_stage(order: StageOrder) -> dict[str, str | int]:
    """Compute one stage for a run on another machine. Runs start this flow; to make models, start a recipe instead."""
    stage_task = stage_task_of(order.stage)
    async with heeding_notices(), open_stage(order) as session:
        inputs = await asyncio.to_thread(artifacts_of, session.store, order.inputs)
        artifact: Artifact = await stage_task(knobs_of(stage_task, order.knobs), label=order.label, **inputs)
    return {"key": order.key, "sha256": artifact.sha256, "bytes": artifact.bytes, "cache": session.records[0].cache}


def stage_task_of(stage: str) -> StageTask:
    """Return a stage task by its name; raise DispatchError if there is none."""
    if stage not in STAGE_TASKS:
        raise DispatchError(f"unknown stage {stage!r}; choose one of {', '.join(sorted(STAGE_TASKS))}")
    return STAGE_TASKS[stage]


def knobs_of(stage_task: StageTask, values: Mapping[str, object]) -> Knobs:
    """Return a stage's knobs, validated from plain values."""
    kind: type[Knobs] = get_type_hints(stage_task)["knobs"]
    return kind.model_validate(values)


@asynccontextmanager
async def open_stage(order: StageOrder) -> AsyncIterator[Session]:
    """Open the session of a stage on this worker, after checking that the run uses the same store. The tracker is
    closed at the end, also after an error."""
    home = Home.from_environment()
    require_same_store(order.store, home)
    store = await asyncio.to_thread(open_store, home.store, home.cache)
    await asyncio.to_thread(store.check)
    below = order.tracking
    tracker = Tracker(home.tracking_uri, None) if below else None
    if tracker is not None and below:
        await asyncio.to_thread(tracker.join, str(below["experiment"]), str(below["run"]), int(below["number"]))
    cores, forced = (
        min(available_cores(), order.cores or available_cores()),
        frozenset([order.stage] if order.force else []),
    )
    session = Session(
        store,
        cores,
        order.threads,
        order.threads_alone,
        tracker=tracker,
        force=forced,
        processes=order.processes,
        budget=new_budget(Costs.model_validate(order.costs)),
        expected=order.explanation,
        gpu_limit=await gpu_limit_of_server(),
        stage_hours=stage_hours(order.stage_hours),
        silent_minutes=silent_minutes(),
    )
    status = "FINISHED"
    try:
        with use_session(session), stopped_by_sigterm():
            yield session
    except BaseException as error:
        status = "KILLED" if is_stop(error) else "FAILED"
        if isinstance(error, asyncio.CancelledError) and await is_cancelled():
            await asyncio.shield(cancel_tasks(session))
        raise
    finally:
        if tracker is not None:
            with suppress(LimbeckError):  # the artifact is in the store, and an earlier error matters more
                await asyncio.shield(asyncio.to_thread(tracker.close, status))


def require_same_store(asked: str, home: Home) -> None:
    """Raise DispatchError if the requesting run uses another store than this worker."""
    own = whole_address(home.store)
    if own != asked:
        raise DispatchError(
            f"the run stores its results in {asked}, and this worker in {own}; set LIMBECK_STORE to the same store "
            f"for both"
        )
