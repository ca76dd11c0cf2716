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
