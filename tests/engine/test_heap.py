"""A process whose batches differ in size does not grow without end."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tasks.engine.environment import PRACTICAL
from tasks.engine.heap import ROOM_TO_GROW, Heap, resident_bytes

GIGABYTE = 2**30


def test_memory_is_given_back_where_a_process_has_grown_far_beyond_its_usual_size() -> None:
    sizes, trimmed = iter([10.0, 11.9, 12.1, 9.0, 10.7, 10.9]), list[float]()
    now = [0.0]

    def resident() -> int:
        now[0] = next(sizes)
        return int(now[0] * GIGABYTE)

    heap = Heap(resident, lambda: trimmed.append(now[0]))
    for _ in range(6):
        heap.watch()
    assert trimmed == [12.1, 10.9], "1.2 times the first size, and then that of the first call afterwards"


def test_a_small_process_may_grow_by_a_gigabyte_and_one_of_unknown_size_is_left_alone() -> None:
    sizes, trimmed = iter([10**8, 10**8 + ROOM_TO_GROW, 10**8 + ROOM_TO_GROW + 1]), list[int]()
    heap = Heap(lambda: next(sizes), lambda: trimmed.append(1))
    heap.watch()
    heap.watch()
    assert not trimmed
    heap.watch()
    assert trimmed == [1]
    Heap(lambda: None, lambda: trimmed.append(2)).watch()
    assert trimmed == [1]


PIECES = """
import numpy as np
from tasks.engine.heap import give_back, resident_bytes
blocks = [np.ones(2**20) for _ in range(40)]
last = blocks[-1]
del blocks
before = resident_bytes()
give_back()
print(before, resident_bytes())
"""


@pytest.mark.skipif(resident_bytes() is None, reason="this system does not tell the size of a process")
def test_freed_blocks_between_others_go_back_to_the_system() -> None:
    """As an engine is started: glibc then keeps 39 blocks of 8 MB below one that is in use."""
    done = subprocess.run([sys.executable, "-c", PIECES], env=PRACTICAL, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before - after > 250e6, done.stdout
