"""The commit in a run's tags."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tasks.ports.tracking import runs


def test_git_is_asked_once_for_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracker, results and manifest asked it, one after another: three processes at the end of a cached run."""
    asked: list[list[str]] = []

    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, stdout="abc\n")

    runs.made_with.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("pathlib.Path.exists", lambda path: True)
    try:
        found = [runs.made_with() for _ in range(3)]
    finally:
        runs.made_with.cache_clear()
    assert len(asked) == 1 and all(one["mlflow.source.git.commit"] == "abc" for one in found)
