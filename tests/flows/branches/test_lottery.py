"""A lottery on a tiny real model: candidates share its rounds, a stopped one goes on with the next round, and ends with
the digests of one that was never stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.results.run import RunResult
from tasks.training.shrinking import tickets
from tests.families import write_tiny
from tests.flows.branches.test_makers import chain
from tests.flows.test_compress import FAST, executed

TICKET: dict[str, Any] = {
    "name": "ticket",
    "from": "teacher",
    "by": "lottery-ticket",
    "keep": 0.3,
    "rounds": 3,
    "rewind_to": 1,
    "prediction": {**FAST, "steps": 2},
}
CONTROLS = [{**TICKET, "name": one, "control": one} for one in ("dense", "random-weights", "random-mask", "one-shot")]


@contextmanager
def stopped_at(left: float) -> Iterator[None]:
    """Let the round fail that would leave about this share."""
    whole = tickets.rewind

    def fail(job: Any, knobs: Any, training: Any) -> None:
        if abs(knobs.left - left) < 1e-6:
            raise RuntimeError("the machine stops here")
        whole(job, knobs, training)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tickets, "rewind", fail)
        yield


def digests(result: dict[str, Any]) -> dict[str, Any]:
    return {row.name: row.checkpoint for row in RunResult.model_validate(result).models}


@pytest.mark.slow
def test_candidates_share_rounds_and_a_lottery_that_is_stopped_ends_with_equal_digests(
    prefect_server: None, engines_here: None, tiny_rows: Path, tmp_path: Path
) -> None:
    bert = write_tiny("bert", tmp_path / "whole")
    shutil.copytree(bert, tmp_path / "stopped")  # a registered model belongs to one store, and is named by this folder
    whole, stopped = (Home(tmp_path / f"home-{name}").create() for name in ("whole", "stopped"))
    recipe, other = (chain(tmp_path / name, tiny_rows, TICKET, *CONTROLS) for name in ("whole", "stopped"))
    first = run_recipe(recipe, home=whole)
    rows = {row.name: row for row in RunResult.model_validate(first).models}
    made = {stage["key"] for stage in first["stages"] if stage["name"] == "train-ticket"}
    assert len(made) == 1 + 2 + 4, "the first training, two rounds, and a last training of four candidates"
    shares = {name: round(row.nonzero_share or 0, 3) for name, row in rows.items()}
    assert shares["ticket"] == shares["random-mask"] == shares["random-weights"] == shares["one-shot"] < shares["dense"]
    assert rows["ticket"].role == "sparse" and rows["dense"].role == "baseline"
    assert set(rows["ticket"].against or {}) == {"dense", "random-weights", "random-mask", "one-shot"}
    assert not rows["dense"].against
    assert executed(run_recipe(recipe, home=whole)) == set()

    for number in (1, 2, 3):
        with stopped_at(0.3 ** (number / 3)), pytest.raises(Exception, match="machine stops here"):
            run_recipe(other, home=stopped)
    assert digests(run_recipe(other, home=stopped)) == digests(first)


RUN = """
import sys
from pathlib import Path
import yaml
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.recipe.recipe import Recipe
run_recipe(Recipe.model_validate(yaml.safe_load(Path(sys.argv[1]).read_text())), home=Home(Path(sys.argv[2])).create())
"""


@pytest.mark.slow
def test_a_lottery_of_ten_rounds_that_is_killed_at_five_moments_ends_with_equal_digests(
    prefect_url: str, tiny_rows: Path, tmp_path: Path
) -> None:
    write_tiny("bert", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    ten = {**TICKET, "rounds": 10, "keep": 0.2}
    found, of_server = {}, {"PREFECT_API_URL": prefect_url}
    for name in ("whole", "stopped"):
        recipe, home = chain(tmp_path / name, tiny_rows, ten), Home(tmp_path / f"home-{name}").create()
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json", by_alias=True)))
        command = [sys.executable, "-c", RUN, str(tmp_path / f"{name}.yaml"), str(home.root)]
        for rounds in (1, 3, 5, 7, 9) if name == "stopped" else ():
            running = subprocess.Popen(command, env=os.environ | of_server, start_new_session=True)
            deadline = time.monotonic() + 300
            while running.poll() is None and published(home) < rounds and time.monotonic() < deadline:
                time.sleep(0.05)
            assert running.poll() is None, "it ended before it was killed"
            running.send_signal(signal.SIGKILL)
            running.wait()
        found[name] = digests(run_recipe(recipe, home=home))
    assert found["whole"] == found["stopped"]


def published(home: Home) -> int:
    """Return the number of trainings of the lottery that are in the store."""
    manifests = (Path(home.store) / "manifests").rglob("*.json") if Path(home.store).is_dir() else ()
    return sum('"train-ticket"' in path.read_text() for path in manifests)
