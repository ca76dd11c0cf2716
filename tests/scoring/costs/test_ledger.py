"""The ledger's figures: by hand, unknown stays unknown, and what is noted by others is not trusted."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.scoring.costs.figures import estimated, least, measured, scaled, total, unknown
from tasks.scoring.costs.ledger import (
    PARTS,
    cost_of,
    foreseen,
    headline_figures,
    inference_joules,
    nothing_known,
    number,
    sum_of,
)
from tasks.scoring.costs.rates import Instance, Rates, Watts

HOUR = {
    "seconds": 3600.0,
    "machine_seconds": 1800.0,
    "held_seconds": 7200.0,
    "cpu_seconds": 3600.0,
    "peak_bytes": 2**30,
    "threads": 2,
    "processes": 1,
    "cpu": "AMD EPYC 7R32",
    "gpu": None,
    "gpus": 0,
    "gpu_seconds": 0.0,
    "cpu_joules": None,
    "gpu_joules": None,
}
WATTS = [
    Watts(kind="cpu", name="", rest=1, load=4, source="s"),
    Watts(kind="gpu", name="T4", load=72, source="s"),
    Watts(kind="memory", name="", load=0.5, source="s"),
]
PRICE = Instance(instance="i", region="r", on_demand=1.0, spot=0.25, source="s")
RATES = Rates(price=PRICE, kg_per_kwh=0.5, grid="r", pue=1.2, watts=WATTS)

figures = st.one_of(
    st.builds(measured, st.floats(0, 1e6), st.just("clock")),
    st.builds(estimated, st.floats(0, 1e6), st.just("watts")),
    st.just(unknown("not recorded")),
)


def test_an_hour_by_hand() -> None:
    """Two cores for an hour, half of it computing: 7200 s x 1 W + 3600 s x 3 W + 3600 s x 0.5 W = 19,800 J = 5.5 Wh."""
    cost = cost_of(HOUR, RATES)
    assert cost["kwh"]["value"] == pytest.approx(0.0055) and cost["kwh"]["how"] == "estimated"
    assert cost["co2e_kg"]["value"] == pytest.approx(0.0055 * 1.2 * 0.5)
    assert cost["co2e_lb"]["value"] == pytest.approx(0.0055 * 1.2 * 0.5 / 0.45359237)
    assert (cost["dollars_on_demand"]["value"], cost["dollars_spot"]["value"]) == (
        0.5,
        0.125,
    )  # half of the machine was somebody else's
    assert cost["seconds"] == measured(3600.0, "wall clock") and cost["gpu_seconds"]["value"] == 0


def test_counters_go_before_estimates() -> None:
    counted = {**HOUR, "gpus": 1, "gpu": "Tesla T4", "gpu_seconds": 100.0, "cpu_joules": 3.6e6, "gpu_joules": 7.2e6}
    assert (
        cost_of(counted, RATES)["kwh"]["value"] == pytest.approx(3)
        and cost_of(counted, RATES)["kwh"]["how"] == "measured"
    )
    without = cost_of({**counted, "gpu_joules": None}, RATES)["kwh"]
    assert without["value"] == pytest.approx(1 + 100 * 72 / 3.6e6) and without["how"] == "estimated"


def test_a_gpu_of_which_nothing_is_known_makes_energy_unknown() -> None:
    """Its part would be by far the largest: the processor's alone must not pass for the whole."""
    cost = cost_of({**HOUR, "gpus": 1, "gpu": "NVIDIA Z9", "gpu_seconds": 100.0}, RATES)
    assert cost["kwh"]["value"] is None and cost["kwh"]["at_least"] == pytest.approx(0.0055)
    assert cost["co2e_kg"]["value"] is None and cost["co2e_kg"]["at_least"] == pytest.approx(0.0055 * 0.6)
    given = Rates(price=PRICE, kg_per_kwh=0.5, grid="r", watts=WATTS, gpu_watts=36)
    assert cost_of({**HOUR, "gpus": 1, "gpu": "NVIDIA Z9", "gpu_seconds": 100.0}, given)["kwh"][
        "value"
    ] == pytest.approx(0.0055 + 0.001)


def test_one_inference_by_hand_and_unknown_where_nothing_was_timed() -> None:
    """Two threads for 10 ms at 4 W each: 0.08 J."""
    found = inference_joules(10.0, 2, "AMD EPYC 7R32", RATES)
    assert found["value"] == pytest.approx(0.08) and found["how"] == "estimated" and "2 threads x 4 W" in found["by"]
    assert inference_joules(10.0, 2, "any", Rates(watts=WATTS, core_watts=8.0))["value"] == pytest.approx(0.16)
    assert inference_joules(None, 2, "any", RATES) == unknown("no latency was measured")
    assert inference_joules(10.0, 2, "any", Rates()) == unknown("unknown power of this processor")


def test_what_nobody_noted_is_unknown_and_never_0() -> None:
    old = cost_of({"seconds": 12.0}, RATES)  # a manifest from before there was a ledger
    assert old["seconds"]["value"] == 12.0
    assert all(old[part] == {**old[part], "value": None, "how": "unknown"} for part in PARTS if part != "seconds")
    bare = cost_of(HOUR, Rates(watts=WATTS))
    assert (
        all(bare[part]["value"] is None for part in ("co2e_kg", "co2e_lb", "dollars_on_demand", "dollars_spot"))
        and bare["kwh"]["value"]
    )
    assert headline_figures(bare, "spot").keys() == {"kwh"}


@given(st.lists(figures, max_size=8))
def test_a_sum_with_an_unknown_part_is_unknown_and_says_what_it_comes_to(parts: list[Any]) -> None:
    found, known = total(parts), math.fsum(part["value"] for part in parts if part["value"] is not None)
    assert least(found) == pytest.approx(known)
    if any(part["value"] is None for part in parts):
        assert found["value"] is None and found["how"] == "unknown"
    elif any(part["how"] == "estimated" for part in parts):
        assert found["how"] == "estimated"
    else:
        assert found["how"] == "measured" and found["value"] == pytest.approx(known)


@given(st.lists(figures, min_size=1, max_size=4), st.lists(figures, min_size=1, max_size=4))
def test_sums_of_sums_are_sums(first: list[Any], second: list[Any]) -> None:
    whole, parts = total([*first, *second]), total([total(first), total(second)])
    assert (whole["value"] is None) == (parts["value"] is None) and least(parts) == pytest.approx(least(whole))


def test_nothing_spent_is_a_measured_nothing() -> None:
    assert sum_of([])["kwh"] == measured(0.0, "no cost")
    assert scaled(unknown("why"), 3.0, "by") == unknown("why")


def test_what_is_foreseen_is_an_estimate() -> None:
    cost = foreseen(cost_of(HOUR, RATES))
    assert {figure["how"] for figure in cost.values()} == {"estimated"}
    assert foreseen(nothing_known("new"))["kwh"]["value"] is None


@pytest.mark.parametrize("planted", [float("nan"), float("inf"), -1.0, "12", True, None, [1], {"value": 1}])
def test_a_manifest_that_somebody_else_wrote_cannot_make_figures(planted: Any) -> None:
    assert number({"seconds": planted}, "seconds") is None
    assert cost_of({**HOUR, "seconds": planted, "held_seconds": planted}, RATES)["kwh"]["value"] is None
