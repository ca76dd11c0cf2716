"""Latency in turn, and memory that is the model's own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import GPT2Config

from tasks.errors import ModelError
from tasks.scoring.predict import load
from tasks.scoring.speed.matmul_libraries import PackedLinear, by_onednn
from tasks.scoring.speed.speed import measure_latency, require_length
from tests.scoring.small import write_classifier

CODE = """
import json, sys
import torch, transformers
from pathlib import Path
from tasks.scoring.speed.speed import peak_increase
one = dict(task_type="classification", batch=1, length=8, threads=1)
print(json.dumps([peak_increase(Path(folder), **one) for folder in sys.argv[1:]]))
"""


def measured(*folders: Path) -> list[int]:
    """Return the memory that a fresh process measures, the small model first: it frees nothing that matters."""
    root, words = Path(__file__).resolve().parents[3], [sys.executable, "-c", CODE, *map(str, folders)]
    found: list[int] = json.loads(subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout)
    return found


def test_memory_is_the_models_and_not_its_parents(tmp_path: Path) -> None:
    """On Linux the peak that getrusage reports is inherited from the process that started this one."""
    small = write_classifier(tmp_path / "small")
    wide = {"hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 4096, "num_hidden_layers": 2}
    large = write_classifier(tmp_path / "large", **wide)
    ballast = bytearray(b"x" * 600_000_000)  # touched: this process is now larger than any of the two will be
    found = dict(zip(("small", "large"), measured(small, large), strict=True))
    weights = (large / "model.safetensors").stat().st_size
    assert len(ballast) and found["small"] < 60e6
    assert weights * 0.8 < found["large"] - found["small"] < weights * 3


def test_both_are_timed_and_the_larger_takes_longer(tmp_path: Path) -> None:
    folders = {
        "model": write_classifier(tmp_path / "small"),
        "teacher": write_classifier(tmp_path / "large", num_hidden_layers=12),
    }
    timed = measure_latency(
        folders, task_type="classification", batch=1, length=8, threads=1, repeats=9, warmup=2, seconds=0.3
    )
    assert timed["model"]["p50_ms"] < timed["teacher"]["p50_ms"]
    assert (
        timed["speedup"] == timed["teacher"]["p50_ms"] / timed["model"]["p50_ms"]
        and timed["speedup_low"] <= timed["speedup_high"]
    )
    assert all(
        0 < timed[name]["low_ms"] <= timed[name]["high_ms"] and timed[name]["p50_ms"] <= timed[name]["p95_ms"]
        for name in folders
    )
    assert all(engine.startswith("torch fp32 sdpa, ") for engine in timed["engines"].values())


def test_either_library_gives_the_same_answer(tmp_path: Path) -> None:
    """The faster one is a matter of time alone: what is timed must be the model."""
    model, _ = load(write_classifier(tmp_path), "classification")
    ids = torch.arange(1, 17).reshape(2, 8)
    with torch.inference_mode():
        before = model(input_ids=ids).logits
        packed = by_onednn(model, ids.numel())
        layers = [layer for layer in packed.modules() if type(layer) is torch.nn.Linear]
        assert not layers and any(isinstance(layer, PackedLinear) for layer in packed.modules())
        assert torch.allclose(packed(input_ids=ids).logits, before, atol=1e-5)


def test_a_language_model_needs_a_place_for_the_token_behind_a_text() -> None:
    config = GPT2Config(n_positions=16)
    require_length(config, 15, further=1)
    require_length(config, 16)
    with pytest.raises(ModelError, match="speed.length is 16 and a model takes at most 16 tokens, 1 of them behind"):
        require_length(config, 16, further=1)


def test_a_length_without_positions_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="speed.length is 64 and a model takes at most 32 tokens; lower"):
        measure_latency(
            {"model": write_classifier(tmp_path)},
            task_type="classification",
            batch=1,
            length=64,
            threads=1,
            repeats=5,
            warmup=0,
            seconds=1,
        )
