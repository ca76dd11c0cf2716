"""How the time of mixers, and of models of transformers beside them, grows with the length of a text."""

from __future__ import annotations

import pytest

from tasks.modeling.growing_models import CONFIGS
from tasks.modeling.growth import measured_growth, print_growth, slope_of
from tasks.modeling.survey import SURVEY


def test_a_slope_is_that_of_a_power() -> None:
    assert slope_of([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)
    assert slope_of([1, 2, 4], [5.0, 10.0, 20.0]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["linear", "fnet", "nystromformer", "longformer", "led"])
def test_mixers_and_models_are_measured_alike(name: str) -> None:
    """One layer each, at each length, with the memory of the longest text."""
    seconds, taken = measured_growth(name, (64, 128))
    assert len(seconds) == 2 and min(seconds) > 0 and taken > 128 * 256 * 4


def test_an_unknown_name_lists_mixers_and_models() -> None:
    with pytest.raises(ValueError, match="unknown mixer 'longfomer'; legal are softmax, .*longformer"):
        print_growth(["longfomer"])


def test_models_that_are_measured_are_on_the_page() -> None:
    assert {*CONFIGS} - {"bert"} <= {one.model_type for one in SURVEY}
