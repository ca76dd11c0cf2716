"""Chains of candidates, each made from the one before it, on a tiny real model; and a further maker, added by the
worked change of ``tasks/README.md``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.branches.makers import MAKERS
from flows.cli.runner import planned_records, run_recipe
from flows.home import Home
from flows.stage_run import STAGE_TASKS
from tasks.errors import RecipeError
from tasks.ports.store.open import open_store
from tasks.recipe.candidates import knobs_by_maker
from tasks.recipe.recipe import Recipe
from tasks.results.run import RunResult
from tests.architecture.sources import ROOT
from tests.command_line import plan_recipe
from tests.docs.test_pages import changes_of
from tests.flows.test_compress import FAST, executed, recipe_for
from tests.package_copies import copy_packages, limbeck

CUT: dict[str, Any] = {"name": "cut", "from": "teacher", "by": "layer-dropping", "strategy": "top", "drop": 1, **FAST}
DISTILLED: dict[str, Any] = {
    "name": "distilled",
    "from": "cut",
    "by": "distillation",
    "intermediate": {**FAST, "matching": {"layer_map": "kept", "projection": "none"}},
    "prediction": FAST,
}
AGAIN: dict[str, Any] = {
    "name": "cut-again",
    "from": "distilled",
    "by": "layer-dropping",
    "strategy": "contribution",
    "drop": 1,
    "signal": "teacher",
    **FAST,
}
SMALL_ENOUGH = 8500
"""Parameters of the tiny model with two layers of about 2,200 each, but not with three."""
CHAIN = [AGAIN, {**CUT, "seeds": [0, 3]}, DISTILLED]
"""The last one stands first: the order in the recipe is free."""
ALONE: dict[str, Any] = {
    "students": [],
    "layer_dropping": None,
    "corpus": None,
    "general_distillation": None,
    "augmentation": None,
    "task_distillation": {},
}


def chain(bert: Path, rows: Path, *candidates: dict[str, Any], **changes: Any) -> Recipe:
    """Return a recipe of these candidates alone."""
    return recipe_for(bert, rows, **ALONE | changes, candidates=candidates)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def recipe(tiny_bert: Path, tiny_rows: Path) -> Recipe:
    """A chain of three, each with two seeds, of which the longest model misses the gate's criterion."""
    most = {"criteria": [{"metric": "parameters", "at_most": SMALL_ENOUGH}], "leakage": 1.0}
    return chain(tiny_bert, tiny_rows, *CHAIN, gate=most, exports={"of": ["cut-again"], "formats": ["onnx"]})


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, recipe: Recipe) -> dict[str, Any]:
    return run_recipe(recipe, home=home)


def test_every_step_of_a_chain_is_made_scored_exported_and_registered(result: dict[str, Any], home: Home) -> None:
    models = {model["name"]: model for model in result["models"]}
    assert {name: model["role"] for name, model in models.items()} == {
        "teacher": "teacher",
        "cut-again": "dropped",
        "cut-again-onnx": "export",
        "cut": "dropped",
        "distilled": "student",
    }
    assert [models[name]["seeds"] for name in ("cut", "distilled", "cut-again")] == [[0, 3]] * 3
    sizes = [models[name]["parameters"] for name in ("teacher", "cut", "distilled", "cut-again")]
    assert sizes[0] > sizes[1] == sizes[2] > sizes[3]
    assert {entry["candidate"] for entry in result["registered"]} == {"cut", "distilled", "cut-again"}
    store = open_store(home.store, home.cache)
    kept = {}
    for stage in result["stages"]:
        if stage["name"] in ("drop-layers", "distill-predictions"):
            artifact = store.find(stage["key"])
            assert artifact is not None
            config = json.loads((store.folder(artifact) / "config.json").read_text())
            kept[stage["label"]] = config["kept_layers"]
    assert kept["cut s3"] == kept["distilled s3"] == [0, 1, 2]
    assert len(kept["cut-again s3"]) == 2 and set(kept["cut-again s3"]) < {0, 1, 2}


