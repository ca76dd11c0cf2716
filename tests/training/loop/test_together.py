"""Two processes that share a training learn what one would: real processes, real gloo.

Those that learn are forked with torchrun's variables; torchrun itself is real where processes are stopped or killed,
and in a run of two processes in ``tests/flows/test_compress.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tasks.engine.environment import environment
from tasks.engine.process import command
from tasks.methods.losses.means import Loss, mean_of
from tasks.recipe.data import CorpusText
from tasks.recipe.slices import AnswerSlice, DropSlice, GeneralSlice, IntermediateSlice, PredictionSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import Epoch, Indices
from tasks.training.distributed import ProcessGroup
from tests.forked import ForkedJob
from tests.web_server import free_port

FAST: dict[str, Any] = {
    "steps": 12,
    "batch_size": 10,
    "max_length": 16,
    "evaluations": 2,
    "precision": "fp32",
    "dropout": 0.0,
    "learning_rate": 1e-3,
}


def order(folder: Path, job: str, knobs: Any, inputs: Mapping[str, Path]) -> dict[str, Any]:
    """Return the order of an engine."""
    return {
        "job": job,
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {name: str(path) for name, path in inputs.items()},
        "output": str(folder / "output"),
        "checkpoints": str(folder / "checkpoints"),
        "threads": 1,
    }


def start(folder: Path, job: str, knobs: Any, processes: int, **inputs: Path) -> subprocess.Popen[str]:
    """Start an engine as a stage does."""
    folder.mkdir(exist_ok=True)
    (folder / "job.json").write_text(json.dumps(order(folder, job, knobs, inputs)))
    words = [*command("tasks.training", processes), str(folder / "job.json")]
    return subprocess.Popen(words, env=environment(1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def learned(folder: Path, job: str, knobs: Any, processes: int = 1, **inputs: Path) -> list[dict[str, Any]]:
    """Let forked processes share a job; return the events of all."""
    port, wanted = str(free_port()), order(folder, job, knobs, inputs)
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    engines = [ForkedJob(wanted, folder, **(own if processes > 1 else {})) for own in ranks]
    found = [event for engine in engines for event in engine.events()]
    assert found, engines[0].errors
    return [event for event in found if event["event"] != "used"]


def said(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for an engine; return its events, but for what each of its processes took: the last of them says that when
    it likes."""
    out, errors = process.communicate(timeout=300)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert events, errors[-2000:]
    return [event for event in events if event["event"] != "used"]


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "output" / "model.safetensors")


def orders(rows: Path, bert: Path, tmp_path: Path) -> dict[str, tuple[Any, dict[str, Path]]]:
    """Return one order of every kind of training."""
    student = {"shape": Shape(layers=2), "start": "teacher"}
    return {
        "finetune": (TeacherSlice(task_type="classification", **FAST), {"rows": rows, "base": bert}),
        "intermediate": (
            IntermediateSlice(task_type="classification", **FAST, **student),
            {"rows": rows, "teacher": bert},
        ),
        "intermediate-paper": (
            IntermediateSlice(task_type="classification", **FAST, **student, matching={"formula": "paper"}),
            {"rows": rows, "teacher": bert},
        ),
        "general": (
            GeneralSlice(**FAST, shape=Shape(layers=2), start="teacher", method="layers"),
            {"base": bert, "corpus": tmp_path / "corpus" / "output"},
        ),
        "general-relations": (
            GeneralSlice(**FAST, shape=Shape(layers=2), start="teacher"),
            {"base": bert, "corpus": tmp_path / "corpus" / "output"},
        ),
        "intermediate-replacing": (
            IntermediateSlice(
                task_type="classification", **FAST, shape=Shape(layers=2), start="top", method="replacing"
            ),
            {"rows": rows, "teacher": bert},
        ),
        "drop": (DropSlice(task_type="classification", **FAST, strategy="top", drop=1), {"rows": rows, "base": bert}),
        "prediction": (
            PredictionSlice(task_type="classification", **FAST, **student, hard_weight=0.5),
            {"rows": rows, "teacher": bert, "answers": tmp_path / "answer" / "output"},
        ),
    }


def write_documents(folder: Path, rows: Path) -> None:
    """Write the rows' texts as a corpus."""
    folder.mkdir()
    pq.write_table(pq.read_table(rows / "train.parquet", columns=["text"]), folder / "documents.parquet")


BY_DEFAULT = ("general", "intermediate-paper", "prediction")  # the others take the same paths: `make slow`
JOBS = [
    "finetune",
    "general",
    "general-relations",
    "intermediate",
    "intermediate-paper",
    "intermediate-replacing",
    "drop",
    "prediction",
]


