"""``limbeck ui`` and the commands of its home, each a process of its own. Slow: a whole tiny run, twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from flows.home import Home
from flows.servers.access import read_servers
from tests.flows.servers.ui import limbeck, limbeck_ui
from tests.flows.test_compress import FAST, recipe_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
SMALL = {
    "general_distillation": None,
    "corpus": None,
    "augmentation": None,
    "layer_dropping": None,
    "students": [{"name": "half", "layers": 2, "stages": []}],
    "task_distillation": {"intermediate": None, "prediction": FAST},
}
"""A chain of few stages."""


@pytest.fixture
def recipe(tiny_bert: Path, tiny_rows: Path, tmp_path: Path) -> str:
    written = recipe_for(tiny_bert, tiny_rows, **SMALL).model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "tiny.yaml").write_text(json.dumps(written))
    return str(tmp_path / "tiny.yaml")


def test_every_command_works_after_the_servers_of_its_home_have_stopped(
    recipe: str, tiny_bert: Path, tmp_path: Path
) -> None:
    """On 941b8b9 an experiment that was made through the server could not be read without it by any command."""
    home = Home(tmp_path / "home")
    with limbeck_ui(home):
        assert all(one.is_proved() for one in read_servers(home.servers_file).values())
        done = limbeck(home, "run", recipe)
        assert done.returncode == 0, done.stdout + done.stderr
        second = limbeck(home, "ui")
        assert second.returncode == 1 and "is already running" in second.stderr and len(second.stderr.splitlines()) == 1
        exported = limbeck(home, "env").stdout
        assert "PREFECT_API_AUTH_STRING=limbeck:" in exported and "MLFLOW_TRACKING_PASSWORD=" in exported
    assert not home.servers_file.exists()
    name = f"tiny-{tiny_bert.name}@1"  # a model is registered under its task and its teacher
    pull = ["pull", name, str(tmp_path / "pulled")]
    for words in (["runs"], ["explain"], ["ledger"], ["report"], pull, ["run", recipe]):
        done = limbeck(home, *words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    with limbeck_ui(home, signal.SIGKILL):
        done = limbeck(home, "pull", name, str(tmp_path / "again"))
        assert done.returncode == 0, done.stderr
    assert home.servers_file.exists() and limbeck(home, "runs").returncode == 0, "a file of servers that were killed"
    with limbeck_ui(home):
        assert limbeck(home, "runs").returncode == 0


def test_two_runs_at_once_in_a_new_home_both_work(recipe: str, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    home = Home(tmp_path / "home")
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda number: limbeck(home, "run", recipe, "--set", f"data.seed={number}"), range(2)))
    assert [done.returncode for done in runs] == [0, 0], "".join(done.stdout + done.stderr for done in runs)
