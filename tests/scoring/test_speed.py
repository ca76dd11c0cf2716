"""Latency in turn, and memory that is the model's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.errors import ModelError
from tasks.scoring.speed import measure_latency
from tests.scoring.small import write_classifier

CODE = """
import json, sys
import torch, transformers
from pathlib import Path
from tasks.scoring.speed import peak_increase
print(json.dumps(peak_increase(Path(sys.argv[1]), batch=1, length=8, threads=1)))
"""


def measured(folder: Path) -> int:
    """Return the memory that a fresh process measures."""
    root = Path(__file__).resolve().parents[2]
    return int(json.loads(subprocess.run([sys.executable, "-c", CODE, str(folder)], cwd=root, capture_output=True, text=True, check=True).stdout))


def test_memory_is_the_models_and_not_its_parents(tmp_path: Path) -> None:
    """On Linux the peak that getrusage reports is inherited from the process that started this one."""
    small = write_classifier(tmp_path / "small")
    large = write_classifier(tmp_path / "large", hidden_size=1024, num_attention_heads=8, intermediate_size=4096)
    ballast = bytearray(b"x" * 600_000_000)  # touched: this process is now larger than any of the two will be
    found = {name: measured(folder) for name, folder in (("small", small), ("large", large))}
    weights = (large / "model.safetensors").stat().st_size
    assert len(ballast) and found["small"] < 60e6
    assert weights * 0.8 < found["large"] - found["small"] < weights * 3


def test_both_are_timed_and_the_larger_takes_longer(tmp_path: Path) -> None:
    folders = {"model": write_classifier(tmp_path / "small"), "teacher": write_classifier(tmp_path / "large", num_hidden_layers=12)}
    timed = measure_latency(folders, batch=1, length=8, threads=1, repeats=9, warmup=2)
    assert timed["model"]["p50_ms"] < timed["teacher"]["p50_ms"]
    assert all(0 < times["p50_ms"] <= times["p95_ms"] for times in timed.values())


def test_a_length_without_positions_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="speed.length is 64 and a model takes at most 32 tokens; lower"):
        measure_latency({"model": write_classifier(tmp_path)}, batch=1, length=64, threads=1, repeats=5, warmup=0)
