"""Layer maps: the published sets exactly, and what holds for every pair of depths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import ModelError, RecipeError
from tasks.methods.layers.layer_maps import LAYER_MAPS, initial_layers, layer_map
from tests.methods.oracles import Oracle, reads

DEPTHS = st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n)))


@pytest.mark.parametrize(
    ("name", "students", "teachers", "hidden", "attention"),
    [
        ("uniform", 4, 6, (0, 1, 3, 4, 6), (0, 2, 3, 5)),
        ("uniform", 4, 12, (0, 3, 6, 9, 12), (2, 5, 8, 11)),
        ("uniform", 6, 12, (0, 2, 4, 6, 8, 10, 12), (1, 3, 5, 7, 9, 11)),
        ("divisible", 4, 12, (0, 3, 6, 9, 12), (2, 5, 8, 11)),
        ("last", 4, 6, (0, 3, 4, 5, 6), (2, 3, 4, 5)),
        ("skip", 6, 12, (0, 2, 4, 6, 8, 10), (1, 3, 5, 7, 9)),
        ("skip", 6, 24, (0, 4, 8, 12, 16, 20), (3, 7, 11, 15, 19)),
    ],
)
def test_published_maps(name: str, students: int, teachers: int, hidden: tuple, attention: tuple) -> None:
    found = layer_map(name, students, teachers)
    assert (found.hidden, found.attention) == (hidden, attention)


@reads("pkd", "layer_map")
def test_skip_equals_the_reference_run_scripts(oracle: Oracle) -> None:
    assert list(layer_map("skip", 6, 12).attention) == oracle.content["twelve_to_six_skip_0based"]


@given(DEPTHS)
def test_full_maps_climb_from_embeddings_to_the_last_layer(depths: tuple[int, int]) -> None:
    students, teachers = depths
    for name in ("uniform", "last"):
        found = layer_map(name, students, teachers)
        assert (found.hidden[0], found.hidden[-1]) == (0, teachers)
        assert (len(found.hidden), len(found.attention)) == (students + 1, students)
        assert list(found.hidden) == sorted(set(found.hidden))
        assert found.attention == tuple(h - 1 for h in found.hidden[1:])


@given(DEPTHS)
def test_starting_layers_are_distinct_and_span_the_teacher(depths: tuple[int, int]) -> None:
    students, teachers = depths
    layers = initial_layers(students, teachers)
    assert layers == sorted(set(layers)) and len(layers) == students
    assert layers[0] == 0 and (students == 1 or layers[-1] == teachers - 1)


def test_starting_layers_of_distilbert() -> None:
    assert initial_layers(6, 12) == [0, 2, 4, 7, 9, 11]
    assert initial_layers(1, 12) == [0]


def test_what_cannot_be_mapped_is_refused_with_a_way_out() -> None:
    with pytest.raises(RecipeError, match="divisible, last, skip, uniform"):
        layer_map("evenly", 4, 12)
    with pytest.raises(RecipeError, match="'uniform'"):
        layer_map("divisible", 4, 6)
    with pytest.raises(RecipeError, match="'uniform'"):
        layer_map("skip", 1, 6)
    for students in (0, 7):
        for name in LAYER_MAPS:
            with pytest.raises(ModelError, match="1 to 6"):
                layer_map(name, students, 6)
        with pytest.raises(ModelError, match="1 to 6"):
            initial_layers(students, 6)
