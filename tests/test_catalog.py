"""The tasks known by name, against what GLUE publishes."""

from __future__ import annotations

import pydantic
import pytest

from tasks.catalog import GLUE, TaskSpec, glue_task
from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS
from tasks.task_types.types import TASK_TYPES


def test_all_nine_are_known() -> None:
    assert set(GLUE) == {"cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli"}


@pytest.mark.parametrize("spec", GLUE.values(), ids=lambda spec: spec.name)
def test_every_task_can_be_scored(spec: TaskSpec) -> None:
    assert spec.headline in spec.metrics and set(spec.metrics) <= set(METRICS)
    assert (spec.labels is not None) == TASK_TYPES[spec.kind].has_classes


def test_headlines_are_those_of_glue() -> None:
    special = {"cola": "matthews", "mrpc": "f1", "qqp": "f1", "stsb": "pearson_spearman"}
    assert {name: spec.headline for name, spec in GLUE.items()} == {
        name: special.get(name, "accuracy") for name in GLUE
    }


def test_label_order_is_that_of_the_data() -> None:
    """A swapped order would still train, and score below chance."""
    assert GLUE["mnli"].labels == ("entailment", "neutral", "contradiction")
    assert GLUE["rte"].labels == GLUE["qnli"].labels == ("entailment", "not_entailment")
    assert GLUE["wnli"].labels == ("not_entailment", "entailment")
    assert GLUE["mnli"].validation == "validation_matched"


def test_an_unknown_task_names_the_nearest_and_the_known() -> None:
    with pytest.raises(RecipeError, match=r"did you mean 'sst2'\?.*known are cola, sst2"):
        glue_task("sst-2")


def test_specs_are_frozen_and_strict() -> None:
    with pytest.raises(pydantic.ValidationError):
        TaskSpec(name="mine", texts="body")
    with pytest.raises(pydantic.ValidationError):
        GLUE["cola"].headline = "accuracy"
