"""The stage task frame among several workers: who has cores works, and nobody keeps a stage from others while waiting
for cores."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from prefect import flow

from tasks.contracts import Artifact
from tasks.errors import ArtifactDamaged, DataError
from tasks.ports.files.sources import resolve_file
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.open import open_store
from tasks.recipe.slices import AnswerSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.session import Session, use_session

STAGES = 6


@stage(makes="answers")
async def slow_answers(context: StageContext, knobs: AnswerSlice) -> None:
    """Use a moment, and write something."""
    await asyncio.sleep(0.3)
    (context.output / "made.txt").write_text(str(knobs.max_length))


def test_two_workers_share_the_stages_of_one_run(prefect_server: None, tmp_path: Path) -> None:
    sessions = [Session(open_store(str(tmp_path / "store"), tmp_path / f"cache-{number}"), 1, 1) for number in range(2)]

    distributed = asyncio.Barrier(2)

    @flow
    async def worker(number: int) -> None:
        await distributed.wait()
        with use_session(sessions[number]):
            await asyncio.gather(
                *(
                    slow_answers(AnswerSlice(task_type="classification", max_length=8 + length))
                    for length in range(STAGES)
                )
            )

    async def both() -> None:
        await asyncio.gather(worker(0), worker(1))

    asyncio.run(both())
    made = [Counter(record.cache for record in session.records) for session in sessions]
    assert made[0]["miss"] + made[1]["miss"] == STAGES, "each stage is made once"
    assert min(made[0]["miss"], made[1]["miss"]) >= 2, f"one worker kept the other from working: {made}"


ASLEEP, DONE = "asleep", "done"
EVENTS: dict[str, asyncio.Event] = {}
NAPPERS: list[Session] = []


@stage(makes="answers")
async def answers_of_a_napper(context: StageContext, knobs: AnswerSlice) -> None:
    """Lose the lease in the middle, as on a machine whose lid was closed, and wake up when another worker has
    published."""
    if context.session is NAPPERS[0] and not EVENTS[DONE].is_set():
        (context.session.store.root / "locks" / context.record.key).unlink()
        EVENTS[ASLEEP].set()
        await EVENTS[DONE].wait()
    (context.output / "made.txt").write_text(str(NAPPERS.index(context.session)))


def test_a_worker_that_slept_takes_what_another_made_meanwhile_and_publishes_nothing(
    prefect_server: None, tmp_path: Path
) -> None:
    NAPPERS[:] = [
        Session(open_store(str(tmp_path / "store"), tmp_path / f"cache-{number}"), 1, 1) for number in range(2)
    ]

    @flow
    async def worker(number: int, before: str, after: str) -> Path:
        session = NAPPERS[number]
        await EVENTS[before].wait()
        with use_session(session):
            made = await answers_of_a_napper(AnswerSlice(task_type="classification", max_length=8))
        EVENTS[after].set()
        return Path(session.store.folder(made)) / "made.txt"

    async def both() -> list[Path]:
        EVENTS.update({name: asyncio.Event() for name in (ASLEEP, DONE, "start", "end")})
        EVENTS["start"].set()
        return await asyncio.gather(worker(0, "start", "end"), worker(1, ASLEEP, DONE))

    files = asyncio.run(both())
    assert [file.read_text() for file in files] == ["1", "1"], "the first one's result came too late"
    assert [session.records[0].cache for session in NAPPERS] == ["hit", "miss"]
    assert not list((tmp_path / "store" / "temporary").iterdir())


MEANWHILE: list[Callable[[], Any]] = []
"""What a person does while a stage works."""


@stage(makes="rows")
async def keep_text(
    context: StageContext, knobs: AnswerSlice, *, source: Artifact, earlier: Artifact | None = None
) -> None:
    """Keep what a source says, after a while."""
    for edit in MEANWHILE:
        edit()
    (context.output / "made.txt").write_text(context.folder(source).read_text())


def run_stage(session: Session, **artifacts: Artifact) -> Artifact:
    """Run that stage in a flow of its own."""

    @flow
    async def one() -> Artifact:
        with use_session(session):
            return await keep_text(AnswerSlice(task_type="classification", max_length=8), **artifacts)

    return asyncio.run(one())


def test_what_is_edited_during_a_run_is_never_stored_under_the_digest_of_before(
    prefect_server: None, tmp_path: Path
) -> None:
    store, text = open_store(str(tmp_path / "store"), tmp_path / "cache"), tmp_path / "texts.txt"
    text.write_text("as it was")
    source = resolve_file(str(text))
    text.write_text("AS IT WAS")
    with pytest.raises(DataError, match="texts.txt was changed or deleted since this run began"):
        run_stage(Session(store, 1, 1), source=source)
    assert not list(store.manifests()) and not list(store.workspace().iterdir())
    text.write_text("as it was")
    MEANWHILE[:] = [lambda: text.write_text("AS IT WAS")]
    made = run_stage(Session(store, 1, 1), source=source)
    assert (store.folder(made) / "made.txt").read_text() == "as it was"

    MEANWHILE[:] = [lambda: (store.folder(made) / "more.txt").write_text("planted in a result that is read")]
    with pytest.raises(ArtifactDamaged, match="nothing was published; run again"):
        run_stage(Session(store, 1, 1), source=source, earlier=made)
    MEANWHILE.clear()
    assert len(list(store.manifests())) == 1


def test_an_upkeep_spares_the_folders_of_a_stage_that_is_running(prefect_server: None, tmp_path: Path) -> None:
    store, text = open_store(str(tmp_path / "store"), tmp_path / "cache"), tmp_path / "texts.txt"
    text.write_text("the film was good")
    (store.workspace() / "finetune-teacher-of-a-killed-worker").mkdir()
    swept: list[list[str]] = []

    def upkeep() -> None:
        under_way = {str(note["key"]) for note in store.running()}
        swept.append(store.leftovers(-1, under_way, dry=False))

    MEANWHILE[:] = [upkeep]
    run_stage(Session(store, 1, 1), source=resolve_file(str(text)))
    MEANWHILE.clear()
    assert swept == [["temporary/finetune-teacher-of-a-killed-worker"]]


def test_equal_results_of_two_stages_keep_their_own_task_runs(prefect_server: None, tmp_path: Path) -> None:
    """The run graph draws an edge from the task run that an artifact came from: not from another one that returned the
    same bytes, nor from none where only the artifact's facts were replaced."""
    store, text = open_store(str(tmp_path / "store"), tmp_path / "cache"), tmp_path / "texts.txt"
    text.write_text("the film was good")
    source = resolve_file(str(text))
    before = Session(store, 1, 1)
    run_stage(before, source=source)
    session = Session(store, 1, 1, plan=before)

    @flow
    async def both() -> list[Artifact]:
        with use_session(session):
            return [
                await keep_text(AnswerSlice(task_type="classification", max_length=8), source=source, label=label)
                for label in ("one", "two")
            ]

    one, two = asyncio.run(both())
    assert one == two and [record.cache for record in session.records] == ["hit", "hit"]
    runs = [session.state_of(artifact).state_details.task_run_id for artifact in (one, two)]
    assert list(map(str, runs)) == [record.task_run for record in session.records] and runs[0] != runs[1]
    assert session.state_of(evolve(one, facts={"rows": 1})) is session.state_of(one)
    assert session.state_of(source) is source and session.state_of(None) is None
    assert [record.number for record in session.records] == [0, 1]


