"""A search whose process is killed at several moments, in the middle of a supernet among them, ends with the digests of
one that was never stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.results.run import RunResult
from tests.families import write_tiny
from tests.flows.branches.test_lottery import RUN, digests
from tests.flows.test_compress import FAST
from tests.search.test_search import search_recipe

SEARCH = RUN.replace(".create())", '.create(), kind="search")')
SLOWLY = {**FAST, "steps": 600, "checkpoint_minutes": 0.002}
"""A supernet that takes some seconds, and leaves checkpoints."""
SMALL = {"space": {"layers": [1, 2], "neurons": [0.5, 1.0]}}
LARGE = {
    "space": {"layers": [1, 2, 3, 4], "width": [0.5, 1.0], "neurons": [0.5, 1.0]},
    "budget": {"flops": "1x"},
    "evolution": {"above": 8, "population": 4, "generations": 3},
}
"""A space of which generations are scored that NSGA-II chooses."""


def stages_in(home: Home) -> list[str]:
    """Return the text of all manifests of a store."""
    manifests = (Path(home.store) / "manifests").rglob("*.json") if Path(home.store).is_dir() else ()
    return [path.read_text() for path in manifests]


def has_begun(home: Home) -> bool:
    return len(stages_in(home)) >= 2


def trains_a_supernet(home: Home) -> bool:
    """Tell whether a supernet has left a checkpoint: no other training of the recipe takes as long."""
    return any((Path(home.store) / "checkpoints").rglob("state.json"))


def has_judged(home: Home) -> bool:
    return any('"judge-shapes"' in one for one in stages_in(home))


MOMENTS = (has_begun, trains_a_supernet, has_judged)


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_search_that_is_killed_at_three_moments_ends_with_equal_digests(
    prefect_url: str, tiny_rows: Path, tmp_path: Path, size: dict[str, dict[str, object]]
) -> None:
    if size is LARGE:
        pytest.importorskip("optuna", reason="optuna is not installed: pip install 'limbeck[search]'")
    write_tiny("bert", tmp_path / "whole", num_hidden_layers=4)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    of_server, found = {"PREFECT_API_URL": prefect_url}, {}
    for name in ("whole", "stopped"):
        recipe = search_recipe(
            tmp_path / name,
            tiny_rows,
            **size,
            ranking="supernet",
            supernet={"prediction": SLOWLY, "rows": 20},
            candidates=1,
        )
        home = Home(tmp_path / f"home-{name}").create()
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json", by_alias=True)))
        command = [sys.executable, "-c", SEARCH, str(tmp_path / f"{name}.yaml"), str(home.root)]
        for moment in MOMENTS if name == "stopped" else ():
            running = subprocess.Popen(command, env=os.environ | of_server, start_new_session=True)
            deadline = time.monotonic() + 300
            while running.poll() is None and not moment(home) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert running.poll() is None, f"it ended before {moment.__name__}"
            running.send_signal(signal.SIGKILL)
            running.wait()
        result = run_recipe(recipe, home=home, kind="search")
        search = RunResult.model_validate(result).search
        assert search is not None and search.checked, "it made no supernet"
        judged = sum('"judge-shapes"' in one for one in stages_in(home))
        assert (judged >= 3) == (size is LARGE), "only of a large space several generations are judged"
        shapes = {one.name: (one.state, one.scores) for one in search.shapes}
        found[name] = {**digests(result), "": str((shapes, search.supernet_tau))}
    assert found["whole"] == found["stopped"] and len(found["whole"]) > 2
