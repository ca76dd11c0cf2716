"""What is measured of chosen shapes beside the budget, figure by figure."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.results.row import ExportFacts, ResultRow
from tasks.results.search import SearchResult
from tasks.search.measured_costs import limits_of_graphs, with_notes_over_budget
from tasks.search.space import fitting_shapes
from tests.search.test_space import WHOLE, search_of, table

WATTS = 0.005
"""Joules of a millisecond on the processor of these tests."""


def notes_on(budget: dict[str, Any], formats: tuple[str, ...] = ("int8",), **figures: Any) -> tuple[str, ...]:
    """Return the notes on the one shape of a search, of which a row has these figures in its format."""
    search = search_of(budget=budget, space={"layers": [2], "neurons": [1.0], "formats": list(formats)})
    known = table(*formats)
    (shape,) = fitting_shapes(search, known, [WHOLE], WATTS)
    result = SearchResult(budgets=("x",), points=1, fitting=1, shapes=(shape.replaced(state="candidate"),), table=known)
    graph = {"name": f"{shape.name}.int8", "of": shape.name, "export": ExportFacts(format="int8")}
    own = {"name": shape.name} if shape.format == "torch" else graph
    row = ResultRow(**{"role": "student", "metrics": {}, "headline": "accuracy", **own, **figures})
    return with_notes_over_budget(result, search, [row]).notes


@pytest.mark.parametrize(
    ("budget", "figures", "within", "said"),
    [
        ({"latency_ms": 2}, {"latency_ms": 2.5}, {"latency_ms": 1.9}, "latency_ms is 2.5, and 2 is asked"),
        ({"latency_ms": "0.9x"}, {"latency_ms": 2.5}, {"latency_ms": 1.88}, "latency_ms is 2.5, and 1.89 is asked"),
        ({"bytes": 2e5}, {"bytes": 200_001}, {"bytes": 2e5}, "bytes is 2e+05, and 2e+05 is asked"),
        ({"bytes": "0.9x"}, {"bytes": 3e5}, {"bytes": 2e5}, "bytes is 3e+05, and 2.016e+05 is asked"),
        ({"flops": "3M"}, {"flops": 4_000_000}, {"flops": 3e6}, "flops is 4e+06, and 3e+06 is asked"),
        ({"memory": "1MB"}, {"memory_bytes": 2e6}, {"memory_bytes": 1e6}, "memory is 2e+06, and 1e+06 is asked"),
        ({"joules": "8mJ"}, {"latency_ms": 2.0}, {"latency_ms": 1.6}, "joules is 0.01, and 0.008 is asked"),
        ({"joules": "0.9x"}, {"latency_ms": 2.0}, {"latency_ms": 1.8}, "joules is 0.01, and 0.00945 is asked"),
    ],
)
def test_each_part_of_a_budget_is_compared_with_the_graph(
    budget: dict[str, Any], figures: dict[str, float], within: dict[str, float], said: str
) -> None:
    """Joules were left out: nothing bounded a graph whose budget was in joules alone."""
    assert notes_on(budget, **within) == ()
    (told,) = notes_on(budget, **figures)
    assert told == f"l2 in int8 was measured over the budget: {said}"


def test_all_parts_that_are_missed_are_told_and_an_unsteady_speed_is_called_so() -> None:
    budget = {"latency_ms": 2, "bytes": 2e5, "joules": 1}
    (told,) = notes_on(budget, latency_ms=2.5, bytes=3e5, unsteady="±9 %")
    assert told.endswith("latency_ms is 2.5 (unsteady), and 2 is asked; bytes is 3e+05, and 2e+05 is asked")


def test_a_checkpoint_is_compared_where_it_is_the_format_in_which_a_shape_fits() -> None:
    assert notes_on({"bytes": "1x"}, ("torch", "int8"), bytes=1e6)[0].startswith("l2 in torch was measured over")
    assert notes_on({"bytes": "1x"}, ("torch",), bytes=1e6) == (), "the gate says so"


def test_a_share_of_the_teacher_s_memory_is_not_told() -> None:
    """Of the teacher's shape the weights alone are known."""
    assert notes_on({"memory": "1x"}, memory_bytes=1e12) == ()


def test_the_gate_s_limits_for_graphs_are_amounts() -> None:
    """Shares are of the teacher's shape as it was predicted: nobody exports the teacher. Joules bound the latency."""
    given = {"latency_ms": "0.9x", "bytes": "0.5x", "memory": "0.5x", "joules": "8mJ", "flops": "3M"}
    space = {"layers": [2], "formats": ["int8", "torch"]}
    limits = limits_of_graphs(search_of(budget=given, space=space), table("int8", "torch"), WATTS)
    assert limits == pytest.approx({"latency_ms": 1.6, "bytes": 208_000, "flops": 3e6}), (
        "of its checkpoint, though int8 is first"
    )
    slow = limits_of_graphs(search_of(budget={"joules": 1, "memory": "1MB"}, space=space), table("int8"), WATTS)
    assert slow == pytest.approx({"latency_ms": 200.0, "memory_bytes": 1e6})
    assert limits_of_graphs(search_of(budget=given), table("torch"), WATTS) == {}
