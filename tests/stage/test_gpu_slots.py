"""Slots of GPUs: no more stages compute than the limit has slots, a cached stage takes none, and a limit that is not
there is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client

from tasks.errors import DispatchError
from tasks.ports.store.open import open_store
from tasks.recipe.slices import AnswerSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.session import Session, use_session

AT_WORK: list[int] = []
MOST: list[int] = [0]


@stage(makes="answers", engine="answer")
async def watched_answers(context: StageContext, knobs: AnswerSlice) -> None:
    """Count who is at work beside this one, and how many slots are taken meanwhile."""
    AT_WORK.append(knobs.max_length)
    MOST[0] = max(MOST[0], len(AT_WORK))
    async with get_client() as client:
        assert (await client.read_global_concurrency_limit_by_name("gpu-of-a-test")).active_slots == 1
    await asyncio.sleep(0.3)
    (context.output / "made.txt").write_text(str(knobs.max_length))
    AT_WORK.remove(knobs.max_length)


def run(store: Path, limit: str, lengths: list[int]) -> Session:
    """Pass the stage once for each length, all at once, on a machine with cores for all."""
    session = Session(open_store(str(store), store), 8, 1, gpu_limit=limit)

    @flow
    async def all_at_once() -> None:
        with use_session(session):
            await asyncio.gather(
                *(watched_answers(AnswerSlice(task_type="classification", max_length=length)) for length in lengths)
            )

    asyncio.run(all_at_once())
    return session


async def set_slots(slots: int) -> None:
    async with get_client() as client:
        await client.upsert_global_concurrency_limit_by_name("gpu-of-a-test", slots)


async def taken() -> int:
    async with get_client() as client:
        return (await client.read_global_concurrency_limit_by_name("gpu-of-a-test")).active_slots


def test_one_slot_lets_one_stage_compute_and_a_hit_takes_none(prefect_server: None, tmp_path: Path) -> None:
    asyncio.run(set_slots(1))
    first = run(tmp_path, "gpu-of-a-test", [8, 9, 10])
    assert {record.cache for record in first.records} == {"miss"} and MOST == [1]
    assert asyncio.run(taken()) == 0, "given back at the end"

    asyncio.run(set_slots(0))  # whoever asks now, waits for ever
    again = run(tmp_path, "gpu-of-a-test", [8, 9, 10])
    assert {record.cache for record in again.records} == {"hit"}


def test_a_limit_that_is_not_there_is_refused(prefect_server: None, tmp_path: Path) -> None:
    with pytest.raises(
        DispatchError,
        match="'no-such-limit' could be acquired on this Prefect server .*; create it .limbeck deploy does., or unset "
        "LIMBECK_GPU",
    ):
        run(tmp_path, "no-such-limit", [8])
