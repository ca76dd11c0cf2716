"""The progress artifact of a long stage: on its task run's page, by its name, and never in its way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prefect import flow, task

from tasks.stage import progress as stage_progress
from tasks.stage.progress import GIVE_UP, ProgressPage, artifact_key, share


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first move be sent, and every one."""
    monkeypatch.setattr(stage_progress, "FIRST", 0.0)
    monkeypatch.setattr(stage_progress, "BETWEEN", 0.0)


async def work(page: ProgressPage, *, whole: bool) -> None:
    """Do what a stage does: report again and again, and end."""
    for done in (1, 2):
        page.move(done, 4)
        assert page.sending is not None
        await page.sending
    await page.close(whole=whole)


async def left(**wanted: str) -> list[dict[str, Any]]:
    """Read the artifacts of a key or of a flow run; the client's own way insists on filters of flow and task runs
    too."""
    from prefect.client.orchestration import get_client

    chosen = {name: {"any_": [value]} for name, value in wanted.items()}
    async with get_client() as client:
        found: list[dict[str, Any]] = (
            await client._client.post("/artifacts/filter", json={"artifacts": chosen})
        ).json()
    return found


@pytest.mark.parametrize("whole", [True, False])
def test_one_artifact_moves_on_the_task_runs_page_and_goes_when_the_stage_is_complete(
    prefect_server: None, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(stage_progress, "LAST", 60.0)  # seconds: a busy server answers late

    @task
    async def long() -> str:
        from prefect.runtime import task_run

        await work(ProgressPage(f"distill-layers/Small s{whole}", "http://mlflow/run"), whole=whole)
        return str(task_run.id)

    @flow
    async def outer() -> str:
        return await long()

    run = asyncio.run(outer())
    kept = asyncio.run(left(key=f"progress-distill-layers-small-s{str(whole).lower()}"))
    if whole:
        assert kept == [], "of a finished run, no card of a stage's progress is left among its results"
        return
    [found] = kept
    assert found["task_run_id"] == run and found["type"] == "progress" and float(found["data"]) == 50.0
    assert found["description"] == f"[distill-layers/Small s{whole} in MLflow](http://mlflow/run)"


def test_a_short_stage_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_progress, "FIRST", 60.0)

    async def short() -> ProgressPage:
        page = ProgressPage("prepare-rows")
        page.move(1, 2)
        await page.close(whole=True)
        return page

    page = asyncio.run(short())
    assert page.sending is None and page.artifact is None


def test_a_stage_that_speaks_at_its_end_alone_leaves_none() -> None:
    page = ProgressPage("prepare-rows")
    page.move(24, 24)
    assert page.sending is None


def test_a_server_that_is_away_costs_nothing_and_is_given_up(
    prefect_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    async def away() -> ProgressPage:
        page = ProgressPage("finetune-teacher")
        for done in range(GIVE_UP + 2):
            page.move(done, 10)
            assert page.sending is not None
            await page.sending
        await page.close(whole=True)
        return page

    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}):
        page = asyncio.run(away())
    assert page.failures == GIVE_UP and page.artifact is None


@pytest.mark.parametrize(("done", "total", "percent"), [(1, 3, 33.3), (0, 0, 0.0), (5, 4, 100.0), (-1, 4, 0.0)])
def test_a_share_stays_in_its_bounds(done: int, total: int, percent: float) -> None:
    assert share(done, total) == percent


def test_keys_are_legal_and_stable() -> None:
    assert (
        artifact_key("progress-score-model/4x312 s1")
        == "progress-score-model-4x312-s1"
        == artifact_key("progress-score-model/4x312 s1")
    )
    assert artifact_key("Ä/..") == ""
