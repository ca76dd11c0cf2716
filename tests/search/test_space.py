"""Points of a space and their costs, those that fit, their order, rounds, chains, and how far two rankings agree."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from operator import ge
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import kendalltau

from flows.branches.search.shapes import (
    below_the_whole,
    names_of_chains,
    notes_of_search,
    planned_words,
    vocabularies_of,
)
from tasks.contracts import Artifact
from tasks.errors import RecipeError
from tasks.ports.code.fingerprint import KeyExplanation
from tasks.recipe.makers.search import SearchBudget, ShapeSearch
from tasks.recipe.recipe import Recipe
from tasks.report.tables.search import agreement_line, search_lines, search_section
from tasks.report.tables.trials import trials_section
from tasks.results.roles import role_of
from tasks.results.row import ExportFacts, ResultRow
from tasks.results.search import JudgedShape, LatencyCell, LatencyCheck, LatencyTable, PerLayer, SearchResult
from tasks.results.trials import TrialsResult, TriedRecipe
from tasks.search import space
from tasks.search.chains import chain_of_shape, each_once, part_of_training
from tasks.search.latency_table import errors_of
from tasks.search.measured_costs import with_notes_over_budget
from tasks.search.ranking import LEAST_ORDERED, dominated, kendall_tau, ordered_share, rounds_of
from tasks.search.space import (
    SizedVocabulary,
    finalists,
    fitting_shapes,
    largest_first,
    measured_shapes,
    most_of_each_budget,
    points_of,
)
from tasks.stage.session import StageRecord

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
        row_width=int(64 * width),
        row_bytes=64 * width * (4 if way == "torch" else 1),
    )


def table(*ways: str) -> LatencyTable:
    cells = [cell(width, neurons, way) for way in ways for width in (1.0, 0.5) for neurons in (1.0, 0.5)]
    return LatencyTable(layers=4, vocabulary=1000, reference_ms=4.5, cells=tuple(cells))


def artifact(facts: dict[str, Any]) -> Artifact:
    return Artifact("checkpoint", "0" * 64, "", 1, facts)


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
        (
            {"budget": {"latency_ms": 0.1, "flops": "1x"}},
            r"budget \(latency_ms is at least 0.75, and 0.1 is asked\); the nearest one, l1-w32-f128 in torch, needs "
            "latency_ms=0.75; raise",
        ),
        ({"budget": {"joules": 1}}, "the watts of this processor are not known; set costs.core_watts"),
        ({"budget": {"bytes": "1x"}, "space": {"layers": [5]}}, "the teacher has 4; give numbers from 1 to 4"),
    ],
)
def test_what_cannot_fit_gets_a_sentence(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        fitting_shapes(search_of(**knobs), table("torch"), [WHOLE], None)


def test_budgets_that_are_met_one_by_one_get_the_nearest_shape() -> None:
    """The sentence named each budget with the least that it needs, as if all were missed."""
    known = table("torch")
    slow = [one.replaced(ms=PerLayer(fixed=5.0, layer=0.0)) if one.width < 1 else one for one in known.cells]
    search = search_of(budget={"bytes": 200_000, "latency_ms": 3, "flops": "1x"})
    with pytest.raises(RecipeError) as raised:
        fitting_shapes(search, known.replaced(cells=tuple(slow)), [WHOLE], None)
    assert str(raised.value) == (
        "no shape of the space fits the budget (each of its parts is met by some shape, and all together by none); the "
        "nearest one, l1-f128 in torch, needs bytes=276000; raise the budget, or add smaller shapes to search.space"
    )


def test_joules_are_latency_times_watts() -> None:
    found = fitting_shapes(search_of(budget={"joules": "12mJ"}), table("torch"), [WHOLE], 0.01)
    assert found and all(one.joules == pytest.approx(0.01 * one.ms) for one in found)


def test_the_teacher_and_the_ends_are_measured_and_the_rest_is_between() -> None:
    search = search_of(budget={"bytes": "1MB"}, space={"layers": [1, 2, 3], "width": [0.5], "neurons": [0.5]})
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


def test_thousands_of_shapes_are_ordered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was compared with all others, for half a minute of 12,000 shapes, in every search and dry run."""
    found = fitting_shapes(search_of(budget={"latency_ms": 2.5}), table("torch"), [WHOLE], None)
    draw = np.random.default_rng(0)
    sizes = zip(draw.integers(1, 25, 3000), draw.integers(1, 97, (3000, 2)) / 96, strict=True)
    many = [
        found[0].replaced(name=f"s{number}", layers=int(layers), width=float(width), neurons=float(neurons))
        for number, (layers, (width, neurons)) in enumerate(sizes)
        if layers * width * neurons < 4
    ]
    compared: list[int] = []
    monkeypatch.setattr(space, "dominated", lambda one, others: compared.append(len(others)) or dominated(one, others))
    ordered = [(one.layers, one.width, one.neurons) for one in largest_first(many)]
    assert sum(compared) < 200 * len(many)
    outer = [one for one in ordered if not any(other != one and all(map(ge, other, one)) for other in ordered)]
    assert {*ordered[: len(outer)]} == {*outer} and len(outer) > 20 and len(many) > 1500


