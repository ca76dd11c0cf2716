"""Masks, snapshots and phases at once, in processes that share a training, and in processes that are killed.

By default they are forked, two of them with torchrun's variables; torchrun itself is real in the slow test.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tasks.engine.environment import environment
from tasks.engine.process import command
from tasks.training.models.snapshots import read_snapshot
from tests.forked import ForkedJob
from tests.web_server import free_port

ROOT = Path(__file__).resolve().parents[3]
ENGINE = "tests.training.loop.phased_engine"


def order(folder: Path, knobs: dict[str, Any]) -> dict[str, Any]:
    """Return the order of an engine whose output is in ``folder/output``."""
    places = {"output": str(folder / "output"), "checkpoints": str(folder / "checkpoints")}
    return {"job": "phased", "knobs": knobs, "threads": 1, **places}


def forked(folder: Path, processes: int = 1, **knobs: Any) -> list[ForkedJob]:
    """Fork the processes of an engine; several share the training by torchrun's variables."""
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    wanted = order(folder, knobs)
    return [ForkedJob(wanted, folder, ENGINE, **(own if processes > 1 else {})) for own in ranks]


def started(folder: Path, processes: int, **knobs: Any) -> subprocess.Popen[str]:
    """Start the engine as a stage does, by torchrun where several processes share it."""
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(json.dumps(order(folder, knobs)))
    own = environment(1) | {"PYTHONPATH": str(ROOT)}
    words = [*command(ENGINE, processes), str(folder / "job.json")]
    return subprocess.Popen(words, env=own, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def learned(folder: Path, processes: int, **knobs: Any) -> list[dict[str, Any]]:
    """Let an engine do its job, one process as a fork, several by torchrun; return its events, but for its
    resources."""
    if processes == 1:
        [engine] = forked(folder, **knobs)
        found, errors = engine.events(), engine.errors
    else:
        out, errors = started(folder, processes, **knobs).communicate(timeout=500)
        found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert found, errors[-2000:]
    return [event for event in found if event["event"] != "used"]


def killed(folder: Path, processes: int, after: str, **knobs: Any) -> None:
    """Kill an engine after it has told of a step, and take its output away."""
    process = forked(folder, **knobs)[0] if processes == 1 else started(folder, processes, **knobs)
    assert process.stdout is not None
    lines = list[str]()
    while not lines or json.loads(lines[-1] if lines[-1].startswith("{") else "{}").get("message") != after:
        lines.append(process.stdout.readline())
        assert lines[-1], "it ended by itself"
    process.send_signal(signal.SIGKILL)
    if isinstance(process, ForkedJob):
        process.events()
    else:
        process.communicate(timeout=60)
    assert not (folder / "output/model.safetensors").exists() and list((folder / "checkpoints").glob("step-*"))
    shutil.rmtree(folder / "output")


def files(folder: Path) -> dict[str, bytes]:
    """Return the weights and snapshots that a training has written."""
    return {path.name: path.read_bytes() for path in (folder / "output").rglob("*.safetensors")}


def test_two_processes_mask_freeze_and_remember_as_one_does(tmp_path: Path) -> None:
    engines = {count: forked(tmp_path / str(count), count, dropout=0.0, steps=12) for count in (1, 2)}
    said = {count: [event for one in both for event in one.events()] for count, both in engines.items()}
    assert [event["event"] for event in said[2]].count("result") == 1, f"one process speaks; {engines[2][0].errors}"
    one, two = (load_file(tmp_path / count / "output/model.safetensors") for count in "12")
    masked = "bert.encoder.layer.1.intermediate.dense.weight"
    assert 0.4 < float((one[masked] == 0).float().mean()) < 0.6 and torch.equal(one[masked] == 0, two[masked] == 0)
    for snapshot in (None, "start", "rewind"):
        if snapshot is not None:
            one, two = (read_snapshot(tmp_path / count / "output", snapshot) for count in "12")
        assert one.keys() == two.keys()
        for name, value in one.items():
            if not name.endswith("key.bias"):  # moves no score: its gradient is rounding
                torch.testing.assert_close(two[name], value, rtol=0, atol=2e-4, msg=f"{snapshot}: {name}")
    assert files(tmp_path / "1").keys() == {"model.safetensors", "start.safetensors", "rewind.safetensors"}


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_training_ends_with_the_same_bytes(tmp_path: Path, processes: int) -> None:
    """Killed in the first phase, and again in the second after the snapshot; each time the output is lost.

    A checkpoint is written beside the training, which waits for it before the next one: after step N has told of
    itself, that of step N - 2 is whole, and that of step N - 1 may be half-written.
    """
    knobs = {"dropout": 0.1, "steps": 30}
    assert learned(tmp_path / "whole", processes, **knobs)[-1]["event"] == "result"
    killed(tmp_path / "broken", processes, "step 4", **knobs)
    killed(tmp_path / "broken", processes, "step 18", **knobs)
    again = learned(tmp_path / "broken", processes, **knobs)
    assert again[0]["message"].startswith("resuming at step") and again[-1]["event"] == "result"
    assert int(again[0]["message"].split()[3]) >= 16 > knobs["steps"] // 2, "after the snapshot"
    assert files(tmp_path / "whole") == files(tmp_path / "broken") and len(files(tmp_path / "whole")) == 3
