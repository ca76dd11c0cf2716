"""Candidates beside the labels-only baseline of their size, from the recipe to the result file, MLflow and the model
card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.branches.comparison import controls_of, named_by
from flows.cli.runner import run_recipe
from flows.home import Home
from flows.publish.results import efforts_of
from flows.publish.results_folder import add_result, write_page
from flows.run.recipe_file import load_recipe
from tasks.ports.tracking.registry import Registry
from tasks.ports.tracking.tracker import Tracker
from tasks.scoring.evaluation import read_evaluation
from tests.command_line import plan_recipe
from tests.flows.test_compress import FAST, executed, recipe_for

STUDENTS: list[dict[str, Any]] = [
    {"name": "half", "layers": 2, "stages": ["intermediate"], "seeds": [0, 1]},
    {"name": "plain", "role": "baseline", "signal": "labels", "layers": 2, "stages": []},
]
DROPPING = {**FAST, "strategies": ["top"], "drop": [1, 2]}


def recipe(bert: Path, rows: Path, **changes: Any) -> Any:
    short = {
        "general_distillation": None,
        "corpus": None,
        "augmentation": None,
        "students": STUDENTS,
        "layer_dropping": DROPPING,
    }
    return recipe_for(bert, rows, **short | changes)


@pytest.fixture(scope="module")
def first(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    return run_recipe(recipe(tiny_bert, tiny_rows), home=home, json_path=home.root / "out.json")


def test_those_of_one_size_are_compared_and_nobody_else(first: dict[str, Any]) -> None:
    by_name = {model["name"]: model for model in first["models"]}
    assert {name for name, model in by_name.items() if model["against"]} == {"half", "top-2"}
    assert {model["name"] for model in first["models"] if model["plain"]} == {"plain"}
    assert by_name["top-2"]["parameters"] == by_name["plain"]["parameters"] != by_name["top-1"]["parameters"]
    said = by_name["half"]["against"]["plain"]["validation"]
    assert (
        said["verdict"] in ("inside the noise", "not known by one seed")
        and said["seeds"] == [2, 1]
        and said["low"] <= said["value"] <= said["high"]
    )
    labels = {stage["label"] for stage in first["stages"] if stage["name"] == "contrast-models"}
    assert labels == {"half against plain", "top-2 against plain"}


def test_seeds_deviation_and_effort_are_told(first: dict[str, Any]) -> None:
    half, plain, teacher = (
        {model["name"]: model for model in first["models"]}[name] for name in ("half", "plain", "teacher")
    )
    scores = half["per_seed"]["validation"]["accuracy"]
    chosen = max((0, 1), key=lambda seed: (half["selection_scores"][seed], -seed))
    assert half["selected_seed"] == chosen and half["metrics"]["validation"]["accuracy"]["value"] == scores[chosen]
    assert half["means"]["validation"]["metrics"]["accuracy"]["value"] == pytest.approx(sum(scores) / 2)
    assert plain["means"]["validation"]["metrics"] == plain["metrics"]["validation"], "of one seed both are the same"
    assert half["seeds"] == [0, 1] and half["deviation"]["validation"]["accuracy"] == pytest.approx(
        abs(scores[0] - scores[1]) / 2**0.5
    )
    assert plain["deviation"]["validation"]["accuracy"] is None
    assert half["steps"] == [2 * FAST["steps"]] * 2 and plain["steps"] == teacher["steps"] == [FAST["steps"]]
    assert all(seconds > 0 for model in (half, plain, teacher) for seconds in model["train_seconds"])


def test_what_is_registered_is_the_chosen_seed_and_its_figures_are_its_own(
    first: dict[str, Any], home: Home, tmp_path: Path
) -> None:
    """A version was one seed, and its card, verdict and gate were means over seeds: 0.568 on a card, 0.733 by the model
    that was pulled."""
    tracker, models = (
        Tracker(home.own_tracking_uri, home.artifacts),
        {model["name"]: model for model in first["models"]},
    )
    for entry in first["registered"]:
        model, registry = models[entry["candidate"]], Registry(tracker, entry["name"])
        judged = read_evaluation(registry.evaluation(entry["version"], tmp_path))
        value = float((judged.predictions_SN[0] == judged.labels_N).mean())
        tags = registry.read().versions[entry["version"]]
        assert (
            judged.predictions_SN.shape[0] == 1
            and value == model["metrics"]["validation"]["accuracy"]["value"] == judged.about["figures"]["quality"]
        )
        assert (
            tags["quality"] == f"{value:.4f}"
            and tags["seed"] == str(model["selected_seed"])
            and tags["checkpoint.sha256"] == model["checkpoint"]
        )
        tracker.download(entry["name"], entry["version"], tmp_path / entry["version"])
        card = (tmp_path / entry["version"] / "README.md").read_text()
        assert f"| accuracy, validation | {value:.4f} [" in card
        assert ("mean of 2 seeds" in card and f"this is the model of seed {model['selected_seed']}" in card) == (
            model["name"] == "half"
        )


def test_a_second_run_compares_nothing_anew_and_more_seeds_do(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    again = run_recipe(recipe(tiny_bert, tiny_rows), home=home)
    assert executed(again) == set() and [model["against"] for model in again["models"]] == [
        model["against"] for model in first["models"]
    ]
    assert [model["train_seconds"] for model in again["models"]] == [
        model["train_seconds"] for model in first["models"]
    ]
    more = [STUDENTS[0] | {"seeds": [0, 1, 2]}, STUDENTS[1]]
    missed = {
        row["stage"]
        for row in plan_recipe(recipe(tiny_bert, tiny_rows, students=more), home=home)
        if row["cache"] == "miss"
    }
    assert "contrast-models/half against plain" in missed and not any("top-2" in stage for stage in missed)


def test_a_plain_baseline_stays_the_same_model_however_others_are_taught(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    others = {"intermediate": FAST, "prediction": {**FAST, "temperature": 8.0, "hard_weight": 0.5, "patience": {}}}
    missed = {
        row["stage"]
        for row in plan_recipe(recipe(tiny_bert, tiny_rows, task_distillation=others), home=home)
        if row["cache"] == "miss"
    }
    assert "distill-predictions/half s0" in missed and "distill-predictions/plain" not in missed


def test_a_candidate_is_compared_to_those_that_it_names_whatever_their_size(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    """Two students with other attentions had no interval of their difference: no baseline is of their size."""
    named = [STUDENTS[0] | {"compared_to": ["top-1", "plain"]}, STUDENTS[1]]
    again = run_recipe(recipe(tiny_bert, tiny_rows, students=named), home=home)
    labels = {stage["label"] for stage in again["stages"] if stage["name"] == "contrast-models"}
    assert labels == {"half against plain", "top-2 against plain", "half against top-1"}
    assert "distill-predictions" not in executed(again), "a name is no part of a key"
    before, said = (
        next(model["against"] for model in result["models"] if model["name"] == "half") for result in (first, again)
    )
    unlike = said["top-1"]["validation"]
    assert {"by", "layers", "drop"} <= set(unlike["differs"])
    assert unlike["low"] <= unlike["value"] <= unlike["high"] and unlike["seeds"] == [2, 1]
    assert said["plain"]["validation"]["differs"] == ["intermediate", "signal", "stages"]
    assert said["plain"]["validation"]["value"] == before["plain"]["validation"]["value"]
    assert "differs" not in before["plain"]["validation"] and not said["plain"]["validation"]["control"]


def test_a_phase_that_one_of_two_lacks_is_one_difference_and_one_of_the_recipe_is_none() -> None:
    """glue-best's student with hidden states first repeats the recipe's last phase as its own; every knob of both
    phases was told as a difference."""
    assert named_by(load_recipe("glue-best"), "outer-layers-hidden") == {"outer-layers": ("intermediate",)}


def test_without_a_plain_baseline_nothing_is_claimed(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    others = [student for student in STUDENTS if student["name"] != "plain"]
    stages = plan_recipe(recipe(tiny_bert, tiny_rows, students=others), home=home)
    assert {row["cache"] for row in stages} == {"hit"} and not any(
        row["stage"].startswith("contrast") for row in stages
    )


def test_a_plan_from_nothing_foresees_the_comparisons_of_students(
    prefect_server: None, tmp_path: Path, tiny_bert: Path, tiny_rows: Path
) -> None:
    fresh = Home(tmp_path / "home").create()
    stages = [
        row["stage"]
        for row in plan_recipe(recipe(tiny_bert, tiny_rows), home=fresh)
        if row["stage"].startswith("contrast")
    ]
    assert stages == ["contrast-models/half against plain"]


def test_the_card_and_mlflow_say_it_too(first: dict[str, Any], home: Home, tmp_path: Path) -> None:
    from tasks.ports.tracking.tracker import Tracker

    tracker = Tracker(home.own_tracking_uri, home.artifacts)
    version = next(entry for entry in first["registered"] if entry["candidate"] == "half")
    tracker.download(version["name"], version["version"], tmp_path / "model")
    assert "`plain`" in (tmp_path / "model" / "README.md").read_text()
    found = tracker.client.search_runs(
        [e.experiment_id for e in tracker.client.search_experiments()], "tags.candidate = 'half'"
    )
    assert any(run.data.tags.get("against", "").endswith(": plain") for run in found)


def test_efforts_of_nothing_are_nothing(tiny_bert: Path, tiny_rows: Path) -> None:
    assert efforts_of(recipe(tiny_bert, tiny_rows), [])["half"] == {
        "seeds": [0, 1],
        "steps": [0, 0],
        "train_seconds": [0.0, 0.0],
    }


def test_its_file_makes_a_results_page(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    again = run_recipe(
        recipe(tiny_bert, tiny_rows),
        home=home,
        json_path=tmp_path / "again.json",
        command=f"limbeck run tiny --set data.source={tiny_rows}",
    )
    assert executed(again) == set()
    early, late = (json.loads(path.read_text())["made"] for path in (home.root / "out.json", tmp_path / "again.json"))
    assert (
        early["minutes"]["run"] > late["minutes"]["run"] and early["minutes"]["cached"] == 0 < late["minutes"]["cached"]
    )
    add_result(tmp_path, tmp_path / "again.json", "")
    (tmp_path / "again.json").unlink()
    page = write_page(tmp_path).read_text()
    assert (
        "| `plain` | labels-only baseline |" in page
        and "`limbeck run tiny --set data.source=FOLDER/" in page
        and str(tiny_rows.parent) not in page
    )


CONTROLS = {
    "pruned-neurons": {
        "half": ["half-at-random"],
        "half-by-weights": ["half-at-random"],
        "half-distilled": ["half-at-random-distilled"],
    },
    "pruned-width": {"narrow": ["narrow-at-random"], "narrow-distilled": ["narrow-at-random-distilled"]},
    "pruned-heads": {"half": ["half-at-random"], "half-distilled": ["half-at-random-distilled"]},
    "movement": {name: ["at-random"] for name in ("magnitude", "movement", "soft-movement")},
    "two-bit": {"two-bits": ["rounded-later"]},
    "smallest": {},
}
"""What differs from a candidate of the shelf in nothing but chance, or in when it is rounded. A quarter of the neurons
has no control there, and ternary weights none that is rounded to three values."""


@pytest.mark.parametrize("name", CONTROLS)
def test_a_candidate_is_compared_with_what_lacks_the_choice_that_is_judged(name: str) -> None:
    """Taylor against random, or two bits against rounding, stood side by side without an interval."""
    found = load_recipe(name, ["data.source=x"])
    controls = {one.name: controls_of(found, one.name) for one in found.planned}
    assert {one: others for one, others in controls.items() if others} == CONTROLS[name]
