"""A recipe of the shelf with changes from a form is the recipe that a file with these changes would be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.exceptions import ParameterTypeError

from flows.compress import compress
from flows.deploy.recipe_form import deployment_form, forms
from flows.from_shelf import ready_recipe
from flows.run.demo import texts_to_ask
from flows.run.forms import LEFT_OUT, Changes, changes_of, recipe_of_the_shelf
from flows.run.recipe_file import SHELF, load_recipe
from flows.search_shapes import search_shapes
from flows.sweep_layers import sweep_layers
from tasks.errors import RecipeError
from tasks.ports.rows.tables import read_texts
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Sweep


@pytest.mark.parametrize("name", sorted(path.stem for path in SHELF.glob("*.yaml")))
def test_without_changes_it_is_the_recipe_itself(name: str) -> None:
    assert recipe_of_the_shelf(name, Changes()) == load_recipe(name)


@pytest.mark.parametrize("whole", [compress, search_shapes, sweep_layers])
def test_the_form_of_a_whole_recipe_is_made_where_it_is_shown(whole: Any) -> None:
    """It takes long, and a command that runs a flow would wait for it; Prefect's own `deploy` shows it, too."""
    form: Any = deployment_form(whole)
    assert {*form["definitions"]["Recipe"]["properties"]} == {*Recipe.model_json_schema()["properties"]}
    assert form["required"] == ["recipe"] and form == flow(whole.fn).parameters.model_dump(exclude_unset=True)
    with forms(with_knobs=False):
        quick = flow(whole.fn)
        assert deployment_form(quick) == form
    assert "definitions" not in quick.parameters.model_dump(exclude_unset=True)
    wrong: dict[str, Any] = {"recipe": {"name": "x", "teacher": {"epochs": -1}}}
    with pytest.raises(ParameterTypeError, match=r"recipe.teacher.epochs: Input should be greater than 0"):
        quick.validate_parameters(wrong)


def test_a_command_that_runs_a_flow_makes_no_form() -> None:
    program = (
        "from flows.cli.runner import flow_of\n"
        "for kind in ('run', 'search', 'sweep'): print(len(flow_of(kind).parameters.model_dump_json()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert max(map(int, done.stdout.split())) < 1000


def test_changes_are_what_set_does() -> None:
    warm = {"task_distillation": {"prediction": {"temperature": 8}}}
    changes = Changes.model_validate(warm | {"teacher": {"model": "other/model"}, "notify": ["slack-webhook/team"]})
    sets = ["task_distillation.prediction.temperature=8", "teacher.model=other/model", "notify=[slack-webhook/team]"]
    changed = recipe_of_the_shelf("sst2-tinybert", changes)
    assert changed == load_recipe("sst2-tinybert", sets) and changed.teacher.licence == "unknown", (
        "it belonged to the teacher of the shelf"
    )


def test_what_a_form_leaves_empty_changes_nothing() -> None:
    """The UI sends null for what nobody touched."""
    untouched: dict[str, Any] = dict.fromkeys(Changes.model_fields) | {"teacher": {"model": None, "epochs": 1.0}}
    assert recipe_of_the_shelf("sst2-tinybert", Changes.model_validate(untouched)) == load_recipe(
        "sst2-tinybert", ["teacher.epochs=1.0"]
    )


def test_lists_are_given_whole_and_sections_left_out() -> None:
    changes = Changes.model_validate({"students": [{"name": "half", "layers": 3}]})
    recipe = recipe_of_the_shelf("sst2-tinybert", changes, ("layer_dropping", "augmentation"))
    assert (
        [student.name for student in recipe.students] == ["half"]
        and recipe.layer_dropping is None
        and recipe.augmentation is None
    )


def test_a_sweep_of_the_shelf() -> None:
    recipe = recipe_of_the_shelf("sst2-tinybert", None, (), Sweep(strategies=("top",), drop=(1, 2)))
    assert recipe.sweep is not None and recipe.sweep.strategies == ("top",) and recipe.sweep.drop == (1, 2)


def test_the_demo_brings_its_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path))
    language = tmp_path / "demo" / "language-2-0"
    recipe = ready_recipe("demo", Changes.model_validate({"transfer": {"source": "own/texts"}}), ())
    assert (
        recipe.data.source == str(language / "data")
        and recipe.corpus is not None
        and recipe.corpus.source == str(language / "corpus")
    )
    assert recipe.transfer is not None and recipe.transfer.source == "own/texts", "what somebody changed stays"
    assert list((language / "data").iterdir()) and list((language / "corpus").iterdir())
    texts, pairs = read_texts(Path(texts_to_ask(recipe)), "text", None)
    assert (
        texts_to_ask(recipe) == str(language / "texts.csv") and len(texts) == len(set(texts)) == 12 and pairs is None
    ), "the file that commands name is there"
    assert texts_to_ask(load_recipe("mrpc-small")) == "texts.csv"
    assert ready_recipe("mrpc-small", Changes(), ()) == load_recipe("mrpc-small")


def test_what_does_not_fit_together_is_a_sentence() -> None:
    with pytest.raises(RecipeError, match="there are no candidates"):
        recipe_of_the_shelf("mrpc-small", Changes(), ("students", "layer_dropping"))
    with pytest.raises(RecipeError, match="did you mean 'sst2-tinybert'"):
        recipe_of_the_shelf("sst2-tinybret")


def test_the_form_knows_every_knob_of_a_recipe() -> None:
    assert set(Changes.model_fields) == set(Recipe.model_fields) - {"name", "sweep", "search"}
    assert set(LEFT_OUT) <= set(Recipe.model_fields)
    assert changes_of(Recipe, but=("name", "sweep", "search")) is Changes, (
        "made once, so that it has one name in every form"
    )