def test_finalists_differ_in_some_cost() -> None:
    one, twin, other = (
        JudgedShape(
            name=name, layers=1, hidden=8, heads=1, feed_forward=8, width=1, neurons=1, vocabulary=1, pieces="whole",
            format="torch", ms=ms, bytes=100, flops=1, parameters=1,
        )
        for name, ms in (("one", 1.0), ("twin", 1.02), ("other", 2.0))
    )  # fmt: skip
    for last in (True, False):
        assert finalists([one, twin, other], 2, cheapest_of_a_score=last) == ([one, other], [twin]), "the third is free"
    small = other.replaced(name="small", ms=0.5, bytes=50)
    assert finalists([one, other, small], 2, cheapest_of_a_score=True)[0] == [one, small], "one is better than other"
    assert finalists([one, other, small], 2, cheapest_of_a_score=False)[0] == [one, other]


def test_a_share_is_of_the_same_teacher_in_any_order_of_formats() -> None:
    """With int8 first 0.3x was 0.3 of the teacher in int8, a quarter of the bytes, and no shape fitted."""
    known = table("torch", "int8")
    bounds = SearchBudget(bytes="0.3x").bounds()
    limits = [
        most_of_each_budget(bounds, known.replaced(cells=tuple(cells)), None)
        for cells in (known.cells, reversed(known.cells))
    ]
    (own,) = most_of_each_budget(bounds, table("torch"), None).values()
    assert limits == [{"bytes": own}, {"bytes": own}]


def test_a_tau_of_few_candidates_says_of_how_many() -> None:
    assert agreement_line("The last round", 1.0, 3).endswith(
        "the 3 candidates agree with tau 1.00 (1: one order; of 3 it tells little)."
    )
    assert agreement_line("The last round", 1.0, 5).endswith("the 5 candidates agree with tau 1.00 (1: one order).")


