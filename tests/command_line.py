"""The command line in the process of a test: the same entry point, errors and statuses, without a second import."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pydantic import JsonValue

from flows.cli.app import main
from flows.cli.runner import plan_of, planned_session
from flows.home import Home
from tasks.recipe.recipe import Recipe


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    output: str
    error: str


Command = Callable[..., Done]


def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs one command with its words; ``piped`` is its standard input. MLflow writes its
    address into the environment, which a new process would not have."""

    def run(*words: str, piped: str | None = None) -> Done:
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
        written = capsys.readouterr()
        return Done(int(ended.value.code or 0), written.out, written.err)

    return run


def plan_recipe(recipe: Recipe, *, home: Home, kind: str = "run") -> list[dict[str, JsonValue]]:
    """Plan a run without running anything; return for each stage whether it is cached, why, and its estimated cost, in
    the form of ``limbeck plan --json``."""
    return [row.as_json() for row in plan_of(planned_session(recipe, home, kind)).stages]
