"""Files of arrays that need not fit into memory: the same bytes as the library writes, the same numbers as it reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tasks.errors import StoreError
from tasks.training import answers
from tasks.training.data.answer_blocks import AT, AnswerBlocks
from tasks.training.data.array_files import ARRAY_TYPES, created_arrays, mapped_arrays
from tasks.training.data.encoded import Batch

PLACE = torch.device("cpu")


def some_arrays() -> dict[str, np.ndarray]:
    """Return arrays of every type, of names whose order is not that of their types."""
    generator = np.random.default_rng(0)
    shapes = [(3, 5), (7,), (2, 1, 3), (0, 4), ()]
    found = {
        f"{chr(ord('z') - number)} of {name}": generator.integers(0, 2, shapes[number % len(shapes)]).astype(kind)
        for number, (name, kind) in enumerate(ARRAY_TYPES.items())
    }
    return {**found, "ü": np.arange(5, dtype=np.uint8)}


def test_the_bytes_are_those_of_the_library(tmp_path: Path) -> None:
    wanted = some_arrays()
    save_file(wanted, tmp_path / "theirs")
    arrays = created_arrays(tmp_path / "ours", {name: (one.dtype, one.shape) for name, one in wanted.items()})
    for name, values in wanted.items():
        assert arrays[name].shape == values.shape and not arrays[name].any()
        arrays[name][...] = values
    del arrays
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    for name, values in load_file(tmp_path / "ours").items():
        np.testing.assert_array_equal(values, wanted[name])
        np.testing.assert_array_equal(mapped_arrays(tmp_path / "theirs")[name], wanted[name])


def test_outputs_that_stay_on_the_disk_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    save_file({"logs": generator.normal(size=(50, 4)), "words": generator.integers(0, 9, (50, 4))}, tmp_path / "kept")
    places, at = generator.permutation(50)[:30], np.asarray([29, 0, 7, 7])
    nothing = torch.zeros(4, 1)
    batch = Batch(nothing, nothing, nothing, at_B=torch.from_numpy(at))
    held = answers.StoredOutputs(mapped_arrays(tmp_path / "kept"), places, PLACE)
    monkeypatch.setattr(answers, "IN_MEMORY", 1000)
    mapped = answers.StoredOutputs(mapped_arrays(tmp_path / "kept"), places, PLACE)
    assert held.held and not held.mapped and mapped.mapped and not mapped.held
    for name, values in held.of(batch).items():
        torch.testing.assert_close(mapped.of(batch)[name], values, rtol=0, atol=0)
        np.testing.assert_array_equal(values, load_file(tmp_path / "kept")[name][places[at]])


@pytest.mark.parametrize("large", [False, True])
def test_rows_in_the_stored_order_need_no_list_of_places(
    large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = {"ids": np.asarray([5, 3, 9]), answers.COUNTS: np.asarray([2, 0, 3]), "logs": np.arange(5.0)}
    save_file(stored, tmp_path / "kept")
    monkeypatch.setattr(answers, "IN_MEMORY", 0 if large else 2**30)
    read, nothing = mapped_arrays(tmp_path / "kept"), torch.zeros(2, 1)
    for ids, expected in (([5, 3, 9], [4.0, 1.0]), ([9, 5], [1.0, 3.0])):
        places = answers.places_if_moved(read, np.asarray(ids))
        assert (places is None) == (ids == [5, 3, 9])
        found = answers.StoredOutputs({"logs": read["logs"]}, places, PLACE)
        batch = Batch(nothing, nothing, nothing, at_B=torch.tensor([4, 1]))
        assert bool(found.mapped) == large and found.of(batch)["logs"].tolist() == expected


def blocks_of_two(folder: Path) -> AnswerBlocks:
    """Return four answers in two blocks, as a run finds them that an earlier one computed."""
    made = AnswerBlocks(folder)
    for number in range(2):
        made.write(number, [{AT: np.arange(2) + 2 * number, "logs": np.ones((2, 1000), np.float32)}], 4)
    return AnswerBlocks(folder)


def test_blocks_are_counted_without_reading_their_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks_of_two(tmp_path)
    monkeypatch.setattr("tasks.training.data.answer_blocks.load_file", None)
    assert [found.has(number) for number in range(3)] == [True, True, False] and found.answers == 4


def test_a_full_disk_is_a_sentence_where_all_blocks_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks_of_two(tmp_path)
    assert found.has(0) and found.has(1)
    free = SimpleNamespace(free=16_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(StoreError, match="the teacher's answers take 1.6e-05 GB, .* are written, and the disk has"):
        found.publish(tmp_path / "answers", 4, {})
    assert not (tmp_path / "answers").exists()
    free.free = 16_100
    found.publish(tmp_path / "answers", 4, {})
    np.testing.assert_array_equal(load_file(tmp_path / "answers")["logs"], np.ones((4, 1000)))
