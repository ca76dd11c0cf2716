"""The Python API: the commands as functions, under a running event loop and without one, with their sentences."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import flows.api
from flows.api import compress, plan, predict
from flows.api.commands import check_end, recipe_words
from tasks.errors import DataError, LimbeckError
from tasks.results.record import PlannedRun
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import recipe_for
from tests.forked.interpreter import forked_processes
from tests.scoring.small import write_classifier

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("classifier"))


def test_every_name_is_typed_and_documented() -> None:
    assert flows.api.__all__ == ["compress", "metric", "metrics_module", "plan", "predict", "pull", "report"]
    for name in flows.api.__all__:
        function = vars(flows.api)[name]
        hints = typing.get_type_hints(function)
        assert function.__doc__ and set(hints) == {"return", *inspect.signature(function).parameters}
    assert all((ROOT / package / "py.typed").is_file() for package in ("flows", "tasks"))


def test_predictions_look_like_those_of_a_pipeline(folder: Path) -> None:
    one, other = predict(folder, ["the film was good", "bad plot"])
    assert set(one) == {"label", "score"} and predict(folder, "bad plot") == [pytest.approx(other)]
    [pair] = predict(str(folder), "the film", "was good")
    assert pair["score"] != one["score"]
    for texts, pairs, sentence in ((["a", ""], None, "text 1 is empty"), ([], None, "no text"), (["a"], [], "1 texts")):
        with pytest.raises(DataError, match=sentence):
            predict(folder, texts, pairs)


def test_a_plan_under_a_running_loop(
    tiny_bert: Path, tiny_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cell of a notebook, where ``asyncio.run`` is refused."""
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    recipe = recipe_for(tiny_bert, tiny_rows, **SHORT).model_dump(mode="json", exclude_unset=True)

    async def cell() -> PlannedRun:
        return plan(recipe, changes={"teacher.seed": 7})

    with forked_processes():
        found = asyncio.run(cell())
    assert {stage.cache for stage in found.missing} == {"miss"} and found.missing[0].stage == "prepare-rows"
    assert found.refused == "" and found.missing == found.stages


def test_a_mistake_is_the_sentence_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    with pytest.raises(LimbeckError, match="unknown key 'teachr'; did you mean 'teacher'") as caught:
        compress({"name": "mine", "task": "sst2", "teachr": {}, "students": [{"name": "half", "layers": 6}]})
    assert "Traceback" not in str(caught.value)


def test_changes_are_settings_of_the_command_line(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "students.half.layers": 2,
        "data.source": "a b.csv",
        "exports": None,
        "data.purge": False,
    }
    assert recipe_words("sst2-tinybert", changes, tmp_path) == [
        "sst2-tinybert",
        "--set=students.half.layers=2",
        '--set=data.source="a b.csv"',
        "--set=exports=null",
        "--set=data.purge=false",
    ]


def test_the_end_of_a_command_is_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        check_end(130, ["limbeck: stopped\n"], quiet=True)
    with pytest.raises(LimbeckError, match="^the disk is full$"):
        check_end(1, ["a warning\n", "limbeck: the disk is full\n"], quiet=True)
    with pytest.raises(LimbeckError, match="ended with status 3: Traceback"):
        check_end(3, ["Traceback (most recent call last):\n"], quiet=True)
    check_end(0, ["limbeck: NAME version 1 was REFUSED by the gate\n"], quiet=False)
    assert "REFUSED" in capsys.readouterr().err


INTERRUPTED = """
import sys
from flows.api.commands import run_command
try:
    run_command("ui", "--prefect-port", sys.argv[1], "--mlflow-port", sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_an_interrupt_reaches_the_command_and_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``limbeck ui`` runs until Ctrl-C, and says that it stops."""
    from tests.web_server import free_port

    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    words = [sys.executable, "-c", INTERRUPTED, str(free_port()), str(free_port())]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait() == 0 and first.startswith("Prefect ") and rest.rstrip().endswith("interrupted"), first + rest
