"""Slots of GPUs: no more stages compute than the limit has slots, a cached stage takes none, and a limit that is not
there is refused. GPUs of a machine: stages beside each other compute on different ones."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client

from tasks.engine import environment
from tasks.engine.events import EngineOrder
from tasks.engine.process import run_engine
from tasks.errors import DispatchError
from tasks.ports.machine import Gpu
from tasks.ports.store.open import open_store
from tasks.recipe.slices import AnswerSlice
from tasks.stage import gpu_slots
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.gpu_slots import interchangeable, own_gpus
from tasks.stage.session import Session, use_session

AT_WORK: list[int] = []
MOST: list[int] = [0]


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Gpu]:
    """A machine with four GPUs of one model, of which no stage holds one yet."""
    gpus = [Gpu(str(number), (f"GPU-{number}",), "NVIDIA A10G") for number in range(4)]
    monkeypatch.setattr(gpu_slots, "used_gpus", lambda: gpus)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return gpus


def test_stages_beside_each_other_compute_on_gpus_of_their_own(four_gpus: list[Gpu]) -> None:
    """All of them computed on the first one, and the others stood idle."""
    with own_gpus(1) as first, own_gpus(2) as second, own_gpus(1) as third:
        assert (first, second, third) == (["0"], ["1", "2"], ["3"])
        with own_gpus(1) as shared:
            assert shared == ["0"], "all are taken: the one with the fewest stages"
            with own_gpus(3) as more:
                assert more == ["1", "2", "3"]
    with own_gpus(1) as again, own_gpus(4) as all_of_them, own_gpus(0) as on_the_processor:
        assert (again, all_of_them, on_the_processor) == (["0"], [], [])


HOLDER = """
import sys, tempfile, time
from tasks.ports.machine import Gpu
from tasks.stage import gpu_slots
gpu_slots.used_gpus = lambda: [Gpu(str(number), (f"GPU-{number}",), "NVIDIA A10G") for number in range(4)]
tempfile.tempdir = sys.argv[1]
with gpu_slots.own_gpus(1) as mine:
    print(*mine, flush=True)
    time.sleep(600)
"""


def test_the_gpu_of_a_process_that_was_killed_is_free_again(four_gpus: list[Gpu], tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "0\n"
    with own_gpus(1) as mine:
        assert mine == ["1"]
    holder.kill()
    holder.communicate()
    with own_gpus(1) as mine:
        assert mine == ["0"]


def test_gpus_of_several_models_or_slices_are_not_chosen_among(four_gpus: list[Gpu]) -> None:
    """A key has the model that a stage computes on, and slices have names of their own."""
    other = four_gpus[3]._replace(model="NVIDIA A100")
    slices = four_gpus[3]._replace(names=("GPU-3", "MIG-3"))
    assert not interchangeable([*four_gpus[:3], other]) and not interchangeable([*four_gpus[:3], slices])


def test_an_engine_sees_the_gpus_that_were_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "says_gpus.py").write_text(
        "import json, os\nfacts = {'gpus': os.environ.get('CUDA_VISIBLE_DEVICES')}\n"
        "print(json.dumps({'event': 'result', 'facts': facts}), flush=True)\n"
    )
    monkeypatch.setattr(environment, "module_path", lambda: str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for gpus, seen in ((["2"], "2"), (["1", "3"], "1,3"), ([], None)):
        order: EngineOrder = {"job": "says", "output": str(tmp_path), "threads": 1, "device": "cuda", "gpus": gpus}
        assert asyncio.run(run_engine("says_gpus", order, tmp_path, lambda event: None)) == {"gpus": seen}


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


def test_more_slots_than_there_are_is_no_fault_of_the_server(prefect_server: None) -> None:
    async def too_many() -> None:
        await set_slots(1)
        async with gpu_slots.gpu_slots("gpu-of-a-test", 2):
            pass

    with pytest.raises(DispatchError, match="allow more .limbeck deploy --gpus N., or lower LIMBECK_PROCESSES"):
        asyncio.run(too_many())
