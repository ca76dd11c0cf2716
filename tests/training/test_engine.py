"""The engine alone: one job from a JSON file and Parquet, stopped at any moment and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tasks.recipe.slices import TeacherSlice
from tasks.training.data.batches import plan
from tests.forked import ForkedJob

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path, rows: Path, bert: Path) -> ForkedJob:
    """Start a fine-tuning job."""
    return ForkedJob(order(folder, rows, bert, steps=300), folder)


def order(folder: Path, rows: Path, bert: Path, *, steps: int) -> dict[str, Any]:
    """Return the order of a fine-tuning job."""
    knobs = TeacherSlice(
        task_type="classification", steps=steps, batch_size=8, max_length=16, evaluations=2, precision="fp32"
    ).model_dump(mode="json")
    return {
        "job": "finetune",
        "knobs": knobs,
        "inputs": {"rows": str(rows), "base": str(bert)},
        "output": str(folder / "output"),
        "checkpoints": str(folder / "checkpoints"),
        "threads": 1,
    }


def digest(folder: Path) -> str:
    return sha256((folder / "output" / "model.safetensors").read_bytes()).hexdigest()


def test_a_stopped_training_ends_with_the_same_bytes(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    assert start(tmp_path / "whole", rows, tiny_bert).events()[-1]["event"] == "result"

    stopped = start(tmp_path / "stopped", rows, tiny_bert)
    stopped.stdout.readline()  # the first curve point: about step 50
    stopped.send_signal(signal.SIGTERM)
    last = stopped.events()[-1]
    assert last["event"] == "error" and last["kind"] == "Interrupted", last
    assert not (tmp_path / "stopped" / "output" / "model.safetensors").exists()

    resumed = start(tmp_path / "stopped", rows, tiny_bert).events()
    assert resumed[0]["message"].startswith("resuming at step")
    assert digest(tmp_path / "stopped") == digest(tmp_path / "whole")


def test_an_engine_starts_without_what_it_does_not_need(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    """Every stage starts an engine: pandas alone, which pyarrow brings along where it is asked for a dataset, would be
    half a second each time."""
    probe = """
import runpy, sys
try:
    runpy.run_module("tasks.training", run_name="__main__")
except SystemExit as end:
    print(end.code, sorted({"pandas", "mlflow", "prefect", "datasets"} & set(sys.modules)))
"""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(order(tmp_path, rows, tiny_bert, steps=2)))
    done = subprocess.run([sys.executable, "-c", probe, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout[-500:] + done.stderr[-500:]


def test_an_unknown_job_is_one_sentence(tmp_path: Path) -> None:
    engine = ForkedJob({"job": "distil", "output": str(tmp_path)}, tmp_path)
    assert "unknown job 'distil'; choose one of" in engine.events()[-1]["message"]
    assert engine.fork.wait() == 2 and "Traceback" not in engine.errors


def test_batches_hold_every_row_once_and_pad_little() -> None:
    lengths = np.random.default_rng(0).geometric(0.07, 5000) + 2
    batches = plan(lengths, size=32, tokens=4096, seed=1, epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(5000))
    computed = sum(lengths[batch].max() * len(batch) for batch in batches)
    assert computed < 1.1 * lengths.sum()
    assert all(lengths[batch].max() * len(batch) <= 4096 for batch in batches)


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    lengths = np.arange(3, 203)
    again, other = (plan(lengths, size=8, tokens=4096, seed=1, epoch=epoch) for epoch in (0, 1))
    assert all((a == b).all() for a, b in zip(plan(lengths, size=8, tokens=4096, seed=1, epoch=0), again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(again, other, strict=True))
