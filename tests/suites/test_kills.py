"""The kill suite as a test: two kills by default, a hundred with ``-m slow``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.s3_server import S3Server
from tests.suites.doomed import WINDOWS
from tests.suites.kills import Moment, all_moments


def lived_through(count: int, folder: Path, prefect: str, s3: S3Server, abreast: int) -> list[Moment]:
    """Kill a few times against the servers of the tests."""
    return all_moments(count, folder, {"PREFECT_API_URL": prefect, **s3.environment()}, seed=count, abreast=abreast)


def test_a_kill_inside_a_window_loses_nothing(prefect_url: str, s3: S3Server, tmp_path: Path) -> None:
    found = lived_through(2, tmp_path, prefect_url, s3, 2)
    assert {moment.window for moment in found} == set(list(WINDOWS)[:2])
    assert not [(moment.window, moment.where, moment.problems) for moment in found if moment.problems]


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(prefect_url: str, s3: S3Server, tmp_path: Path) -> None:
    found = lived_through(100, tmp_path, prefect_url, s3, max(1, (os.cpu_count() or 1) - 1))
    assert not [(moment.window, moment.where, moment.problems) for moment in found if moment.problems]