def test_tau_of_ties_is_not_evidence() -> None:
    """Seven shapes that answer the most frequent class agree perfectly with the same seven: one pair in four is told
    apart."""
    both = [0.5] * 7 + [0.6]
    assert kendall_tau(both, both) == 1.0 and ordered_share(both, both) == 0.25 < LEAST_ORDERED
    assert ordered_share([1, 2, 3], [1, 3, 2]) == 1.0 and ordered_share([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 3)


def test_each_round_trains_a_third_with_three_times_the_steps() -> None:
    assert rounds_of(27, 3, 3) == [27, 9, 3] and rounds_of(9, 2, 1) == [2]
    assert rounds_of(4, 5, 3) == [4] and rounds_of(8, 5, 3) == [8, 5], "no round that leaves nothing out"
    training = ShapeSearch().training.model_copy(update={"steps": 90})
    assert [part_of_training(training, left).steps for left in (2, 1, 0)] == [10, 30, 90]
    epochs = training.model_copy(update={"steps": None, "epochs": 9.0})
    assert part_of_training(epochs, 2).epochs == 1.0


def test_tau_is_scipy_s() -> None:
    """Of scores with ties in one, in the other and in both, and of infinite ones."""
    draw = np.random.default_rng(0)
    for count in (3, 4, 8, 40):
        for _ in range(20):
            first, second = draw.integers(0, count, (2, count)) / count
            expected = float(kendalltau(first, second).statistic)
            assert kendall_tau(first, second) == (None if np.isnan(expected) else pytest.approx(expected))
    low, same = [1, 2, -math.inf, -math.inf], kendalltau([1, 2, -9, -9], [1, 3, 2, 4]).statistic
    assert kendall_tau(low, [1, 3, 2, 4]) == pytest.approx(same)
    assert kendall_tau([1, 2], [1, 2]) is None and kendall_tau([1, 1, 1], [1, 2, 3]) is None


def test_a_ranking_does_not_wait_for_scipy() -> None:
    """Its statistics take half a second to import, a quarter of what a cached search may take."""
    said = "import sys; from tasks.search.ranking import kendall_tau as tau; tau([1, 2, 3], [1, 3, 2]); "
    done = subprocess.run(
        [sys.executable, "-c", said + "print('scipy' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr


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


@pytest.mark.parametrize("of_supernet", [False, True])
def test_what_is_cut_and_not_trained_gets_no_version(of_supernet: bool) -> None:
    """Registered, an untrained cut of the teacher's depth was a version like any answer of the search."""
    space = {"layers": [2], "width": [0.5], "neurons": [0.5], "vocabulary": [500]}
    search = search_of(budget={"bytes": 250_000}, space=space)
    (shape,) = fitting_shapes(search, table("torch"), [SizedVocabulary("500", 500)], None)
    supernet = search.whole_supernet if of_supernet else None
    *cuts, trained, trimmed = chain_of_shape(shape, search, search.training, 4, (0,), supernet=supernet)
    assert [one.planned_role for one in cuts] == (["step"] if of_supernet else ["step", "step"])
    assert not role_of("step").registered and not role_of("step").exported and not role_of("step").judged
    assert all(role_of(one.planned_role).registered for one in (trained, trimmed))


def test_no_vocabulary_has_more_pieces_than_there_are() -> None:
    assert below_the_whole(["whole", "used", 500, 8000], 2000) == ["whole", "used", 500]
    with pytest.raises(RecipeError, match="names 8000 pieces, and the teacher has 2,000; give fewer, or whole"):
        below_the_whole([8000], 2000)


def test_a_vocabulary_has_the_pieces_that_texts_use_and_equal_ones_are_one() -> None:
    """15,000 pieces were predicted, named and published, where the texts have 900."""

    class Trimmed:
        async def of(self, vocabulary: SizedVocabulary) -> Artifact:
            most = 900 if vocabulary.pieces == "used" else vocabulary.size
            return artifact({"pieces": min(most, 900)})

    search = search_of(budget={"bytes": "1MB"}, space={"vocabulary": ["whole", "used", 1500, 500, 8000]})
    found = asyncio.run(vocabularies_of(search, artifact(table("torch").as_json()), Trimmed()))  # type: ignore[arg-type]
    assert found == [SizedVocabulary("whole", 1000), SizedVocabulary("used", 900), SizedVocabulary("500", 500)]


def test_shares_that_round_to_one_size_are_one_shape() -> None:
    """Of two heads, three widths are one: each was a shape of its own, of one name."""
    alike = table("torch").replaced(cells=(cell(1.0, 1.0), cell(0.5, 1.0), cell(0.5, 1.0).replaced(width=0.4)))
    search = search_of(budget={"bytes": "1GB"}, space={"width": [1.0, 0.5, 0.4], "neurons": [1.0], "layers": [2]})
    assert [one.name for one in fitting_shapes(search, alike, [WHOLE], None)] == ["l2", "l2-w32"]


def test_models_on_the_way_to_a_shape_have_names_of_their_own() -> None:
    search = search_of(budget={"bytes": "1GB"}, space={"width": [0.5], "neurons": [0.5], "layers": [2]})
    (shape,) = fitting_shapes(search, table("torch"), [SizedVocabulary("500", 500)], None)
    assert names_of_chains(search, [shape], 4) == {"w32", "w32-f128", "l2-w32-f128", "l2-w32-f128-v500"}
    supernet = search.model_copy(update={"ranking": "supernet"})
    assert "l2-w32-f128-of-supernet" in names_of_chains(supernet, [shape], 4)


def test_scores_of_a_metric_of_which_less_is_better_are_positive() -> None:
    """They are stored as the negative, so that more is better everywhere, and were printed so."""
    shape = JudgedShape(
        name="one", layers=1, hidden=8, heads=1, feed_forward=8, width=1, neurons=1, vocabulary=1, pieces="whole",
        format="torch", ms=1, bytes=100, flops=1, parameters=1, scores=(-0.25, None, -0.0),
    )  # fmt: skip
    result = SearchResult(budgets=("x",), points=1, fitting=1, shapes=(shape,), scored_by="mse")
    section = search_section(result)
    assert section.rows[0][-2] == "0.250 → — → 0.000" and section.title.endswith("by round: mse on the selection rows")
    assert search_section(result.replaced(scored_by="pearson")).rows[0][-2].startswith("-0.250")
    way = TriedRecipe(name="a", start="teacher", method="answers", learning_rate=1e-4, scores=(-0.25,))
    assert trials_section(TrialsResult(minutes=1, trials=(way,), scored_by="mse")).rows[0][4] == "0.250"


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"ranking": "supernet", "training": {"choose_by": "mse"}}, "training.choose_by is 'mse', and shapes of a sup"),
        ({"space": {"vocabulary": [500]}, "training": {"choose_by": "mse"}}, "two metrics would be compared; leave"),
    ],
)
def test_two_metrics_are_not_compared(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ShapeSearch.model_validate(knobs)
    ShapeSearch.model_validate({"training": {"choose_by": "mse"}})


def test_a_supernet_that_is_planned_is_told_with_its_cost_and_what_follows_where_it_is_not_trusted() -> None:
    """A dry run listed the rounds alone, which are made only where the supernet's ranking is not trusted."""
    search = {"ranking": "supernet", "budget": {"bytes": "1x"}, "supernet": {"prediction": {"steps": 1500}}}
    recipe = Recipe.model_validate(
        {"name": "x", "task": "sst2", "gate": {"split": "validation"}, "search": {**search, "candidates": 2}}
    )
    known = table("torch")
    fitting = tuple(fitting_shapes(ShapeSearch.model_validate(search), known, [WHOLE], None))
    result = SearchResult(
        budgets=("x",), points=16, fitting=len(fitting), shapes=fitting, table=known, rounds=(16, 6, 2)
    )
    records = [
        record("train-supernet", "supernet", 480.0),
        record("judge-shapes", "supernet", None),
        *(record("drop-layers", f"l{number}.r1", 20.0) for number in (1, 2)),
        record("drop-layers", "l3", 900.0),
    ]
    lines = planned_words(recipe, result, records)
    assert "to be ranked in a supernet." in lines[0] and "rounds" not in lines[0]
    assert lines[-2] == (
        "Supernet: its training, 1,500 steps (about 8 min); the scores of the shapes that fit (of unknown cost); "
        "8 shapes trained alone for 0.333 epochs each (about 40.0 s)."
    )
    assert lines[-1] == (
        "If both orders agree with tau 0.6 or more, 2 candidates begin with their part of the supernet, for 3 epochs "
        "each. If not, shapes are trained in rounds: 16 for 0.333 epochs each, then 6 for 1 epochs each, then 2 for 3 "
        "epochs each."
    )
    halving = recipe.model_copy(update={"search": ShapeSearch.model_validate({"budget": {"bytes": "1x"}})})
    assert planned_words(halving, result, records)[-1].startswith("Trainings of shapes: 16 for")


def record(name: str, label: str, seconds: float | None) -> StageRecord:
    """Return the record of a stage that was planned and not found."""
    parts: KeyExplanation = {"schema": 1, "stage": name, "code": "", "knobs": {}, "inputs": {}, "libraries": {}}
    return StageRecord(number=0, name=name, label=label, key="", kind="checkpoint", explanation=parts, estimate=seconds)


def test_a_supernet_whose_scores_are_equal_is_told() -> None:
    result = SearchResult(budgets=("x",), points=3, fitting=3, checked=("a", "b", "c"))
    assert any("agree with no tau; its ranking is not to be trusted" in line for line in search_lines(result))


def test_the_order_of_latencies_is_told_beside_their_error_and_noted_where_it_is_wrong() -> None:
    """Latencies that are right on average may rank the shapes of a budget wrongly."""
    checks = [
        LatencyCheck(layers=2, hidden=8, feed_forward=8, format="torch", predicted_ms=predicted, measured_ms=measured)
        for predicted, measured in ((1.00, 1.02), (1.01, 1.00), (2.0, 2.0), (3.0, 3.0))
    ]
    known = table("torch").replaced(checks=tuple(checks), **errors_of(checks))
    assert known.rank_correlation == pytest.approx(0.8) and known.error is not None and known.error < 0.01
    (noted,) = notes_of_search(known)
    assert noted.startswith("predicted and measured latencies have a rank correlation of 0.800, and 0.98 is wanted")
    told = search_lines(SearchResult(budgets=("x",), points=1, fitting=1, table=known, notes=(noted,)))
    assert "its error is 0.7 % on average and 2.0 % at most, rank correlation 0.800." in told[1]
    assert notes_of_search(known.replaced(rank_correlation=0.99)) == ()


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
