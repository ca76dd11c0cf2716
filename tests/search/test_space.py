"""Points of a space and their costs, those that fit, their order, rounds, chains, and how far two rankings agree."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import kendalltau

from flows.branches.search.shapes import below_the_whole
from tasks.errors import RecipeError
from tasks.recipe.makers.search import ShapeSearch
from tasks.report.tables.search import search_lines
from tasks.results.row import ExportFacts, ResultRow
from tasks.results.search import JudgedShape, LatencyCell, LatencyTable, PerLayer, SearchResult
from tasks.search.chains import chain_of_shape, each_once, part_of_training
from tasks.search.measured_costs import with_notes_over_budget
from tasks.search.ranking import kendall_tau, rounds_of
from tasks.search.space import SizedVocabulary, finalists, fitting_shapes, largest_first, measured_shapes, points_of

WHOLE = SizedVocabulary("whole", 1000)


def cell(width: float, neurons: float, way: str = "torch") -> LatencyCell:
    """Return a cell whose layers cost as much as their neurons and their width."""
    size = width * neurons
    return LatencyCell(
        width=width,
        neurons=neurons,
        hidden=int(64 * width),
        heads=int(4 * width),
        feed_forward=int(256 * neurons),
        format=way,
        ms=PerLayer(fixed=0.5, layer=size * (1.0 if way == "torch" else 0.4)),
        parameters=PerLayer(fixed=64_000 * width, layer=10_000 * size),
        flops=PerLayer(fixed=0.0, layer=1e6 * size),
        bytes=PerLayer(fixed=64_000 * width * (4 if way == "torch" else 1), layer=40_000 * size),
        row_bytes=64 * width * (4 if way == "torch" else 1),
    )


def table(*ways: str) -> LatencyTable:
    cells = [cell(width, neurons, way) for way in ways for width in (1.0, 0.5) for neurons in (1.0, 0.5)]
    return LatencyTable(layers=4, vocabulary=1000, reference_ms=4.5, cells=tuple(cells))


def search_of(**knobs: Any) -> ShapeSearch:
    return ShapeSearch.model_validate({"space": {"neurons": [0.5, 1.0], "width": [1.0, 0.5]}, **knobs})


def test_only_shapes_within_every_budget_fit() -> None:
    search = search_of(budget={"latency_ms": 2.5, "flops": "0.3x"})
    found = fitting_shapes(search, table("torch"), [WHOLE], None)
    assert found and all(one.ms <= 2.5 and one.flops <= 0.3 * 4e6 for one in found)
    assert "l2-f128" in {one.name for one in found} and "l2" not in {one.name for one in found}
    assert points_of(search, 4) == 16


def test_a_shape_gets_the_first_format_and_the_largest_vocabulary_that_fit() -> None:
    search = search_of(
        budget={"bytes": 250_000},
        space={"layers": [2], "neurons": [1.0], "formats": ["torch", "int8"], "vocabulary": ["whole", 500]},
    )
    both = [WHOLE, SizedVocabulary("500", 500)]
    (one,) = fitting_shapes(search, table("torch", "int8"), both, None)
    assert (one.format, one.vocabulary, one.name) == ("torch", 500, "l2-v500")
    assert one.bytes == 4 * 64_000 + 2 * 40_000 - 500 * 64 * 4


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"budget": {"latency_ms": 0.1}}, "latency_ms is at least 0.75, and 0.1 is asked"),
        ({"budget": {"joules": 1}}, "the watts of this processor are not known; set costs.core_watts"),
        ({"budget": {"bytes": "1x"}, "space": {"layers": [5]}}, "the teacher has 4; give numbers from 1 to 4"),
    ],
)
def test_what_cannot_fit_gets_a_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        fitting_shapes(search_of(**knobs), table("torch"), [WHOLE], None)


def test_joules_are_latency_times_watts() -> None:
    found = fitting_shapes(search_of(budget={"joules": "12mJ"}), table("torch"), [WHOLE], 0.01)
    assert found and all(one.joules == pytest.approx(0.01 * one.ms) for one in found)


def test_the_teacher_and_the_ends_are_measured_and_the_rest_is_between() -> None:
    search = search_of(budget={"bytes": 1}, space={"layers": [1, 2, 3], "width": [0.5], "neurons": [0.5]})
    assert measured_shapes(search, 4) == {
        "depths": (1, 4),
        "between": (2, 3),
        "widths": (1.0, 0.5),
        "neurons": (1.0, 0.5),
    }


def test_shapes_that_no_other_contains_come_first() -> None:
    found = fitting_shapes(search_of(budget={"latency_ms": 2.5}), table("torch"), [WHOLE], None)
    names = [one.name for one in largest_first(found)]
    assert set(names[:3]) == {"l2", "l4-f128", "l4-w32"} and names.index("l1") > 2


def test_finalists_differ_in_some_cost() -> None:
    one, twin, other = (
        JudgedShape(
            name=name, layers=1, hidden=8, heads=1, feed_forward=8, width=1, neurons=1, vocabulary=1, pieces="whole",
            format="torch", ms=ms, bytes=100, flops=1, parameters=1,
        )
        for name, ms in (("one", 1.0), ("twin", 1.02), ("other", 2.0))
    )  # fmt: skip
    assert finalists([one, twin, other], 2) == ([one, other], [twin])


def test_each_round_trains_a_third_with_three_times_the_steps() -> None:
    assert rounds_of(27, 3, 3) == [27, 9, 3] and rounds_of(4, 5, 3) == [4, 4, 4] and rounds_of(9, 2, 1) == [2]
    training = ShapeSearch().training.model_copy(update={"steps": 90})
    assert [part_of_training(training, left).steps for left in (2, 1, 0)] == [10, 30, 90]
    epochs = training.model_copy(update={"steps": None, "epochs": 9.0})
    assert part_of_training(epochs, 2).epochs == 1.0


def test_tau_is_scipy_s() -> None:
    first, second = [0.1, 0.4, 0.4, 0.9, 0.5], [0.2, 0.3, 0.5, 0.8, 0.1]
    assert kendall_tau(first, second) == pytest.approx(kendalltau(first, second).statistic)
    assert kendall_tau([1, 2], [1, 2]) is None and kendall_tau([1, 1, 1], [1, 2, 3]) is None


def test_shapes_with_the_same_cuts_share_them() -> None:
    found = fitting_shapes(search_of(budget={"latency_ms": 2.5}), table("torch"), [WHOLE], None)
    chains = {one.name: chain_of_shape(one, ShapeSearch(), ShapeSearch().training, 4, (0,)) for one in found}
    assert [(one.name, one.by, one.made_from) for one in chains["l3-w32-f128"]] == [
        ("w32", "width-pruning", "teacher"),
        ("w32-f128", "neuron-pruning", "w32"),
        ("l3-w32-f128", "layer-dropping", "w32-f128"),
    ]
    assert [(one.name, one.by, one.made_from) for one in chains["l4-w32-f128"]][-1] == (
        "l4-w32-f128",
        "distillation",
        "w32-f128",
    )
    names = [one.name for one in each_once([*chains.values()])]
    assert len(names) == len(set(names))


def test_no_vocabulary_has_more_pieces_than_there_are() -> None:
    whole, used, few, many = (
        SizedVocabulary(*one) for one in (("whole", 2000), ("used", 900), ("500", 500), ("8000", 8000))
    )
    assert below_the_whole([whole, used, few, many], 2000) == [whole, used, few]
    with pytest.raises(RecipeError, match="names 8000 pieces, and the teacher has 2,000; give fewer, or whole"):
        below_the_whole([many], 2000)


def test_a_supernet_whose_scores_are_equal_is_told() -> None:
    result = SearchResult(budgets=("x",), points=3, fitting=3, checked=("a", "b", "c"))
    assert any("agree with no tau; its ranking is not to be trusted" in line for line in search_lines(result))


def test_a_graph_that_is_measured_over_the_budget_is_told() -> None:
    """The gate bounds checkpoints alone: a shape of 2.4 ms was the answer to what fits in 1.5 ms, without a word."""
    search = search_of(budget={"latency_ms": 1.5, "bytes": "1x"}, space={"layers": [2], "formats": ["int8", "torch"]})
    known = table("int8", "torch")
    fitting = fitting_shapes(search, known, [WHOLE], None)
    shapes = tuple(one.replaced(state="candidate") for one in fitting)
    result = SearchResult(budgets=("x",), points=8, fitting=len(shapes), shapes=shapes, table=known)

    def with_latencies(**ms: float) -> tuple[str, ...]:
        rows = [
            ResultRow(
                name=f"{name}.int8",
                of=name,
                role="int8",
                metrics={},
                headline="accuracy",
                latency_ms=value,
                bytes=1000,
                export=ExportFacts(format="int8"),
            )
            for name, value in ms.items()
        ]
        return with_notes_over_budget(result, search, rows).notes

    names = [one.name for one in shapes]
    assert with_latencies(**dict.fromkeys(names, 1.4)) == () == with_latencies()
    (told,) = with_latencies(**{names[0]: 2.4})
    assert told == f"{names[0]} in int8 was measured over the budget: latency_ms is 2.4, and 1.5 is asked"
    assert any(told in line for line in search_lines(result.replaced(notes=(told,))))
