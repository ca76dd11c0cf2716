"""How many layers a task needs: never one lucky seed, never the luckiest strategy."""

from __future__ import annotations

from typing import Any

from tasks.scoring.quality.layers_needed import chosen_by_drop, layers_needed


def cell(
    drop: int,
    value: float,
    low: float,
    *,
    strategy: str = "top",
    selection: float = 0.9,
    seeds: int = 3,
    state: str = "scored",
) -> dict[str, Any]:
    """Return one strategy at one number of layers; figures in points."""
    difference = {"value": value / 100, "low": low / 100, "high": (2 * value - low) / 100}
    return {
        "strategy": strategy,
        "drop": drop,
        "state": state,
        "seeds": list(range(seeds)),
        "selection_score": selection,
        "difference": difference,
    }


def found(cells: list[dict[str, Any]], points: float = 1) -> tuple[Any, Any]:
    """Return the number of layers by interval and by mean alone."""
    (answer,) = layers_needed(cells, points=(points,))
    return tuple(answer[name] and answer[name]["drop"] for name in ("holds", "mean"))  # type: ignore[return-value]


def test_the_interval_decides_and_the_mean_is_told_apart() -> None:
    cells = [cell(1, -0.2, -0.6), cell(2, -0.8, -1.3), cell(3, -2.5, -2.9), cell(4, -9.0, -9.9)]
    assert found(cells, 1) == (1, 2)
    assert found(cells, 2) == (2, 2)
    assert found(cells, 3) == (3, 3)
    assert [answer["points"] for answer in layers_needed(cells)] == [1, 2, 3]


def test_the_bound_itself_is_not_enough() -> None:
    assert found([cell(1, -0.5, -1.0)]) == (None, 1)


def test_one_seed_is_never_sure() -> None:
    assert found([cell(1, 0.5, 0.1, seeds=1)]) == (None, 1)


def test_the_strategy_is_chosen_on_other_rows_than_its_figure_is_read_on() -> None:
    lucky, solid = (
        cell(2, +0.5, +0.1, strategy="bottom", selection=0.85),
        cell(2, -1.5, -1.9, strategy="top", selection=0.88),
    )
    assert chosen_by_drop([lucky, solid])[2]["strategy"] == "top"
    assert found([cell(1, 0.0, -0.4), lucky, solid]) == (1, 1)


def test_what_dropped_out_or_is_undefined_is_no_final_figure() -> None:
    out = {"strategy": "bottom", "drop": 2, "state": "dropped out", "rung_score": 0.99}
    assert list(
        chosen_by_drop([cell(1, 0.0, -0.1), out, {"strategy": "alternate-odd", "drop": 4, "state": "undefined"}])
    ) == [1]
    assert found([out]) == (None, None)


def test_a_larger_number_that_holds_by_luck_is_not_believed() -> None:
    cells = [cell(1, -0.2, -0.4), cell(2, -1.2, -1.6), cell(3, -0.3, -0.7)]
    (answer,) = layers_needed(cells, points=(1,))
    assert answer["holds"]["drop"] == 1 and answer["alone"] == [3] and answer["mean"]["drop"] == 3


def test_equally_good_strategies_are_told_apart_by_their_order() -> None:
    assert chosen_by_drop([cell(1, 0, -1, strategy="top"), cell(1, 0, -1, strategy="bottom")])[1]["strategy"] == "top"
