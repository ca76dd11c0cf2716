"""The door frame among several workers: who has cores works, and nobody keeps a stage from others while waiting for cores."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from prefect import flow

from tasks.ports.store.open import open_store
from tasks.recipe import AnswerSlice
from tasks.session import Session, use_session
from tasks.stage import Bench, stage

STAGES = 6


@stage(makes="answers")
async def slow_answers(bench: Bench, knobs: AnswerSlice) -> None:
    """Take a moment, and write something."""
    await asyncio.sleep(0.3)
    (bench.output / "made.txt").write_text(str(knobs.max_length))


def test_two_workers_share_the_stages_of_one_run(prefect_server: None, tmp_path: Path) -> None:
    sessions = [Session(open_store(str(tmp_path / "store"), tmp_path / f"cache-{number}"), 1, 1) for number in range(2)]

    together = asyncio.Barrier(2)

    @flow
    async def worker(number: int) -> None:
        await together.wait()
        with use_session(sessions[number]):
            await asyncio.gather(*(slow_answers(AnswerSlice(max_length=8 + length)) for length in range(STAGES)))

    async def both() -> None:
        await asyncio.gather(worker(0), worker(1))

    asyncio.run(both())
    made = [Counter(record.cache for record in session.records) for session in sessions]
    assert made[0]["miss"] + made[1]["miss"] == STAGES, "each stage is made once"
    assert min(made[0]["miss"], made[1]["miss"]) >= 2, f"one worker kept the other from working: {made}"
