"""kWh and CO2e: by hand, against the literature's table, and without double counting of a data centre's overhead."""

from __future__ import annotations

import pytest

from tasks.scoring.speed.energy import STRUBELL, cpu_joules, emitted_kg, kwh_of, memory_joules, pounds


@pytest.mark.parametrize(("kwh", "lb"), [(27, 26), (201, 192), (275, 262), (1_507, 1_438), (656_347, 626_155)])
def test_the_table_of_strubell_et_al(kwh: float, lb: int) -> None:
    """Its kWh have the data centre's overhead of 1.58 in them already (the column is "kWh·PUE"), so none is added."""
    assert round(pounds(emitted_kg(kwh, kg_per_kwh=STRUBELL, pue=1.0))) == lb


def test_overhead_counts_once() -> None:
    drawn = 1_507 / 1.58
    assert round(pounds(emitted_kg(drawn, kg_per_kwh=STRUBELL, pue=1.58))) == 1_438


def test_a_core_by_hand() -> None:
    """A core held for 10 s that computes for 4 of them: 10 s at 1 W, and 4 s with 3 W more."""
    assert cpu_joules(cpu_seconds=4, held_seconds=10, rest_watts=1, load_watts=4) == 22
    assert memory_joules(peak_bytes=2 * 2**30, seconds=10, watts_per_gb=0.4) == pytest.approx(8)
    assert kwh_of(3.6e6) == 1