@pytest.mark.parametrize(
    "job", [job if job in BY_DEFAULT else pytest.param(job, marks=pytest.mark.slow) for job in JOBS]
)
def test_two_processes_learn_what_one_learns(job: str, rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    if job == "prediction":
        answering = AnswerSlice(task_type="classification", max_length=16, precision="fp32")
        learned(tmp_path / "answer", "answer", answering, rows=rows, teacher=tiny_bert)
    if job.startswith("general"):
        write_documents(tmp_path / "documents", rows)
        text = CorpusText(source="x", max_length=16)
        learned(tmp_path / "corpus", "tokenize", text, base=tiny_bert, documents=tmp_path / "documents")
    knobs, inputs = orders(rows, tiny_bert, tmp_path)[job]
    events = {count: learned(tmp_path / str(count), job.split("-")[0], knobs, count, **inputs) for count in (1, 2)}
    assert [event["event"] for event in events[2]].count("result") == 1, "one process speaks"
    curves = {
        count: [event["figures"]["loss"] for event in said if event["event"] == "curve" and "loss" in event["figures"]]
        for count, said in events.items()
    }
    # A random model relates its tokens almost evenly, so that the loss of relations is near the rounding of a float.
    assert curves[2] == pytest.approx(curves[1], rel=1e-4, abs=1e-8) and curves[1]
    one, two = weights(tmp_path / "1"), weights(tmp_path / "2")
    before = load_file(tiny_bert / "model.safetensors")
    # Where layers are replaced, they alone are trained.
    table = (
        "bert.encoder.layer.0.output.dense.weight"
        if job.endswith("replacing")
        else "bert.embeddings.word_embeddings.weight"
    )
    after = one[table if table in one else table.removeprefix("bert.")]
    assert float((after - before[table]).abs().max()) > 1e-3, "a training that changes nothing shows nothing"
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=2e-4, msg=name)


@pytest.mark.slow
def test_two_stopped_processes_go_on_as_if_nothing_had_happened(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    knobs = TeacherSlice(task_type="classification", **{**FAST, "steps": 400, "evaluations": 2, "dropout": 0.1})
    assert said(start(tmp_path / "whole", "finetune", knobs, 2, rows=rows, base=tiny_bert))[-1]["event"] == "result"
    stopped = start(tmp_path / "stopped", "finetune", knobs, 2, rows=rows, base=tiny_bert)
    assert stopped.stdout is not None
    stopped.stdout.readline()
    stopped.send_signal(signal.SIGTERM)
    last = [event for event in said(stopped) if event["event"] == "error"][-1]
    assert last["kind"] == "Interrupted" and not (tmp_path / "stopped" / "output" / "model.safetensors").exists()
    again = said(start(tmp_path / "stopped", "finetune", knobs, 2, rows=rows, base=tiny_bert))
    assert again[0]["message"].startswith("resuming at step") and again[-1]["event"] == "result"
    whole = weights(tmp_path / "whole")
    assert all(torch.equal(value, whole[name]) for name, value in weights(tmp_path / "stopped").items())


def test_a_killed_process_ends_the_others(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    process = start(
        tmp_path / "killed",
        "finetune",
        TeacherSlice(task_type="classification", **{**FAST, "steps": 100_000, "evaluations": 0}),
        2,
        rows=rows,
        base=tiny_bert,
    )
    assert process.stdout is not None
    process.stdout.readline()
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    os.kill(children[-1], signal.SIGKILL)
    started = time.monotonic()
    process.communicate(timeout=120)
    assert process.returncode != 0 and time.monotonic() - started < 120
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_an_engine_is_never_part_of_somebody_elses_crew(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "3")
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(environment(1)) and ProcessGroup().size == 3


def test_a_batch_is_shared_whole_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, parts = np.arange(7), []
    epoch = Epoch(0, Encoded(np.zeros(0), np.zeros(0), np.zeros(8)), [rows])
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        group = ProcessGroup()
        parts.append(group.share(Indices(epoch, rows)).rows_B)
        small = group.share(Indices(epoch, rows[:2]))
        assert small.rows_B.tolist() == [0, 1], "a batch too small to share is everybody's"
    assert sorted(np.concatenate(parts)) == rows.tolist() and [len(part) for part in parts] == [3, 2, 2]


def test_a_mean_over_processes_is_the_mean_over_everything() -> None:
    parts = [torch.tensor([1.0, 2.0, 6.0]), torch.tensor([3.0])]
    count = torch.tensor(4.0) / 2  # what everybody's count is for each of two processes
    shares = [mean_of(part.sum(), len(part)).mean(lambda _: count) for part in parts]
    assert float(sum(shares)) / 2 == pytest.approx(3.0)
    assert float(mean_of(torch.tensor(0.0), 0).mean()) == 0.0 and float(mean_of(torch.tensor(6.0), 4).mean()) == 1.5


def test_a_loss_is_the_weighted_sum_of_its_means_in_their_order() -> None:
    """Bit for bit what floats give that are divided, multiplied and added one after another."""
    sums, counts, weights = [torch.tensor(value) for value in (1.1, 2.3, 3.7)], (3, 7, 11), (0.3, 0.7, 1.9)
    parts = [weight * mean_of(total, count) for weight, total, count in zip(weights, sums, counts, strict=True)]
    by_hand = weights[0] * (sums[0] / 3) + weights[1] * (sums[1] / 7) + weights[2] * (sums[2] / 11)
    assert torch.equal((parts[0] + parts[1] + parts[2]).mean(), by_hand)
    assert torch.equal((Loss() + mean_of(sums[0], 3)).mean(), sums[0] / 3)
    assert float((0.5 * parts[1]).mean()) == pytest.approx(0.5 * 0.7 * 2.3 / 7)
    with pytest.raises(ValueError, match="without terms"):
        Loss().mean()
