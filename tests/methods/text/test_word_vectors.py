"""Nearest words: equal to a plain search, block borders and ties included."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.errors import DataError
from tasks.methods.text.word_vectors import ROWS_AT_ONCE, nearest_words


def vectors(count: int) -> np.ndarray:
    drawn = np.random.default_rng(0).normal(size=(count, 8))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_equals_a_plain_search_across_block_borders() -> None:
    table = vectors(ROWS_AT_ONCE + 50)
    rows = np.arange(len(table))[::-1]
    found = nearest_words(table, rows, 5)
    for row, neighbours in zip(rows, found, strict=True):
        cosines = table @ table[row]
        cosines[row] = -2.0
        assert list(neighbours) == list(np.argsort(-cosines)[:5])


def test_a_word_is_never_its_own_neighbour_but_its_double_is() -> None:
    table = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    assert nearest_words(table, np.array([0, 1]), 1).tolist() == [[1], [0]]


def test_of_equally_near_words_the_earlier_comes_first() -> None:
    table = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.0, 1.0]], dtype=np.float32)
    assert nearest_words(table, np.array([0]), 3).tolist() == [[1, 2, 3]]


def test_of_equally_near_words_the_earlier_is_taken_where_there_is_no_room_for_all() -> None:
    """A partition takes any of them: a rare word would stand in for a frequent one."""
    table = np.array([[1.0, 0.0]] + [[0.0, 1.0]] * 60 + [[0.6, 0.8]], dtype=np.float32)
    assert nearest_words(table, np.array([0]), 3).tolist() == [[61, 1, 2]]


def test_small_vocabularies_and_empty_requests_work() -> None:
    assert nearest_words(vectors(3), np.array([0]), 10).shape == (1, 2)
    assert nearest_words(vectors(1), np.array([0]), 10).shape == (1, 0)
    assert nearest_words(vectors(3), np.array([], dtype=np.int64), 2).shape == (0, 2)


def test_a_row_outside_the_table_is_refused() -> None:
    with pytest.raises(DataError, match="between 0 and 2"):
        nearest_words(vectors(3), np.array([3]), 1)
