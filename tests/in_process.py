"""The command line in the process of a test: the same entry point, errors and statuses, without a second import."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass

import pytest

from flows.cli.app import main


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    output: str
    errors: str


def limbeck(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, piped: str | None = None
) -> Ended:
    """Run a command; ``piped`` is its standard input. MLflow writes its address into the environment, which a new
    process would not have."""
    monkeypatch.setattr(sys, "argv", ["limbeck", *words])
    if piped is not None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(piped))
    capsys.readouterr()
    before = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with pytest.raises(SystemExit) as ended:
        main()
    os.environ.clear()
    os.environ.update(before)
    found = capsys.readouterr()
    return Ended(int(ended.value.code or 0), found.out, found.err)
