"""The fault suite as a test, with ``-m slow``; what sees the like by default is in ``tests/README.md``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.s3_server import S3Server
from tests.suites.faults import FAULTS, all_faults


def problems(names: list[str], folder: Path, prefect: str, s3: S3Server) -> list[tuple[str, list[str]]]:
    """Let faults happen against the servers of the tests; return what went wrong."""
    known = {
        "PREFECT_API_URL": prefect,
        "PREFECT_API_AUTH_STRING": os.environ["PREFECT_API_AUTH_STRING"],
        **s3.environment(),
    }
    outcomes = all_faults(names, folder, known)
    return [(outcome.fault, outcome.problems) for outcome in outcomes if outcome.problems]


@pytest.mark.slow
def test_no_fault_loses_anything(prefect_url: str, s3: S3Server, tmp_path: Path) -> None:
    assert not problems(list(FAULTS), tmp_path, prefect_url, s3)
