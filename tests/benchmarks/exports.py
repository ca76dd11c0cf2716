"""What an int8 export of a small student is worth beside what a user would ask instead: its teacher, and a BERT-base,
in torch in float32.

One sentence of 32 tokens at a time. Everyone is asked in turn, a few calls each, in one process; at one thread the
seconds of the processor are those that a quiet machine shows on the wall, and they do not count whoever else is on it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flows.branches.export import fits_seven_bits
from tasks.architectures.architecture import unfolded
from tasks.architectures.known_architectures import ARCHITECTURES
from tasks.exports.graph import tidy
from tasks.exports.quantizing import quantize_by
from tasks.exports.tracing import trace
from tasks.recipe.judging import Exports
from tasks.scoring.onnx_models import open_session
from tasks.training.data.rows import fitted
from tests.benchmarks.measure import Contestant, Figure, Lap, interleave, timed
from tests.benchmarks.models import classifier
from tests.benchmarks.setting import Setting
from tests.scoring.small import sentences, tiny_tokenizer

LENGTH, VOCABULARY, CALIBRATED = 32, 30_000, 50
OPERATIONS = {
    "LayerNorm + gelu": ("layer_norm", "gelu"),
    "LayerNorm + relu": ("layer_norm", "relu"),
    "NoNorm + gelu": ("no_norm", "gelu"),
    "NoNorm + relu": ("no_norm", "relu"),
    "NoNorm folded + relu": ("no_norm", "relu"),
}
"""MobileBERT's operations by the names of the paper's table, as a config names them."""
WHOLE, LENGTHS = "LayerNorm + gelu", (32, 128)
CALLS = {"12x768": 4, "6x384": 20}
STUDENT = "3x384"


def exports(setting: Setting) -> list[Figure]:
    """Time the student's graphs against models in torch, and compare the bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        graphs = graphs_of(Path(scratch))
        contest = interleave(contestants(graphs, setting.threads), max(setting.repeats, 5), tell=setting.tell)
        sizes = {name: path.stat().st_size for name, path in graphs.items()}
    clock = "cpu" if setting.threads == 1 else "wall"
    floors = {"6x384": (8.0, "goal 10"), "12x768": (50.0, "goal 60")} if setting.threads == 1 else {}
    figures = []
    for ours in graphs:
        for theirs in CALLS:
            floor, goal = floors.get(theirs, (None, "")) if ours == "int8 dynamic" else (None, "")
            name = f"one sentence of {LENGTH} tokens{f', {goal}' if goal else ''}"
            figures.append(
                contest.figure(name, of=f"{STUDENT} {ours}", against=f"{theirs} torch fp32", target=floor, clock=clock)
            )
    return [
        *figures,
        Figure(
            "bytes of the file", f"{STUDENT} int8", f"{STUDENT} fp32", [sizes["fp32"] / sizes["int8 dynamic"]], "", 3.5
        ),
    ]


def graphs_of(folder: Path) -> dict[str, Path]:
    """Write the student's graphs."""
    full = folder / "fp32.onnx"
    model = classifier(STUDENT).eval()
    trace(model, fitted(tiny_tokenizer(), model.config), sentences(2), None, full, outputs=("logits",), opset=20)
    tidy(full)
    found = {"fp32": full}
    for way in ("dynamic", "static"):
        found[f"int8 {way}"] = folder / f"{way}.onnx"
        quantize_by(
            way,
            full,
            found[f"int8 {way}"],
            reduce_range=fits_seven_bits(Exports()),
            feeds=lambda: (row(seed) for seed in range(CALIBRATED)),
        )
    return found


def row(seed: int, length: int = LENGTH) -> dict[str, np.ndarray]:
    """Return one row of random words."""
    ids_BT = np.random.default_rng(seed).integers(1000, VOCABULARY, (1, length))
    return {"input_ids": ids_BT, "attention_mask": np.ones_like(ids_BT), "token_type_ids": np.zeros_like(ids_BT)}


def contestants(graphs: dict[str, Path], threads: int) -> dict[str, Contestant]:
    """Return everyone who is asked: checkpoints in torch as anyone loads them, and the student's graphs."""
    found = {f"{shape} torch fp32": calling(in_torch(shape), calls) for shape, calls in CALLS.items()}
    return found | {f"{STUDENT} {name}": calling(in_onnx(path, threads), 60) for name, path in graphs.items()}


def calling(ask: Callable[[], Any], calls: int) -> Contestant:
    """Return what asks so many times in a row."""

    def once() -> Lap:
        ask()  # whoever was asked before has filled the caches
        with timed(calls) as lap, torch.inference_mode():
            for _ in range(calls):
                ask()
        return lap

    return once


def in_torch(shape: str) -> Callable[[], Any]:
    """Return a call of a checkpoint."""
    model = classifier(shape, kernel="sdpa").eval()
    given = {name: torch.from_numpy(values) for name, values in row(0).items()}
    return lambda: model(**given)


def in_onnx(path: Path, threads: int, length: int = LENGTH) -> Callable[[], Any]:
    """Return a call of a graph."""
    session, given = open_session(path, threads), row(0, length)
    return lambda: session.run(None, given)


# --- MobileBERT's operations (Sun et al. 2020, arXiv:2004.02984, table 2: 192, 167, 92 and 62 ms) ---


def operations(setting: Setting) -> list[Figure]:
    """Time two layers of MobileBERT's shape as graphs with each kind of norm and activation. The paper measured 3.1 on
    a phone, in another runtime; here the graph's residual sums and norms are fused whatever their kind."""
    figures, clock = [], "cpu" if setting.threads == 1 else "wall"
    with tempfile.TemporaryDirectory() as scratch:
        graphs = {name: graph_with(name, Path(scratch) / f"{number}.onnx") for number, name in enumerate(OPERATIONS)}
        for length in LENGTHS:
            asked = {name: calling(in_onnx(path, setting.threads, length), 40) for name, path in graphs.items()}
            contest = interleave(asked, max(setting.repeats, 5), tell=setting.tell)
            figures += [
                contest.figure(
                    f"two layers, {length} tokens; the paper has 3.1", of=name, against=WHOLE, target=None, clock=clock
                )
                for name in graphs
                if name != WHOLE
            ]
    return figures


def graph_with(name: str, path: Path) -> Path:
    """Write the graph of a MobileBERT of two layers, 512 wide between and 128 within, with these operations."""
    from transformers import MobileBertConfig, MobileBertForSequenceClassification

    norm, activation = OPERATIONS[name]
    config = MobileBertConfig(num_hidden_layers=2, normalization_type=norm, hidden_act=activation, pad_token_id=0)
    torch.manual_seed(0)
    model = MobileBertForSequenceClassification(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.01)
    with nullcontext() if "folded" in name else as_it_is():
        trace(model, fitted(tiny_tokenizer(), config), sentences(2), None, path, outputs=("logits",), opset=20)
    tidy(path)
    return path


@contextmanager
def as_it_is() -> Iterator[None]:
    """Trace MobileBERTs with their norms."""
    before = ARCHITECTURES["mobilebert"]
    ARCHITECTURES["mobilebert"] = replace(before, for_export=unfolded)
    try:
        yield
    finally:
        ARCHITECTURES["mobilebert"] = before
