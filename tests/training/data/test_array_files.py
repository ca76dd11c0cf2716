"""Files of arrays that need not fit into memory: the same bytes as the library writes, the same numbers as it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tasks.training import answers
from tasks.training.data.array_files import KINDS, created_arrays, mapped_arrays
from tasks.training.data.encoded import Batch

PLACE = torch.device("cpu")


def some_arrays() -> dict[str, np.ndarray]:
    """Return arrays of every type, of names whose order is not that of their types."""
    generator = np.random.default_rng(0)
    shapes = [(3, 5), (7,), (2, 1, 3), (0, 4), ()]
    found = {
        f"{chr(ord('z') - number)} of {name}": generator.integers(0, 2, shapes[number % len(shapes)]).astype(kind)
        for number, (name, kind) in enumerate(KINDS.items())
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
