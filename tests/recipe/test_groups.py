"""Recipes with templates, truncation and groups of rows: each mistake ends in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tasks.recipe.recipe import Recipe
from tasks.recipe.student_checks import further_metrics_on, group_of

ANSWERS: dict[str, Any] = {"name": "answers", "text": "passage", "pair": "{question} {answer}", "truncate": "first"}


def recipe_of(task: dict[str, Any], **changes: Any) -> Recipe:
    values = {"name": "mine", "task": task, "students": [{"name": "half", "layers": 2}]}
    return Recipe.model_validate(values | {"gate": {"split": "validation"}} | changes)


@pytest.mark.parametrize(
    ("task", "changes", "sentence"),
    [
        ({"text": "{passage"}, {}, "the template '{passage' has a brace without a column"),
        ({"pair": "{a *b}"}, {}, "marks nothing by"),
        ({"pair": None}, {}, "truncate is 'first', and there is no pair of texts; remove it, or name pair"),
        ({"truncate": "both"}, {}, "Input should be 'longest', 'first' or 'second'"),
        (
            {"metrics": ["accuracy", "group_exact"]},
            {},
            "task.metrics names 'group_exact'.*set task.group, or move the metric",
        ),
        ({}, {"scoring": {"metrics": ["group_parity"]}}, "scoring.metrics names 'group_parity'.*set task.group, or"),
        (
            {"metrics": ["accuracy", "group_exact"], "group": "unit"},
            {"data": {"judge": {"more": {"source": "more.csv"}}}},
            "data.judge.more names no column of them; set data.judge.more.group",
        ),
        ({}, {"teacher": {"choose_by": "group_f1"}}, "teacher.choose_by is group_f1.*choose one of headline, accuracy"),
        ({}, {"data": {"judge": {"more": {"source": "more.csv", "text": "{"}}}}, "has a brace without a column"),
        ({"kind": "tokens", "pair": None, "truncate": "longest", "text": "{a} {b}"}, {}, "needs a list of words"),
        ({"kind": "tokens", "pair": None, "truncate": "longest", "group": "a"}, {}, "is of type tokens; remove group"),
    ],
)
def test_a_mistake_is_refused_in_a_sentence(task: dict[str, Any], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        recipe_of(ANSWERS | task, **changes)


def test_metrics_of_groups_are_computed_where_there_are_groups() -> None:
    judge = {"pairs": {"source": "a.csv", "group": "b"}, "plain": {"source": "b.csv"}, "own": {"split": "test"}}
    recipe = recipe_of(ANSWERS, data={"judge": judge}, scoring={"metrics": ["group_parity", "f1"]})
    assert further_metrics_on(recipe) == further_metrics_on(recipe, "plain") == ("f1",)
    assert further_metrics_on(recipe, "pairs") == ("group_parity", "f1") and group_of(recipe, "pairs") == "b"
    grouped = recipe_of(ANSWERS | {"group": "unit"}, data={"judge": judge})
    assert (group_of(grouped), group_of(grouped, "own"), group_of(grouped, "plain")) == ("unit", "unit", None)


def test_new_knobs_are_in_no_key_of_a_recipe_without_them() -> None:
    plain, grouped = (recipe_of({"name": "mine"} | more).key_values()["task"] for more in ({}, {"group": "unit"}))
    assert isinstance(plain, dict) and isinstance(grouped, dict)
    assert {*grouped} - {*plain} == {"group"} and "truncate" not in plain
