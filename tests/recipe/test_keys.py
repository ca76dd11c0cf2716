"""What a phase's key is made of: its own method, and nothing of the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flows.publish.licences import licences_of
from flows.run.recipe_file import SHELF, load_recipe
from tasks.errors import ModelError
from tasks.ports.code.fingerprint import narrowing, program
from tasks.recipe.distillation import GeneralDistillation, Intermediate
from tasks.recipe.methods import Method, Relations, SelfAttention, Sizes, sections_of
from tasks.recipe.recipe import Recipe
from tasks.training.objectives.objectives import OBJECTIVES
from tests.stage_tasks import all_specs


def without_licences(values: Any) -> Any:
    """Return a recipe's values without what they state of licences."""
    if isinstance(values, dict):
        return {name: without_licences(value) for name, value in values.items() if not name.endswith("licence")}
    return [without_licences(value) for value in values] if isinstance(values, (list, tuple)) else values


@pytest.mark.parametrize("name", sorted(path.stem for path in SHELF.glob("*.yaml")))
def test_a_licence_is_stated_and_in_no_key(name: str) -> None:
    recipe = load_recipe(name)
    silent = Recipe.model_validate(without_licences(recipe.model_dump(mode="json")))
    assert recipe != silent and recipe.key_values() == silent.key_values()
    stated = {one["what"]: one["licence"] for one in licences_of(recipe)}
    stated.pop("Data")  # the sources of GLUE's tasks have terms of their own, some of them nowhere written
    assert stated and "unknown" not in stated.values()


@pytest.mark.parametrize("phase", [GeneralDistillation, Intermediate])
def test_a_phase_is_keyed_by_its_own_method_alone(phase: type) -> None:
    sections = sections_of(phase)
    assert set(sections) == set(phase.model_json_schema()["properties"]["method"]["enum"])
    for method, section in sections.items():
        assert set(phase(method=method).key_values()) & set(sections.values()) == {section}
    assert (
        phase(method="relations", relations=Relations(heads=2)).key_values() != phase(method="relations").key_values()
    )


def test_knobs_of_another_method_are_refused() -> None:
    with pytest.raises(
        ValidationError, match="relations belongs to method: relations, and the method is layers; set method: relations"
    ):
        Intermediate(relations=Relations(heads=2))


def test_self_attention_is_for_layers_that_look_everywhere() -> None:
    SelfAttention().check("here", {"model_type": "bert"}, Sizes(2, 8, 4), Sizes(4, 16, 4))
    with pytest.raises(ModelError, match="here: a model of type modernbert has local attention"):
        SelfAttention().check("here", {"model_type": "modernbert"}, Sizes(2, 8, 4), Sizes(4, 16, 4))
    with pytest.raises(ModelError, match="2 heads against the teacher's 4"):
        SelfAttention().check("here", {"model_type": "bert"}, Sizes(2, 8, 2), Sizes(4, 16, 4))


def test_every_method_has_knobs_and_an_objective() -> None:
    assert {kind.called for kind in Method.__subclasses__()} == set(OBJECTIVES)


def test_the_code_of_a_method_counts_for_its_own_stages_alone() -> None:
    specs = {spec.name: spec.roots for spec in all_specs()}
    for method, own, other in (
        ("layers", "layers", "relations"),
        ("relations", "relations", "theseus"),
        ("triple", "distilbert", "self_attention"),
    ):
        roots = specs["distill-general" if method == "triple" else "distill-layers"]
        reached = {module for module, _ in program().reach(roots, narrowing(roots).entries({"method": method}))}
        assert f"tasks.training.objectives.{own}" in reached and f"tasks.training.objectives.{other}" not in reached


def test_a_form_that_fills_every_section_in_is_no_wish() -> None:
    filled = {
        name: field.default.model_dump()
        for name, field in Intermediate.model_fields.items()
        if name in sections_of(Intermediate).values()
    }
    assert Intermediate(method="relations", **filled).key_values() == Intermediate(method="relations").key_values()
