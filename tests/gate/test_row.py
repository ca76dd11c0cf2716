"""The row that criteria read: every figure of a criterion passes from the results to the gate."""

from __future__ import annotations

import pytest

from tasks.gate.criteria import figure
from tasks.gate.gate_inputs import gate_row
from tasks.recipe.judging import FIGURES, Gate
from tasks.recipe.recipe import Recipe
from tests.report.figures import stated

OF_EVERY_SPLIT = tuple(name for name in FIGURES if name != "retained")
"""The figures that do not depend on the gate's split."""


def recipe() -> Recipe:
    return Recipe.model_validate(
        {"name": "r", "task": "sst2", "students": [{"name": "small", "layers": 1}], "gate": Gate(split="validation")}
    )


@pytest.mark.parametrize("name", OF_EVERY_SPLIT)
def test_a_figure_of_the_results_is_one_of_the_gate(name: str) -> None:
    row = stated("small").replaced(**{name: 17.5, "unsteady": None})
    assert figure(gate_row(recipe(), row), name) == 17.5
    assert figure(gate_row(recipe(), row.replaced(**{name: None})), name) is None


def test_rows_of_one_class_are_those_of_the_error_analysis() -> None:
    constant = stated("small").replaced(inspection={"confusion": [[0, 38], [0, 66]], "nll": 0.66})
    assert gate_row(recipe(), constant).rows_of_one_class == 104
    able = constant.replaced(inspection={"confusion": [[1, 37], [0, 66]], "nll": 0.66})
    assert gate_row(recipe(), able).rows_of_one_class == gate_row(recipe(), stated("small")).rows_of_one_class == 0


def test_the_retained_share_is_that_of_the_gates_split() -> None:
    row = stated("small")
    assert row.share("validation").value != row.share("holdout").value
    assert figure(gate_row(recipe(), row), "retained") == row.share("validation").value is not None


def test_an_error_is_told_from_a_score() -> None:
    row = stated("small")
    assert not gate_row(recipe(), row).of_error
    as_error = {"mse": row.metrics["validation"][row.headline]}
    found = gate_row(recipe(), row.replaced(headline="mse", metrics={**row.metrics, "validation": as_error}))
    assert found.of_error and found.quality == -found.headline < 0
