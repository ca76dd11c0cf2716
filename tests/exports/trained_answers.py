"""Answers of a model that is trained for few bits beside those of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper

from tasks.exports.jobs import ask_torch
from tasks.exports.quantizing import quantize_by
from tasks.scoring.onnx_models import FILES, OnnxModel
from tasks.scoring.predict import load
from tasks.training.models.fake_quantization import FakeQuantization
from tests.exports.test_exports import QUANTIZE
from tests.families import write_tiny
from tests.methods.oracles import shared_file

WAYS = {"int8": "dynamic", "int8-table4": "dynamic-table4", "four-bit": "four-bit-trained"}
TRAINED = [("int8", "8"), ("int8-table4", "8"), ("four-bit", "4"), ("four-bit", "3"), ("four-bit", "2")]
TRAINED += [("four-bit", "ternary")]


LESSONS, BATCH = 150, 32
"""Steps by which a pretrained encoder learns to tell SST-2's classes, and rows in each: its answers are decided then.
By a head that learned nothing, half of the texts are undecided by less than a code that flips moves."""


def write_noisy(family: str, folder: Path) -> Path:
    """Write a classifier whose weights are of no use, and far from equal."""
    base = write_tiny(family, folder / f"{family}-base")
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=2)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    model.save_pretrained(folder / "model")
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder / "model")
    return folder / "model"


def write_real_model(folder: Path) -> list[str]:
    """Write an encoder that was fine-tuned shortly; return 500 sentences of SST-2's validation split to ask it."""
    encoder, tables = shared_file("models/minilm"), shared_file("data/glue/sst2")
    import pyarrow.parquet as pq

    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    train, asked = (pq.read_table(sorted(tables.rglob(f"*{split}*.parquet"))[0]) for split in ("train", "validation"))
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[: LESSONS * BATCH]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for rows in order.split(BATCH):
        batch = train.take(rows.numpy())
        words = tokenizer(batch["sentence"].to_pylist(), padding=True, return_tensors="pt")
        loss = model(**words, labels=torch.tensor(batch["label"].to_pylist())).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return [str(text) for text in asked["sentence"].to_pylist()[:500]]


def answers_of_both(
    folder: Path, full: Path, texts: Sequence[str], served_as: str, codes: str
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the answers of a model as it is in training, and of its graph: weights that are rounded in training are
    written into its matrices beforehand. Also the bytes of the graph."""
    seven = bool(QUANTIZE["reduce_range"])
    model, tokenizer = load(folder, "classification")
    FakeQuantization(model, served_as, codes, seven_bits=seven)
    ours = ask_torch(model, tokenizer, texts, None, 64, ["logits"])["logits"]
    path = full.parent / f"{served_as}-{codes}.onnx"
    quantize_by(WAYS[served_as], rounded_graph(folder, full, served_as, codes), path, reduce_range=seven, feeds=none)
    graph = OnnxModel(full, graph=path)
    return ours, graph.outputs(texts, None, 64)["logits"], path.stat().st_size


def none() -> Any:
    """Nothing is calibrated."""
    raise AssertionError("ranges are found in each call")


def rounded_graph(folder: Path, full: Path, served_as: str, codes: str) -> Path:
    """Write the fp32 graph again with the weights that a finished model has: what an export of its folder is."""
    plain, finished = (load(folder, "classification")[0] for _ in range(2))
    FakeQuantization(finished, served_as, codes, seven_bits=bool(QUANTIZE["reduce_range"])).finish()
    after = dict(finished.named_parameters())
    new: dict[tuple[object, ...], np.ndarray] = {}  # by shape, too: a row and its column have the same bytes
    for name, value in plain.named_parameters():
        if value.ndim == 2:
            first, second = value.detach().numpy(), after[name].detach().numpy()
            new |= {key_of(first): second, key_of(first.T): second.T}
    model = onnx.load(str(full / FILES["onnx"]))
    changed = 0
    for one in model.graph.initializer:
        found = new.get(key_of(numpy_helper.to_array(one)))
        if found is not None:
            one.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(found), one.name))
            changed += 1
    assert changed >= 6, "the matrices of a layer, at least"
    path = full.parent / f"{served_as}-{codes}-fp32.onnx"
    onnx.save(model, str(path))
    return path


def key_of(values: np.ndarray) -> tuple[object, ...]:
    """Return what tells a matrix from others: its shape and its bytes, row by row."""
    return values.shape, np.ascontiguousarray(values).tobytes()
