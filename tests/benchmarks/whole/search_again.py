"""A search that is run again: its latency table, the trainings of its rounds and its candidates are cached, and what is
left is the work of the house itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks.measure import Figure
from tests.benchmarks.orchestration import FAST, figures_of_again, laps_again, recipe_in, servers_up
from tests.benchmarks.setting import Setting


def search_in(folder: Path) -> Path:
    """Write a recipe that is searched: four shapes are scored in a supernet and trained alone to check it, and three
    become candidates, of which there is a rank correlation. Long enough for scores to differ, most of all."""
    trained = {**FAST, "steps": 30, "learning_rate": 3e-3}
    searched = {
        "budget": {"bytes": "0.9x"},
        "space": {"layers": [1, 2], "neurons": [0.5, 1.0]},
        "training": {**trained, "signal": "teacher"},
        "ranking": "supernet",
        "supernet": {"prediction": trained, "rows": 20},
        "strategy": "top",
        "shapes": 4,
        "rounds": 2,
        "candidates": 3,
    }
    return recipe_in(folder, [], search=searched)


def search_again(setting: Setting) -> list[Figure]:
    """Return the seconds of a second search beyond its imports, and those of its own process alone, which other
    programs of a busy machine do not lengthen."""
    with tempfile.TemporaryDirectory() as scratch:
        recipe, home = search_in(Path(scratch)), Path(scratch) / "home"
        home.mkdir()
        with servers_up(home):
            laps = laps_again(setting, recipe, home, "search", {})
    name, of = f"cached search of {len(laps[0]['out']['stages'])} stages", "second search"
    used = [lap["cpu"] for lap in laps]
    return [
        *figures_of_again(name, of, laps),
        Figure(f"{name}: processor time of its process", of, "", used, "cpu", None, unit=" s", at_most=True),
    ]
