"""Tables of prices, grids and watts: whole, dated, replaced by a user's own, and old ones are told."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from tasks.errors import RecipeError
from tasks.recipe.running import Costs
from tasks.scoring.costs.rates import OLD_GRID, OLD_PRICE, TABLES, Grid, Instance, Watts, rates_for, read

COLUMNS = "instance,region,on_demand,spot,vcpus,memory_gib,gpu,gpus,as_of,source\n"
NOW = date(2026, 2, 1)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for tables of one's own."""
    monkeypatch.setenv("LIMBECK_PRICES", str(tmp_path))
    return tmp_path


def test_every_row_of_ours_has_a_source_and_a_date() -> None:
    prices, grids, watts = read("instances", Instance, None), read("grid", Grid, None), read("watts", Watts, None)
    assert all(row.source and row.as_of for row in [*prices, *grids]) and all(row.source for row in watts)
    assert len({(row.instance, row.region) for row in prices}) == len(prices) and len(
        {row.region for row in grids}
    ) == len(grids)
    assert all(row.spot <= row.on_demand for row in prices if row.spot is not None and row.on_demand is not None)
    assert all((row.rest or 0) < row.load for row in watts)
    assert {path.suffix for path in TABLES.iterdir()} == {".csv", ".md"}


def test_a_gpu_is_found_by_its_name_and_not_by_a_part_of_it() -> None:
    rates = rates_for(Costs())
    known = {
        "Tesla T4": 71,
        "NVIDIA L4": 72,
        "NVIDIA L40S": 350,
        "NVIDIA A100-SXM4-40GB": 407,
        "NVIDIA H100 PCIe": 350,
        "NVIDIA H100 80GB HBM3": 700,
    }
    assert {name: row.load if (row := rates.drawn_by("gpu", name)) else None for name in known} == known
    assert rates.drawn_by("gpu", "NVIDIA Z9") is None
    by_cpu = {
        name: rates.drawn_by("cpu", name).load
        for name in (
            "AMD EPYC 7R32",
            "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz",
            "AMD EPYC",
            "AMD EPYC family 25 model 1",
        )
    }
    assert list(by_cpu.values()) == [1.69, 3.69, 3.5, 3.5]


def test_old_figures_are_used_with_a_warning() -> None:
    costs = Costs(region="us-east-1", instance="g4dn.xlarge", grid_kg_per_kwh=0.3)
    priced = rates_for(costs, today=NOW).price
    assert priced is not None and priced.as_of is not None and priced.on_demand == 0.526
    assert not rates_for(costs, today=priced.as_of + timedelta(days=OLD_PRICE)).warnings
    (said,) = rates_for(costs, today=priced.as_of + timedelta(days=OLD_PRICE + 1)).warnings
    assert "g4dn.xlarge in us-east-1" in said and "91 days old" in said
    grid = rates_for(Costs(region="DE"), today=date(2021, 12, 31) + timedelta(days=OLD_GRID + 1))
    assert len(grid.warnings) == 1 and "grid factor of DE" in grid.warnings[0] and grid.kg_per_kwh == 0.338


def test_a_users_own_row_goes_first_and_ours_stay(own: Path) -> None:
    (own / "instances.csv").write_text(
        COLUMNS
        + "box,home,0.02,,4,16,,0,,my electricity bill\ng4dn.xlarge,us-east-1,0.5,0.1,4,16,T4,1,2026-01-31,seen\n"
    )
    assert (
        rates_for(Costs(region="us-east-1", instance="g4dn.xlarge", market="spot"), today=NOW).dollars_per_hour() == 0.1
    )
    assert rates_for(Costs(region="us-east-1", instance="g5.xlarge"), today=NOW).dollars_per_hour() == 1.006
    (own / "grid.csv").write_text("region,kg_per_kwh,pue,as_of,source\nhome,0.1,,2026-01-01,the sun\n")
    mine = rates_for(Costs(region="home", instance="box"), today=NOW)
    assert (mine.dollars_per_hour(), mine.dollars_per_hour("spot"), mine.kg_per_kwh, mine.pue) == (0.02, None, 0.1, 1.0)
    assert mine.warnings == (
        "the price of box in home is without a date; add a newer one to your own table (LIMBECK_PRICES)",
    )


def test_the_recipe_goes_before_every_table() -> None:
    rates = rates_for(Costs(region="us-east-1", pue=1.5, grid_kg_per_kwh=0.2), today=NOW)
    assert (rates.pue, rates.kg_per_kwh, rates.grid, rates.warnings) == (1.5, 0.2, "the recipe", ())
    assert rates_for(Costs(region="us-east-1"), today=NOW).pue == 1.135


@pytest.mark.parametrize(
    ("costs", "sentence"),
    [
        (
            Costs(region="us-east-1", instance="g4dn.xlrge"),
            r"'g4dn.xlrge' is not in the tables; did you mean 'g4dn.xlarge'\?",
        ),
        (Costs(region="eu-west-1", instance="g6.xlarge"), "g6.xlarge has no price in eu-west-1, only in us-east-1"),
        (Costs(region="us-eastern-1"), r"'us-eastern-1' is not in the tables; did you mean 'us-east-1'\?"),
    ],
)
def test_unknown_names_are_refused_with_those_that_are_known(costs: Costs, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        rates_for(costs, today=NOW)


def test_a_table_that_cannot_be_read_is_told_with_its_line(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "instances.csv").write_text(COLUMNS + "a,b,cheap,,,,,,,me\n")
    with pytest.raises(RecipeError, match=r"instances\.csv, line 2: on_demand: input should be a valid number"):
        rates_for(Costs(region="us-east-1", instance="g5.xlarge"))
    monkeypatch.setenv("LIMBECK_PRICES", str(own / "nowhere"))
    with pytest.raises(RecipeError, match="which is not a folder"):
        rates_for(Costs())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"instance": "g5.xlarge"}, "set costs.region"),
        ({"budget": {"dollars": 1}}, "a budget in dollars needs a price"),
    ],
)
def test_dollars_need_a_price(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Costs.model_validate(given)
