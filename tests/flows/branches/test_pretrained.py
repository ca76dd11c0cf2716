"""Candidates that are pretrained on the corpus: what they share with the base, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.recipe.makers.pretraining import PretrainedCandidate
from tasks.recipe.recipe import Recipe
from tasks.recipe.training import Pretraining
from tests.command_line import plan_recipe
from tests.flows.test_shelf import tiny_recipe

COMMON = {"from": "pretrained", "by": "pretraining"}
SAME, SHARED, ORDER = (
    {"name": "same", **COMMON},
    {"name": "shared", **COMMON, "share": "attention", "steps": 3},
    {"name": "order", **COMMON, "start": "pretrained", "order": "sop"},
)


def recipe_of(folder: Path, *candidates: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**tiny_recipe("albert-tables", folder), "candidates": list(candidates), **changes}


def test_a_base_and_its_candidates_are_pretrained_fine_tuned_and_reported(
    home: Home, tmp_path: Path, prefect_server: None, engines_here: None
) -> None:
    recipe = Recipe.model_validate(recipe_of(tmp_path, SAME, SHARED, ORDER))
    result = run_recipe(recipe, home=home)
    assert {model["name"] for model in result["models"]} == {"teacher", "same", "shared", "order"}
    assert all(row["cache"] == "hit" for row in plan_recipe(recipe, home=home))
    made = [stage for stage in result["stages"] if stage["name"] == "pretrain-encoder"]
    assert len(made) == 4 and len({stage["key"] for stage in made}) == 3, "one is the very base"
    assert len({stage["key"] for stage in result["stages"] if stage["name"] == "divide-corpus"}) == 1
    models = {model["name"]: model for model in result["models"]}
    parameters = {name: model["parameters"] for name, model in models.items()}
    assert parameters["same"] == parameters["order"] < parameters["shared"]
    of_words = {"words", "most_frequent_word"}
    assert models["order"]["pretraining"].keys() == {*of_words, "sop", "nsp"}
    assert models["same"]["pretraining"].keys() == of_words and "pretraining" not in models["teacher"]


@pytest.mark.parametrize(
    ("candidate", "changes", "sentence"),
    [
        ({**SAME, "from": "teacher"}, {}, "lost its head for words; set from: pretrained"),
        ({**ORDER, "embedding": 8}, {}, "whose shape it keeps; remove embedding, or set start: random"),
        ({**SAME, "share": "groups:7"}, {}, "share: groups:7 makes 7 groups of 6 layers"),
        (SAME, {"pretraining": None}, "the recipe has no section pretraining"),
        (
            SAME,
            {"students": [{"name": "deep", "layers": 9}]},
            "deep has 9 layers, and the model of section pretraining has 6",
        ),
        (
            {"name": "cut", "from": "teacher", "by": "layer-dropping", "strategy": "top", "drop": 6},
            {},
            "cut drops 6 layers, and the model of section pretraining has 6; drop at most 5",
        ),
    ],
)
def test_candidates_that_cannot_be_pretrained_are_refused(
    tmp_path: Path, candidate: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(recipe_of(tmp_path, candidate, **changes))


def test_a_bert_has_no_knobs_of_the_albert_that_the_recipe_pretrains() -> None:
    section = Pretraining(family="albert", share="all", embedding=32, ngrams=3)
    found = PretrainedCandidate.model_validate({**SAME, "family": "bert", "order": "nsp"}).pretraining_of(section, 4)
    assert (found.family, found.share, found.embedding, found.ngrams) == ("bert", None, None, 3)
    assert (found.order, found.seed) == ("nsp", 4)