def test_a_follower_is_made_from_the_checkpoint_of_its_own_seed(result: dict[str, Any], home: Home) -> None:
    store = open_store(home.store, home.cache)
    stages = {f"{stage['name']}/{stage['label']}": stage["key"] for stage in result["stages"]}
    for seed in (0, 3):
        first, second = (
            store.find(stages[name]) for name in (f"drop-layers/cut s{seed}", f"distill-predictions/distilled s{seed}")
        )
        nodes = {node["id"]: node for node in result["lineage"]["nodes"]}
        assert first is not None and second is not None
        follower = stages[f"distill-layers/distilled s{seed}"][:12]
        behind = {one for one, other in result["lineage"]["edges"] if other == follower}
        assert f"cut s{seed}" in {nodes[one]["label"] for one in behind}


def test_the_result_says_what_each_is_made_from_and_what_its_ancestors_cost(result: dict[str, Any]) -> None:
    found = RunResult.model_validate(result)
    rows = {row.name: row for row in found.models}
    assert rows["distilled"].making == "made from cut by distillation" and rows["teacher"].making == ""
    ancestors = {model["name"]: model["cost"].get("ancestors") for model in result["models"]}
    assert ancestors["cut"] is None
    assert ancestors["distilled"]["stages"] == ["drop-layers/cut s0", "drop-layers/cut s3"]
    assert {stage.partition("/")[0] for stage in ancestors["cut-again"]["stages"]} == {
        "drop-layers",
        "distill-layers",
        "distill-predictions",
    }
    shared = next(model for model in result["models"] if model["name"] == "cut-again")["cost"]["shared"]["stages"]
    assert "finetune-teacher" in shared and not [stage for stage in shared if stage.startswith("drop-layers")]


def test_a_refused_step_does_not_stop_its_followers(result: dict[str, Any]) -> None:
    verdicts = {entry["candidate"]: entry["decision"] for entry in result["registered"]}
    assert verdicts == {"cut": "refused", "distilled": "refused", "cut-again": "accepted"}


def test_a_second_run_computes_nothing(result: dict[str, Any], recipe: Recipe, home: Home) -> None:
    again = run_recipe(recipe, home=home)
    assert executed(again) == set()
    assert [model["metrics"] for model in again["models"]] == [model["metrics"] for model in result["models"]]


