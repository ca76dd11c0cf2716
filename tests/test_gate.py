"""The gate's word, and its reasons."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.errors import RecipeError
from tasks.gate import decide
from tasks.recipe import Criterion, Gate


def candidate(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "role": "student", "retained": 0.97, "bytes": 100, "latency_ms": 5.0, "headline": 0.9, "metrics": {"accuracy": 0.9}} | changes


TEACHER = candidate("teacher", role="teacher", bytes=1000)


def test_the_smallest_accepted_candidate_is_champion() -> None:
    found = decide([candidate("large", bytes=200), candidate("small"), candidate("weak", retained=0.5, bytes=10)], TEACHER, Gate())
    assert [(decision.accepted, decision.champion) for decision in found] == [(True, False), (True, True), (False, False)]
    assert found[2].reasons == ("retained 0.5 ≥ 0.95: missed by 0.45",)


def test_a_baseline_never_wins() -> None:
    found = decide([candidate("plain", role="baseline", retained=1.0)], TEACHER, Gate())
    assert not found[0].accepted and not found[0].champion


def test_a_share_of_the_teacher() -> None:
    gate = Gate(criteria=(Criterion(metric="bytes", at_most=0.05, of_teacher=True),))
    assert decide([candidate("small")], TEACHER, gate)[0].reasons == ("bytes 100 ≤ 50: missed by 50",)


def test_what_is_unknown_is_not_met() -> None:
    assert not decide([candidate("new", retained=None)], TEACHER, Gate())[0].accepted


def test_an_unknown_metric_lists_the_legal_ones() -> None:
    with pytest.raises(RecipeError, match=r"unknown metric 'speeed'; legal are retained.*accuracy"):
        decide([candidate("a")], TEACHER, Gate(criteria=(Criterion(metric="speeed", at_least=1),)))


def test_an_unknown_metric_is_refused_even_without_candidates() -> None:
    with pytest.raises(RecipeError, match="unknown metric 'f1'"):
        decide([], TEACHER, Gate(criteria=(Criterion(metric="f1", at_least=0.5),)))


@pytest.mark.parametrize(("prefer", "winner"), [("smallest", "small"), ("fastest", "fast"), ("best", "good")])
def test_what_the_recipe_prefers_becomes_champion(prefer: str, winner: str) -> None:
    rows = [candidate("small", bytes=50), candidate("fast", latency_ms=1.0), candidate("good", headline=0.95), candidate("untimed", latency_ms=None)]
    found = decide(rows, TEACHER, Gate(criteria=(), prefer=prefer))
    assert [decision.name for decision in found if decision.champion] == [winner]


def test_of_equally_small_ones_the_better_wins_and_undefined_quality_loses() -> None:
    rows = [candidate("undefined", headline=float("nan")), candidate("worse", headline=0.8), candidate("better", headline=0.9)]
    assert [decision.name for decision in decide(rows, TEACHER, Gate()) if decision.champion] == ["better"]


def test_undefined_figures_are_not_met_and_said() -> None:
    gate = Gate(criteria=(Criterion(metric="accuracy", at_least=0.5), Criterion(metric="memory_bytes", at_most=0.5, of_teacher=True)))
    found = decide([candidate("odd", metrics={"accuracy": float("nan")}, memory_bytes=5)], TEACHER, gate)[0]
    assert found.reasons == ("accuracy is unknown: not met", "memory_bytes 5, but the teacher's is unknown: not met")
    assert found.values == {"accuracy": None, "memory_bytes": 5.0}


def test_every_criterion_must_hold_and_a_bound_itself_is_enough() -> None:
    gate = Gate(criteria=(Criterion(metric="retained", at_least=0.97), Criterion(metric="bytes", at_most=60_000_000)))
    exact, large = decide([candidate("exact", bytes=60_000_000), candidate("large", bytes=60_000_001)], TEACHER, gate)
    assert exact.accepted and not large.accepted
    assert large.reasons == ("retained 0.97 ≥ 0.97: met", "bytes 60,000,001 ≤ 60,000,000: missed by 1")
