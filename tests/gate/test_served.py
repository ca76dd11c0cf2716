"""The budget of a search that serves graphs: no champion is over it, whatever its checkpoint takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.gate.row import GateRow
from tasks.gate.served import served_budget
from tasks.gate.verdicts import ACCEPT, INFEASIBLE, Decision, Evidence, evaluate_candidates
from tasks.recipe.judging import Criterion, Gate
from tasks.results.row import ExportFacts, ResultRow
from tasks.results.search import SearchResult
from tests.contenders import candidate as small
from tests.contenders import judging_of
from tests.gate.test_verdicts import TEACHER, candidate

GATE = Gate(criteria=(Criterion(metric="bytes", at_most=1e9),))


def graph(of: str, way: str, published: bool = True, **figures: Any) -> tuple[ResultRow, GateRow]:
    row = model(f"{of}-{way}", role="export", **figures)
    facts = ExportFacts(format=way, published=published)
    return row[0].replaced(of=of, export=facts), row[1]


def model(name: str, **figures: Any) -> tuple[ResultRow, GateRow]:
    gated = candidate(name, **figures)
    return ResultRow(name=name, role=gated.role, metrics={}, headline="accuracy"), gated


def decisions(
    *rows: tuple[ResultRow, GateRow], formats: tuple[str, ...] = ("int8",), **limits: float
) -> dict[str, Decision]:
    search = SearchResult(budgets=("x",), points=1, fitting=1, limits=limits, formats=formats)
    models, gated = [row for row, _ in rows], [row for _, row in rows]
    budget = served_budget(search, models, gated)
    return {one.name: one for one in evaluate_candidates(gated, TEACHER, GATE, Evidence(budget=budget))}


def test_a_candidate_whose_graph_is_over_the_budget_is_no_champion() -> None:
    """It was: a note alone said so, and the gate judged its checkpoint."""
    small, large = model("small", bytes=400), model("large", bytes=300)
    found = decisions(
        small, graph("small", "int8", bytes=100, latency_ms=1.5), large, graph("large", "int8", bytes=90, latency_ms=3),
        bytes=100, latency_ms=2,
    )  # fmt: skip
    assert found["small"].verdict == ACCEPT and found["small"].champion
    assert found["large"].verdict == INFEASIBLE == found["large-int8"].verdict
    assert "budget, in int8: latency_ms 3 ≤ 2: missed by 1" in found["large"].reasons
    assert "budget, in int8: bytes 100 ≤ 100: met" in found["small"].reasons


def test_one_form_meets_the_whole_budget() -> None:
    """Small in one format and fast in the other is not small and fast."""
    rows = [
        model("one", bytes=50, latency_ms=9.0),
        graph("one", "int8", bytes=100, latency_ms=1.0),
        graph("one", "int8-table4", bytes=60, latency_ms=3.0),
    ]
    both = ("int8", "int8-table4")
    assert decisions(*rows, formats=both, bytes=80, latency_ms=2)["one"].verdict == INFEASIBLE
    assert decisions(*rows, formats=both, bytes=80, latency_ms=3)["one"].champion
    assert decisions(*rows, formats=("torch", *both), bytes=50)["one"].champion, "its checkpoint may be served, too"
    assert not decisions(*rows, formats=both, bytes=50)["one"].champion, "it may not"


def test_what_has_no_graph_that_may_be_published_misses_the_budget() -> None:
    rows = [model("bare"), model("failed"), graph("failed", "int8", published=False, bytes=1), graph("bare", "onnx")]
    found = decisions(*rows, bytes=1000)
    said = "the budget is for int8, and there is no such graph to publish: not met"
    assert said in found["bare"].reasons and said in found["failed"].reasons
    assert not any(one.champion for one in found.values())
    assert found["bare-onnx"].verdict == ACCEPT, "a graph that the budget is not for"


def test_an_unsteady_latency_meets_no_budget() -> None:
    rows = [model("one"), graph("one", "int8", latency_ms=1.0, unsteady="±9 %")]
    assert "budget, in int8: latency_ms is unsteady: not met" in decisions(*rows, latency_ms=2)["one"].reasons
    assert decisions(*rows, bytes=100)["one"].champion


def test_a_search_of_checkpoints_has_its_budget_in_the_recipe_s_gate() -> None:
    assert decisions(model("one"), formats=("torch",))["one"].champion
    assert served_budget(None, [], []) is None


def test_a_run_s_judge_knows_the_budget_of_its_search(tmp_path: Path) -> None:
    made = small("one", 400)
    served = small("one-int8", 90).replaced(role="export", of="one", export=ExportFacts(format="int8", published=True))
    judging = judging_of(tmp_path, made, served)
    assert judging.decide()["one"].accepted
    judging.search = SearchResult(budgets=("x",), points=1, fitting=1, limits={"bytes": 80}, formats=("int8",))
    assert "budget, in int8: bytes 90 ≤ 80: missed by 10" in judging.decide()["one"].reasons
    assert not judging.decide()["one"].accepted