def test_followers_are_made_again_only_where_the_bytes_before_them_change(
    result: dict[str, Any], recipe: Recipe, home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    forced = run_recipe(recipe, home=home, force=frozenset({"drop-layers"}))
    assert executed(forced) == {"drop-layers"}
    other = chain(tiny_bert, tiny_rows, AGAIN, {**CUT, "seeds": [0, 3], "learning_rate": 1e-3}, DISTILLED)
    rows = plan_recipe(other, home=home)
    trained = {row["stage"]: row["cache"] for row in rows if row["stage"].startswith(("drop-", "distill-", "finetune"))}
    assert trained.pop("finetune-teacher") == "hit" and set(trained.values()) == {"miss"}


def test_a_further_seed_of_a_chain_leaves_the_others(
    result: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    more = chain(tiny_bert, tiny_rows, AGAIN, {**CUT, "seeds": [0, 3, 4]}, DISTILLED)
    rows = plan_recipe(more, home=home)
    trained = {row["stage"]: row["cache"] for row in rows if row["stage"].startswith(("drop-", "distill-"))}
    assert {stage for stage, cache in trained.items() if cache == "miss"} == {
        stage for stage in trained if stage.endswith(" s4")
    }
    waits = {row["stage"]: row["why"] for row in rows}
    assert waits["distill-layers/distilled s4"] == "waits for start"


def test_the_short_way_has_the_keys_of_the_long_way(tiny_bert: Path, tiny_rows: Path, tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    short = recipe_for(
        tiny_bert,
        tiny_rows,
        students=[{"name": "half", "layers": 2, "start": "top", "origin": "pretrained", "seeds": [1, 2]}],
        layer_dropping={**FAST, "strategies": ["top"], "drop": [1], "after_finetuning": True},
    )
    half = {"name": "half", "from": "pretrained", "by": "distillation", "shape": {"layers": 2}, "start": "top"}
    long = short.model_copy(update={"students": (), "layer_dropping": None})
    long = Recipe.model_validate(
        long.model_dump(mode="json", exclude_unset=True)
        | {"candidates": [{**half, "seeds": [1, 2]}, {**CUT, "name": "top-1"}]}
    )
    keys = [{(one.display_name, one.key) for one in planned_records(recipe, home)} for recipe in (short, long)]
    assert keys[0] == keys[1] and len(keys[0]) > 10


@pytest.mark.parametrize(
    ("candidates", "said"),
    [
        ([{**CUT, "drop": 4}], "top cannot drop 4 of 4 layers; choose fewer"),
        ([CUT, DISTILLED, {**AGAIN, "drop": 3}], "contribution cannot drop 3 of 3 layers; choose fewer"),
        ([{**CUT, "strategy": "greedy"}], "only limbeck sweep runs; remove it from candidate cut"),
        ([{**CUT, "drop": 3}, {**DISTILLED, "prediction": {"patience": {}}}], "distilled has 1 layer, and patience"),
    ],
)
def test_what_the_teacher_cannot_give_is_refused_before_anything_runs(
    candidates: list[dict[str, Any]], said: str, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=said) as caught:
        plan_recipe(chain(tiny_bert, tiny_rows, *candidates), home=Home(tmp_path).create())
    assert isinstance(caught.value, RecipeError) or "patience" in said


def test_every_maker_that_a_recipe_can_name_is_there_and_its_stages_run_on_workers() -> None:
    assert set(MAKERS) == set(knobs_by_maker())
    assert all(stage in STAGE_TASKS.values() for maker in MAKERS.values() for stage in maker.stages)


# --- a further maker --------------------------------------------------------------------------------------------------

MOST_PLACES = 6
"""Files that a further maker may touch, new ones included."""


def changes_of_a_maker(path: Path) -> list[tuple[str, str, str]]:
    """Return the worked change of a README that adds a maker: files, lines before, lines after."""
    text = path.read_text()
    section = text[text.index("### A maker\n") : text.index("### An architecture\n")]
    return [(name, before, after) for name, before, after in changes_of(path) if f"+++ b/{name}\n" in section]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A copy of the packages with the maker of the worked change."""
    tree = copy_packages(tmp_path / "tree")
    changes = changes_of_a_maker(ROOT / "tasks" / "README.md")
    assert 2 < len({name for name, _, _ in changes}) <= MOST_PLACES
    for name, before, after in changes:
        file = tree / name
        file.write_text(file.read_text().replace(before, after, 1) if before else after)
    return tree


@pytest.mark.slow
def test_a_further_maker_is_six_places_and_its_candidates_are_like_all_others(
    packages: Path, tiny_bert: Path, tiny_rows: Path, tmp_path: Path, prefect_url: str
) -> None:
    written = chain(tiny_bert, tiny_rows, CUT).model_dump(mode="json", exclude_unset=True)
    noisy = {"name": "noisy", "from": "cut", "by": "head-noise", "share": 0.5}
    after = {**CUT, "name": "after", "from": "noisy"}
    (tmp_path / "recipe.json").write_text(json.dumps(written | {"candidates": [CUT, noisy, after]}))
    home, out = tmp_path / "home", tmp_path / "out.json"
    done = limbeck(packages, home, prefect_url, "run", str(tmp_path / "recipe.json"), "--json", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    models = {model["name"]: model for model in result["models"]}
    assert [*models] == ["teacher", "cut", "noisy", "after"] and models["noisy"]["role"] == "student"
    assert (models["noisy"]["made_from"], models["noisy"]["made_by"]) == ("cut", "head-noise")
    assert models["noisy"]["parameters"] == models["cut"]["parameters"] > models["after"]["parameters"]
    assert models["noisy"]["checkpoint"] != models["cut"]["checkpoint"]
    assert {entry["candidate"] for entry in result["registered"]} == {"cut", "noisy", "after"}
    assert models["after"]["cost"]["ancestors"]["stages"] == ["add-head-noise/noisy", "drop-layers/cut"]
    planned = limbeck(packages, home, prefect_url, "plan", str(tmp_path / "recipe.json"), "--json", str(out))
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert {stage["cache"] for stage in json.loads(out.read_text())["stages"]} == {"hit"}
    typo = limbeck(
        packages, home, prefect_url, "validate", str(tmp_path / "recipe.json"), "--set", "candidates.noisy.by=head-nois"
    )
    assert typo.returncode and "did you mean 'head-noise'?" in typo.stderr + typo.stdout