def test_a_result_of_another_release_is_a_miss_that_says_so_and_still_tells_how_long_it_took(
    prefect_server: None, tmp_path: Path
) -> None:
    store, text = FolderStore((tmp_path / "store").resolve()), tmp_path / "texts.txt"
    text.write_text("a text")
    source = resolve_file(str(text))
    run_stage(Session(store, 1, 1), source=source)
    (manifest,) = store.manifests()
    older = {name: value for name, value in manifest.items() if name not in ("key_schema", "seal")} | {
        "schema": 1,
        "seconds": 4.5,
        "used": {},
    }
    store.manifest_path(manifest["key"]).write_text(json.dumps(older))
    planning = Session(store, 1, 1, planning=True)
    with use_session(planning):
        asyncio.run(keep_text(AnswerSlice(task_type="classification", max_length=8), source=source))
    (record,) = planning.records
    assert (record.cache, record.why, record.estimate) == (
        "miss",
        "results of another release of Limbeck are not used",
        4.5,
    )
    session = Session(store, 1, 1)
    made = run_stage(session, source=source)
    assert [each.cache for each in session.records] == ["miss"] and store.find(manifest["key"]) == made


def test_a_line_of_the_log_begins_with_the_reason_and_ends_with_the_key(
    prefect_server: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Prefect's page of a run shows the beginning of a line: it was a hash, and the reason was cut off."""
    (text := tmp_path / "texts.txt").write_text("as it was")
    session = Session(open_store(str(tmp_path / "store"), tmp_path / "cache"), 1, 1)
    logger = logging.getLogger("prefect.task_runs")
    logger.addHandler(caplog.handler)  # Prefect keeps its records from the root
    caplog.set_level(logging.INFO, logger=logger.name)
    try:
        run_stage(session, source=resolve_file(str(text)))
    finally:
        logger.removeHandler(caplog.handler)
    [record] = session.records
    said = {line for line in caplog.messages if record.key[:12] in line}
    assert said == {f"computed, because: {record.why} (key {record.key[:12]})"} and len(record.why) > 10
