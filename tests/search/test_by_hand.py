"""Chosen shapes beside those that a recipe has by hand: intervals of their difference, and who dominates whom."""

from __future__ import annotations

from typing import Any

from flows.branches.search.shapes import candidates_by_hand, with_candidates
from tasks.recipe.recipe import Recipe
from tasks.report.tables.search import search_lines
from tasks.results.row import Estimate, ExportFacts, ResultRow
from tasks.results.search import SearchResult
from tasks.search.by_hand import with_shapes_by_hand
from tasks.search.space import fitting_shapes
from tests.search.test_space import WHOLE, search_of, table

SEARCH = search_of(budget={"bytes": "1x"}, space={"layers": [2, 3], "neurons": [1.0], "formats": ["int8"]})
CHOSEN = [one.replaced(state="candidate") for one in fitting_shapes(SEARCH, table("int8"), [WHOLE], None)]


def graph(of: str, ms: float, size: float, score: float, way: str = "int8", **more: Any) -> ResultRow:
    return ResultRow(
        name=f"{of}-{way}",
        of=of,
        role="export",
        metrics={"holdout": {"accuracy": Estimate(value=score)}},
        headline="accuracy",
        latency_ms=ms,
        bytes=size,
        export=ExportFacts(format=way, published=True),
        **more,
    )


def beside(*rows: ResultRow, **names: Any) -> SearchResult:
    result = SearchResult(budgets=("x",), points=2, fitting=2, shapes=tuple(CHOSEN), formats=("int8",))
    return with_shapes_by_hand(result, ["hand-a", "hand-b", "hand-c"], rows, "holdout")


def test_the_answer_says_which_shapes_by_hand_are_better_or_worse_in_everything() -> None:
    found = beside(
        graph("l2", 1.0, 100, 0.90),
        graph("l3", 2.0, 200, 0.92),
        graph("hand-a", 0.9, 100, 0.90),
        graph("hand-b", 2.0, 200, 0.91),
        graph("hand-c", 0.5, 500, 0.80, unsteady="±9 %"),
        graph("hand-b", 0.1, 1, 0.99, way="onnx"),
    )
    stood = {one.name: (one.dominates, one.dominated_by) for one in found.by_hand}
    assert stood == {"hand-a": (("l2",), ()), "hand-b": ((), ("l3",)), "hand-c": ((), ())}
    line = search_lines(found)[-1]
    assert line == (
        "Beside 3 candidates by hand, by measured latency, bytes and score (points, not intervals): hand-a dominates "
        "l2; hand-b is dominated by l3; some of these latencies are unsteady."
    )
    assert SearchResult.model_validate(found.as_json()) == found


def test_shapes_by_hand_that_are_not_served_in_a_format_of_the_search_are_not_compared() -> None:
    found = beside(graph("l2", 1.0, 100, 0.90), graph("hand-a", 2.0, 200, 0.95), graph("hand-b", 1, 1, 1, way="onnx"))
    assert [one.name for one in found.by_hand] == ["hand-a"]
    assert "none dominates a chosen shape, or is dominated by one." in search_lines(found)[-1]
    assert beside(graph("hand-a", 2.0, 200, 0.95)).by_hand == (), "a plan has no figures"


def test_chosen_shapes_are_compared_with_the_recipe_s_own_by_intervals() -> None:
    """Points alone do not say whether one is better: of a search's answer there was no paired difference."""
    cut = {"name": "half", "from": "teacher", "by": "neuron-pruning", "keep": 0.5, "role": "step"}
    deep = {"name": "deep", "from": "half", "by": "distillation"}
    hand = {"name": "hand-a", "from": "deep", "by": "vocabulary-trimming", "keep": 500}
    labels = {"name": "labels", "layers": 2, "role": "baseline", "signal": "labels"}
    recipe = Recipe.model_validate(
        {
            "name": "x",
            "task": "sst2",
            "gate": {"split": "validation"},
            "task_distillation": {"prediction": {}},
            "students": [labels],
            "candidates": [cut, deep, hand],
            "search": SEARCH.model_dump(exclude_unset=True),
        }
    )
    assert candidates_by_hand(recipe) == ("hand-a",), "neither a step, nor what another is made of, nor a baseline"
    shared: Any = type("Shared", (), {"layers": 4})
    found = with_candidates(recipe, SEARCH, CHOSEN, shared, of_supernet=False)
    compared = {one.name: one.compared_to for one in found.candidates if one.compared_to}
    assert compared == {"l2": ("hand-a",), "l3": ("hand-a",)}
