"""No step of a training waits for the GPU: each wait would leave it idle until the next operations are launched.

The steps run on a CPU along the path of a GPU: fused attention, whole tables of embeddings, dropout of torch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.data import Augmentation, CorpusText
from tasks.recipe.slices import (
    AnswerSlice,
    DropSlice,
    GeneralSlice,
    IntermediateSlice,
    KeptSlice,
    PatienceOf,
    PredictionSlice,
    RowsSlice,
    SignalSlice,
    TeacherSlice,
)
from tasks.recipe.students import Shape
from tasks.recipe.training import Pretraining
from tasks.training import loop
from tasks.training.jobs import JOBS
from tasks.training.models import attention
from tests.task_types.next_words.tables import write_decoder, write_documents
from tests.tiny import WORDS
from tests.training.loop.host_syncs import counted, followed

FAST: dict[str, Any] = {"steps": 4, "batch_size": 8, "max_length": 16, "evaluations": 0, "precision": "fp32"}
TYPE = {"task_type": "classification"}
NEW = {"shape": Shape(layers=2), "start": "teacher"}
RANDOM = {"shape": Shape(layers=2), "start": "random"}
TRAININGS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "labels": ("finetune", TeacherSlice(**TYPE, **FAST, dropout=0.1), ("rows", "base")),
    "predictions": ("prediction", PredictionSlice(**TYPE, **FAST, **NEW), ("rows", "teacher", "answers")),
    "predictions of the paper": (
        "prediction",
        PredictionSlice(**TYPE, **FAST, **NEW, formula="paper", hard_weight=0.0),
        ("rows", "teacher", "answers"),
    ),
    "patience": ("prediction", PredictionSlice(**TYPE, **FAST, **NEW, patience={}), ("rows", "teacher", "patient")),
    "augmented predictions": (
        "prediction",
        PredictionSlice(**TYPE, **FAST, **NEW, sampling={"share": 1.0}),
        ("rows", "teacher", "answers", "candidates"),
    ),
    "layers": ("intermediate", IntermediateSlice(**TYPE, **FAST, **NEW), ("rows", "teacher")),
    "layers of the paper": (
        "intermediate",
        IntermediateSlice(**TYPE, **FAST, **NEW, matching={"formula": "paper"}),
        ("rows", "teacher"),
    ),
    "stored layers": ("intermediate", IntermediateSlice(**TYPE, **FAST, **NEW), ("rows", "teacher", "signals")),
    "stored layers of augmented rows": (
        "intermediate",
        IntermediateSlice(**TYPE, **FAST, **NEW),
        ("rows", "teacher", "signals", "candidates"),
    ),
    "relations": ("intermediate", IntermediateSlice(**TYPE, **FAST, **NEW, method="relations"), ("rows", "teacher")),
    "self-attention": (
        "intermediate",
        IntermediateSlice(**TYPE, **FAST, **NEW, method="self-attention"),
        ("rows", "teacher"),
    ),
    "replacing": ("intermediate", IntermediateSlice(**TYPE, **FAST, **NEW, method="replacing"), ("rows", "teacher")),
    "general layers": ("general", GeneralSlice(**FAST, **RANDOM, method="layers"), ("base", "corpus")),
    "triple": ("general", GeneralSlice(**FAST, **RANDOM, method="triple"), ("base", "corpus")),
    "dropped": ("drop", DropSlice(**TYPE, **FAST, strategy="top", drop=1), ("rows", "base")),
    "pretraining": (
        "pretrain",
        Pretraining(**FAST, layers=1, hidden=16, heads=2, feed_forward=16, vocabulary=120),
        ("documents",),
    ),
}

OF_WORDS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "labels": ("finetune", TeacherSlice(task_type="next-words", **FAST), ("rows", "base")),
    "predictions": (
        "prediction",
        PredictionSlice(task_type="next-words", **FAST, **NEW, hard_weight=0.5),
        ("rows", "teacher", "answers"),
    ),
    "live predictions": (
        "prediction",
        PredictionSlice(task_type="next-words", **FAST, **NEW),
        ("rows", "teacher"),
    ),
}
"""Trainings on rows that are read in windows."""


def do(name: str, folder: Path, knobs: Any, **inputs: Path) -> Path:
    """Do a job of the engine and return its output folder."""
    (folder / "output").mkdir(parents=True)
    order = {
        "job": name,
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {key: str(path) for key, path in inputs.items()},
        "output": str(folder / "output"),
        "checkpoints": str(folder / "checkpoints"),
    }
    JOBS[name](Job(order, silent=True))
    return folder / "output"


@pytest.fixture(scope="module")
def inputs(tiny_bert: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The inputs of all trainings."""
    gc.freeze()  # whoever looks for the modules of a training passes by what hundreds of tests before have left
    folder = tmp_path_factory.mktemp("inputs")
    documents = folder / "documents"
    documents.mkdir()
    texts = [f"the {word} was not {other} and it was {word}" for word in WORDS for other in WORDS[:6]]
    pq.write_table(pa.table({"text": texts}), documents / "documents.parquet")
    whole = {"max_length": 16, "precision": "fp32"}
    corpus = CorpusText(source="x", max_tokens=2000, max_length=16)
    substitutes = Augmentation(masked_lm="teacher", **whole, options=3)
    given = {"rows": rows, "base": tiny_bert, "documents": documents}
    given["teacher"] = do("finetune", folder / "teacher", TeacherSlice(**TYPE, **FAST), rows=rows, base=tiny_bert)
    taught = {"rows": rows, "teacher": given["teacher"]}
    patient = AnswerSlice(**TYPE, **whole, patience=PatienceOf(layer_map="skip", layers=2))
    return given | {
        "answers": do("answer", folder / "answers", AnswerSlice(**TYPE, **whole), **taught),
        "patient": do("answer", folder / "patient", patient, **taught),
        "signals": do("signals", folder / "signals", SignalSlice(**TYPE, **whole, layers=2), **taught),
        "corpus": do("tokenize", folder / "corpus", corpus, base=tiny_bert, documents=documents),
        "candidates": do(
            "augment", folder / "candidates", substitutes, rows=rows, masked_lm=tiny_bert, tokenizer=tiny_bert
        ),
    }


