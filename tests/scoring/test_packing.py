"""The archive of a model: zeros take no room in it, and unpacked it is the same folder."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from tasks.engine.checkpoint_files import SNAPSHOTS
from tasks.exports.quantizing import quantize_by
from tasks.scoring import packing
from tasks.scoring.packing import nonzero_share, write_archive


def folder_with(share: float, folder: Path) -> Path:
    """Write weights of which a share is not 0, and a file beside them."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(64, 64)).astype(np.float32)
    values[generator.random((64, 64)) >= share] = 0
    (folder / "onnx").mkdir(parents=True)
    save_file({"weight": values, "bias": np.ones(64, np.float32)}, folder / "model.safetensors")
    (folder / "onnx/README.md").write_text("nothing\n")
    return folder


def test_zeros_take_no_room_in_an_archive(tmp_path: Path) -> None:
    dense, sparse = folder_with(1.0, tmp_path / "dense"), folder_with(0.1, tmp_path / "sparse")
    files = [(folder / "model.safetensors").stat().st_size for folder in (dense, sparse)]
    packed = [write_archive(folder, tmp_path / f"{folder.name}.zip") for folder in (dense, sparse)]
    assert files[0] == files[1] and packed[0] > 0.9 * files[0] and packed[1] < 0.2 * files[1]
    assert nonzero_share(dense) == 1.0 and 0.1 < nonzero_share(sparse) < 0.13


def test_an_archive_is_the_same_folder_byte_by_byte_and_equal_folders_have_equal_ones(tmp_path: Path) -> None:
    folder = folder_with(0.5, tmp_path / "a")
    write_archive(folder, tmp_path / "a.zip")
    write_archive(folder_with(0.5, tmp_path / "b"), tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(tmp_path / "again")
    for path in (one for one in folder.rglob("*") if one.is_file()):
        assert (tmp_path / "again" / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_an_archive_that_could_not_be_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of one looked like a package, and stood in the way of the next try."""
    folder = folder_with(0.5, tmp_path / "a")

    def full(*given: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(packing, "pack_file", full)
        with pytest.raises(OSError, match="no space"):
            write_archive(folder, tmp_path / "a.zip")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a"}
    assert write_archive(folder, tmp_path / "a.zip") > 0


def test_snapshots_of_a_training_are_not_the_model(tmp_path: Path) -> None:
    """The dense model of a lottery has one, and looked twice as large."""
    folder = tmp_path / "model"
    (folder / SNAPSHOTS).mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    alone = write_archive(folder, tmp_path / "alone.zip")
    (folder / SNAPSHOTS / "rewound.safetensors").write_bytes(bytes(range(256)) * 9)
    assert write_archive(folder, tmp_path / "both.zip") == alone
    assert (tmp_path / "both.zip").read_bytes() == (tmp_path / "alone.zip").read_bytes()


def test_an_int8_graph_with_a_tenth_of_its_weights_is_a_fifteenth_of_fp32_when_it_is_packed(tmp_path: Path) -> None:
    """Two layers as wide as MiniLM's, with weights as large as after training: bell-shaped, the largest left."""
    generator = torch.Generator().manual_seed(0)
    layers = [torch.nn.Linear(384, 1536, bias=False), torch.nn.Linear(1536, 384, bias=False)]
    with torch.no_grad():
        for layer in layers:
            drawn = torch.randn(layer.weight.shape, generator=generator) * 0.05
            least = drawn.abs().flatten().kthvalue(int(0.9 * drawn.numel())).values
            layer.weight.copy_(drawn * (drawn.abs() > least))
    numbers = sum(layer.weight.numel() for layer in layers)
    (tmp_path / "int8").mkdir()
    torch.onnx.export(torch.nn.Sequential(*layers).eval(), (torch.randn(2, 384),), tmp_path / "fp32.onnx", dynamo=True)
    quantize_by(
        "dynamic", tmp_path / "fp32.onnx", tmp_path / "int8/model.onnx", reduce_range=False, feeds=lambda: iter(())
    )
    unpacked = (tmp_path / "int8/model.onnx").stat().st_size
    packed = write_archive(tmp_path / "int8", tmp_path / "int8.zip")
    assert unpacked > 0.25 * 4 * numbers and packed <= 0.07 * 4 * numbers, packed / (4 * numbers)
