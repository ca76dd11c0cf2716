"""The limit of a stage on the clock: what hangs ends in one sentence, and its process with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from prefect import flow

from flows.run.remote import silent_minutes, stage_hours
from tasks.engine import process
from tasks.errors import RecipeError, TooLong
from tasks.ports.store.open import open_store
from tasks.recipe.slices import AnswerSlice
from tasks.stage.context import StageContext
from tasks.stage.decorator import stage
from tasks.stage.session import Session, use_session

HANGS = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"event": "log", "message": "hangs now"}', flush=True)
time.sleep(3600)
"""


@stage(makes="answers", engine="answer")
async def hanging_answers(context: StageContext, knobs: AnswerSlice) -> None:
    """Start an engine that hangs, and does not hear a request to stop."""
    await process.run_engine("hangs_for_ever", {"job": "hang", "threads": 1}, context.workspace, context.listen)


def run_stage_of_engine(text: str, script: Path, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run that stage in a session, with this text as the program of its engine."""
    monkeypatch.setattr(process, "ENGINE_ENDING_SECONDS", 0.5)
    script.write_text(text)
    monkeypatch.setattr(process, "command", lambda module, processes: [sys.executable, str(script)])

    @flow
    async def one() -> None:
        with use_session(session):
            await hanging_answers(AnswerSlice(task_type="classification", max_length=8))

    asyncio.run(one())


def test_a_stage_that_hangs_ends_in_a_sentence_and_its_process_is_killed(
    prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, script = Session(open_store(str(tmp_path), tmp_path), 1, 1, stage_hours=4 / 3600), tmp_path / "engine.py"
    with pytest.raises(TooLong, match="hanging-answers did not end within 0.001.* hours.*resources.stage_hours"):
        run_stage_of_engine(HANGS, script, session, monkeypatch)
    assert [record.state for record in session.records] == ["failed"]
    left = [child for child in psutil.Process().children(recursive=True) if str(script) in child.cmdline()]
    assert left == []


REPORTS = """
import time
for step in range(12):
    print('{"event": "log", "message": "a step"}', flush=True)
    print('{"event": "used", "cpu_seconds": 1, "peak_bytes": 1, "gpus": 0}', flush=True)
    time.sleep(0.25)
while True:
    print('{"event": "used", "cpu_seconds": 1, "peak_bytes": 1, "gpus": 0}', flush=True)
    time.sleep(0.25)
"""


def test_a_stage_that_reports_nothing_ends_and_one_that_reports_goes_on(
    prefect_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung engine kept its GPU until the limit of the stage, which is half a day."""
    session = Session(open_store(str(tmp_path), tmp_path), 1, 1, silent_minutes=2 / 60)
    heard: list[str] = []
    monkeypatch.setattr(StageContext, "note_report", noted(heard, StageContext.note_report))

    with pytest.raises(TooLong, match="hanging-answers reported nothing for 0.033.* minutes.*LIMBECK_SILENT_MINUTES"):
        run_stage_of_engine(REPORTS, tmp_path / "engine.py", session, monkeypatch)
    assert len(heard) == 12, "it went on for three seconds, with two seconds of silence allowed"


def noted(heard: list[str], note: Callable[[StageContext], None]) -> Callable[[StageContext], None]:
    """Return a method that counts its calls."""

    def counted(context: StageContext) -> None:
        heard.append(context.record.name)
        note(context)

    return counted


def test_a_silence_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIMBECK_SILENT_MINUTES", raising=False)
    assert silent_minutes() == 0, "no limit where no pool sets one: a processor may score for an hour"
    monkeypatch.setenv("LIMBECK_SILENT_MINUTES", "an hour")
    with pytest.raises(RecipeError, match="LIMBECK_SILENT_MINUTES is 'an hour'; set it to minutes, for example 60"):
        silent_minutes()


@pytest.mark.parametrize(("worker", "hours"), [("", 12.0), ("1.5", 1.5), ("24", 12.0)])
def test_the_shorter_of_two_limits_counts(worker: str, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_STAGE_HOURS", worker)
    assert stage_hours(12.0) == hours


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_STAGE_HOURS", "soon")
    with pytest.raises(RecipeError, match="LIMBECK_STAGE_HOURS is 'soon'; set it to hours, for example 1.5"):
        stage_hours(12.0)
