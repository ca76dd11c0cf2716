"""The entry point: the version, completion, and a system on which nothing would run."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from flows.cli.__main__ import start_command_line
from tests.command_line import command_line

ROOT = Path(__file__).resolve().parents[3]


def test_the_version_is_an_option_and_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [command_line(monkeypatch, capsys)(word).output for word in ("--version", "version")]
    assert said == [f"limbeck {version('limbeck')}\n"] * 2


def test_commands_are_completed() -> None:
    asked = {"_LIMBECK_COMPLETE": "complete_bash", "COMP_WORDS": "limbeck pre", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "flows.cli"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | asked, capture_output=True, text=True)
    assert done.stdout.split() == ["predict"], done.stderr


def test_windows_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit) as ended:
        start_command_line()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("limbeck: Windows is not supported")
