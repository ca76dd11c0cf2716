"""The kill suite as a test, with ``-m slow``; what sees the like by default is in ``tests/README.md``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.s3_server import S3Server
from tests.suites import struck
from tests.suites.doomed import WINDOWS
from tests.suites.kills import Moment, Undisturbed, all_moments, undisturbed


@pytest.fixture
def servers(prefect_url: str, s3: S3Server) -> dict[str, str]:
    """The servers of the tests."""
    return {
        "PREFECT_API_URL": prefect_url,
        "PREFECT_API_AUTH_STRING": os.environ["PREFECT_API_AUTH_STRING"],
        **s3.environment(),
    }


@pytest.fixture(scope="module")
def bases() -> dict[str, Undisturbed]:
    """Undisturbed runs, by the kind of their store; who needs one first makes it."""
    return {}


def base_of(
    bases: dict[str, Undisturbed], kind: str, folder: Path, servers: dict[str, str], database: Path
) -> Undisturbed:
    if kind not in bases:
        (folder / f"{kind}-base").mkdir(parents=True)
        bases[kind] = undisturbed(kind, folder / f"{kind}-base", servers, database)
    return bases[kind]


def wrong(found: list[Moment] | list[struck.Moment]) -> list[tuple[str, str, list[str]]]:
    return [(moment.window, moment.where, moment.problems) for moment in found if moment.problems]


@pytest.mark.slow
def test_a_kill_inside_a_window_loses_nothing(
    servers: dict[str, str],
    template: Path,
    bases: dict[str, Undisturbed],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    place = tmp_path_factory.mktemp("undisturbed")
    found = all_moments(
        1,
        tmp_path,
        servers,
        seed=2,
        abreast=1,
        base_of=lambda kind: base_of(bases, kind, place, servers, template),
        database=template,
    )
    assert {moment.window for moment in found} == set(list(WINDOWS)[:1])
    assert not wrong(found)


@pytest.mark.slow
def test_an_engine_that_is_killed_under_a_run_leaves_nothing_behind(
    servers: dict[str, str],
    template: Path,
    bases: dict[str, Undisturbed],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> None:
    usual = base_of(bases, "folder", tmp_path_factory.mktemp("undisturbed"), servers, template)
    base = struck.Base(usual.recipe, usual.digests, usual.versions, usual.seconds, engines=[0.0] * 3)
    (folder := tmp_path / "struck").mkdir()
    moment = struck.live_through(struck.Moment(0, "engine", "folder", share=0.5), base, folder, servers, template)
    assert not wrong([moment]), moment.ended


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(servers: dict[str, str], tmp_path: Path) -> None:
    assert not wrong(all_moments(100, tmp_path, servers, seed=100, abreast=max(1, (os.cpu_count() or 1) - 1)))


@pytest.mark.slow
def test_forty_strikes_and_jumps_lose_nothing(s3: S3Server, tmp_path: Path) -> None:
    assert not wrong(struck.all_struck(struck.moments(40, 0), tmp_path, s3.environment()))
