"""Files that a command is asked to write: whether it can is asked before its work, and whatever the disk says is one
sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from flows.cli import app, make_models, past_runs, shared
from flows.cli.output_files import disk_sentence, writable
from tasks.errors import RecipeError
from tests.architecture.sources import ROOT

WRITES = {"--json", "--plot", "--output"}


def command() -> Any:
    return typer.main.get_command(app.app)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "sst2-tinybert", "--json"],
        ["demo", "--json"],
        ["resume", "--json"],
        ["sweep", "sst2-tinybert", "--json"],
        ["sweep", "sst2-tinybert", "--plot"],
        ["plan", "sst2-tinybert", "--json"],
        ["ledger", "--json"],
        ["reproduce", "--json"],
        ["report", "--output"],
        ["init", "rows.csv", "-o"],
    ],
    ids=lambda words: " ".join(words),
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be refused by a traceback, after hours."""
    for module in (shared, make_models, past_runs):
        monkeypatch.setattr(module, "open_home", lambda: pytest.fail("the work began"), raising=False)
    with pytest.raises(
        RecipeError, match="the folder .*nowhere.* for out does not exist; create it, or name another file"
    ):
        command().main([*words, str(tmp_path / "nowhere" / "out")], standalone_mode=False)


def test_every_option_that_names_a_file_to_write_is_asked_first() -> None:
    found = [option for one in command().commands.values() for option in one.params if WRITES & set(option.opts)]
    assert len(found) >= 9 and all(option.callback is not None for option in found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "is not a file"),
        ("file/inner", "does not exist|is not a valid file name"),
        ("x" * 300, "is not a valid file name"),
        ("pipe", "is not a file"),
    ],
    ids=["folder", "below a file", "too long", "pipe"],
)
def test_names_that_cannot_be_files_are_sentences(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecipeError, match=said):
        writable(tmp_path / name)
    assert writable(tmp_path / "file") == tmp_path / "file" and writable(tmp_path / "new") and writable(None) is None


def test_what_the_disk_says_later_is_a_sentence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").mkdir()
    shutil.copy(ROOT / "deployments/results/sst2-methods.json", tmp_path)
    monkeypatch.setattr("sys.argv", ["limbeck", "results", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        app.main()
    said = capsys.readouterr().err
    assert (
        ended.value.code == 1
        and said.startswith("limbeck: a file cannot be written or read")
        and len(said.strip().splitlines()) == 1
    )


def test_a_full_disk_is_called_full() -> None:
    with pytest.raises(OSError) as failed, open("/dev/full", "w", buffering=1) as full:
        full.write("more than fits\n")
    assert disk_sentence(failed.value) == "the disk is full; free some space, and run the same command again"
    failed.value.filename = "cache/a"
    assert disk_sentence(failed.value).startswith("the disk is full (cache/a); ")
