"""The command line inside of the test's own process: its exit status, output and errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from flows.cli.app import main


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    output: str
    error: str


Command = Callable[..., Done]


def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs one command with its words."""

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["limbeck", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return Done(int(ended.value.code or 0), written.out, written.err)

    return run
