"""An engine that runs short of memory or disk says so in one sentence; these are real shortages, made by limits of the
system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.engine.job import Job
from tasks.recipe.methods import Matching
from tasks.recipe.slices import IntermediateSlice
from tasks.recipe.students import Shape
from tests.forked import ForkedJob

ROOT = Path(__file__).resolve().parents[2]

# Two processes that write to one pipe, unbuffered, as torchrun starts them.
SHARED = """
import os
from tasks.engine.job import emit
beside = os.fork()
for number in range(500):
    emit("curve", step=number, of=beside > 0)
os._exit(0) if not beside else os.waitpid(beside, 0)
"""


def order(folder: Path, **knobs: Any) -> Path:
    """Write an order that pretrains a model on plain text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "documents").mkdir()
    pq.write_table(
        pa.table({"text": ["the film was good and the song was bad " * 20] * 64}),
        folder / "documents" / "documents.parquet",
    )
    shape = {"layers": 1, "hidden": 64, "heads": 4, "feed_forward": 64, "vocabulary": 100, "mask_share": 0.2}
    spec = {
        "epochs": 1.0,
        "steps": 2,
        "batch_size": 8,
        "batch_tokens": 8192,
        "learning_rate": 1e-3,
        "warmup": 0.0,
        "schedule": "linear",
        "weight_decay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "clip": 1.0,
        "dropout": 0.0,
        "precision": "fp32",
        "max_length": 64,
        "seed": 0,
        "evaluations": 0,
        "checkpoint_minutes": 5.0,
    }
    path = folder / "order.json"
    path.write_text(
        json.dumps(
            {
                "job": "pretrain",
                "knobs": {**shape, **spec, **knobs},
                "inputs": {"documents": str(folder / "documents")},
                "output": str(folder / "output"),
                "checkpoints": str(folder / "checkpoints"),
                "threads": 1,
            }
        )
    )
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the system are set as on Linux")
@pytest.mark.parametrize(
    ("limit", "extra", "knobs", "kind", "sentence"),
    [
        (
            "RLIMIT_AS",
            256 << 20,
            {"hidden": 2048, "feed_forward": 32768, "layers": 4},
            "OutOfMemory",
            "memory ran out; lower batch_size",
        ),
        ("RLIMIT_FSIZE", 40_000, {}, "StoreError", "the disk is full; nothing was published"),
    ],
)
def test_a_shortage_is_one_sentence(
    tmp_path: Path, limit: str, extra: int, knobs: dict[str, Any], kind: str, sentence: str
) -> None:
    wanted = json.loads(order(tmp_path, **knobs).read_text())
    engine = ForkedJob(wanted, tmp_path, "tests.forked.limited", LIMIT=limit, EXTRA=str(extra))
    said = engine.events()
    assert engine.fork.wait() == 2, engine.errors
    assert said[-1]["event"] == "error" and said[-1]["kind"] == kind and sentence in said[-1]["message"]


def test_a_mistake_of_ours_is_not_called_a_shortage(tmp_path: Path) -> None:
    broken = json.loads(order(tmp_path).read_text())
    broken["knobs"]["hiden"] = broken["knobs"].pop("hidden")
    engine = ForkedJob(broken, tmp_path)
    last = engine.events()[-1]
    assert engine.fork.wait() == 2 and last["kind"] == "EngineError" and "ValidationError: " in last["message"]
    assert "hiden" in last["message"]
    assert "Traceback" in engine.errors, "whoever mends it must see where it happened"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="two processes are made by a fork")
def test_processes_that_share_a_pipe_write_whole_lines() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted((event["of"], event["step"]) for event in said) == [
        (of, step) for of in (False, True) for step in range(500)
    ]


def test_an_order_without_a_place_for_checkpoints_keeps_them_to_itself(tmp_path: Path) -> None:
    one, other = (Job({"job": "pretrain", "output": str(tmp_path / name)}) for name in ("one", "other"))
    assert one.checkpoints != other.checkpoints and tmp_path / "one" in one.checkpoints.parents


def test_knobs_are_read_as_the_slice_that_was_sent(tmp_path: Path) -> None:
    sent = IntermediateSlice(
        task_type="classification", steps=3, shape=Shape(layers=2), start="teacher", matching=Matching(hidden=0.5)
    )
    values = json.loads(json.dumps(sent.model_dump(mode="json")))
    read = Job({"job": "intermediate", "knobs": values, "output": str(tmp_path)}).read(IntermediateSlice)
    assert read == sent and isinstance(read.matching, Matching) and isinstance(read.shape, Shape)
    with pytest.raises(ValidationError, match="matchin"):
        Job({"job": "x", "knobs": values | {"matchin": {}}, "output": str(tmp_path)}).read(IntermediateSlice)