@pytest.fixture(scope="module")
def inputs_of_words(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The inputs of trainings that predict next words."""
    gc.freeze()
    folder = tmp_path_factory.mktemp("words")
    spec = TaskSpec(name="words", kind="next-words")
    rows, teacher = folder / "rows", write_decoder(folder / "teacher", layers=2)
    prepare_rows(write_documents(folder / "table", 40), RowsSlice(task=spec, selection_rows=5), rows)
    kept = KeptSlice(words=5, temperature=1.0, bits=16)
    knobs = AnswerSlice(task_type="next-words", max_length=16, precision="fp32", kept=kept)
    answers = do("answer", folder / "answers", knobs, rows=rows, teacher=teacher)
    return {"rows": rows, "teacher": teacher, "base": teacher, "answers": answers}


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a CPU take the path of a GPU."""

    @contextmanager
    def nothing(*_: Any) -> Iterator[None]:
        yield None

    monkeypatch.setattr(loop, "cpu_optimisations", nothing)
    monkeypatch.setattr(attention, "WRITTEN_OUT", attention.FUSED)


@pytest.mark.parametrize("training", TRAININGS)
def test_no_step_waits_for_the_device(
    training: str, inputs: dict[str, Path], as_on_a_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, knobs, names = TRAININGS[training]
    answered = {"answers" if name == "patient" else name: inputs[name] for name in names}
    assert not waits_in(job, knobs, tmp_path, monkeypatch, answered)


@pytest.mark.parametrize("training", OF_WORDS)
def test_no_step_on_windows_waits_for_the_device(
    training: str,
    inputs_of_words: dict[str, Path],
    as_on_a_gpu: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, knobs, names = OF_WORDS[training]
    assert not waits_in(job, knobs, tmp_path, monkeypatch, {name: inputs_of_words[name] for name in names})


def waits_in(job: str, knobs: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, Path]) -> list[str]:
    """Return where the steps of a training wait for the device."""
    with followed() as syncs:
        monkeypatch.setattr(loop.Run, "one_step", counted(syncs, loop.Run.one_step))
        do(job, folder / "made", knobs, **inputs)
    return sorted(set(syncs.found))


def test_what_waits_is_seen() -> None:
    """The counter itself: every way to wait is counted, and nothing that only computes."""
    place, host = torch.device("cpu"), np.asarray([1, 0])
    with followed() as syncs:
        sent = torch.arange(4.0).to(place, non_blocking=True)
        index = torch.from_numpy(host).to(place, non_blocking=True)
        syncs.counting = True
        nothing = (sent * 2).sum() / torch.full((), 3, device=place) + sent[index].sum()
        assert not syncs.found and syncs.has(nothing)
        waits = {
            "a number": lambda: float(sent.sum()),
            "a condition": lambda: bool((sent > 0).all()),
            "a copy": lambda: sent.cpu(),
            "an array": lambda: sent.numpy(),
            "an index of the host": lambda: sent[host],
            "an index of booleans": lambda: sent[sent > 1],
            "places": lambda: (sent > 1).nonzero(),
            "a number sent": lambda: torch.as_tensor(3, device=place),
            "a blocking copy": lambda: torch.arange(3).to(place),
        }
        for name, wait in waits.items():
            syncs.found.clear()
            wait()
            assert syncs.found, name
