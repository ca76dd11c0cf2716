"""The engine on layers: which go when a search hands over what stays, and how like a fine-tuned model is to the one it
was tuned from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from flows.branches.sweep import shortened
from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.slices import ContributionSlice, DropSlice, RowsSlice
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.dropping import drop_and_train, measure_contributions, measure_similarity, measured_texts
from tests.task_types.chats.tables import write_answering, write_chats
from tests.task_types.next_words.tables import write_decoder, write_documents

FAST: dict[str, Any] = {"steps": 2, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}


def job(name: str, knobs: Any, folder: Path, **inputs: Path) -> Job:
    folder.mkdir()
    order = {
        "job": name,
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {key: str(path) for key, path in inputs.items()},
        "output": str(folder),
    }
    return Job(order, silent=True)


def changed(bert: Path, folder: Path, layer: int) -> Path:
    """Return a copy of a model in which one layer's output is another."""
    shutil.copytree(bert, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith(f"layer.{layer}.output.dense.weight"))
    torch.manual_seed(1)
    weights[name] = torch.randn_like(weights[name])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("token", ["cls", "mean"])
def test_layers_below_a_change_are_the_same_and_those_above_are_not(
    rows: Path, tiny_bert: Path, tmp_path: Path, token: str
) -> None:
    other = changed(tiny_bert, tmp_path / "other", layer=2)
    facts = measure_similarity(
        job(
            "similarity",
            ContributionSlice(task_type="classification", token=token, max_length=16),
            tmp_path / "out",
            base=tiny_bert,
            teacher=other,
            rows=rows,
        )
    )
    assert len(facts["cka"]) == len(facts["cosines"]) == 5 and facts["rows"] == 20 and facts["tokens"] > 100
    assert facts["cka"][:3] == pytest.approx([1.0] * 3) and facts["cosines"][:3] == pytest.approx([1.0] * 3)
    assert max(facts["cka"][3:]) < 0.99 and max(facts["cosines"][3:]) < 0.99
    assert json.loads((tmp_path / "out" / "similarity.json").read_text()) == facts


def test_a_model_is_itself(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    facts = measure_similarity(
        job(
            "similarity",
            ContributionSlice(task_type="classification", max_length=16),
            tmp_path / "out",
            base=tiny_bert,
            teacher=tiny_bert,
            rows=rows,
        )
    )
    assert facts["cka"] == pytest.approx([1.0] * 5) and facts["cosines"] == pytest.approx([1.0] * 5)


def test_a_model_is_kept_as_it_was_cut(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    """Its score is what a training starts from: without it, no share of the loss is known to be given back."""
    knobs = DropSlice(task_type="classification", **FAST | {"steps": 0}, strategy="top", drop=2)
    facts = drop_and_train(job("drop", knobs, tmp_path / "out", base=tiny_bert, rows=rows))
    assert facts == {"steps": 0, "train_seconds": 0.0, "kept_layers": [0, 1]}
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", tiny_bert))
    layers = [name for name in ours if ".layer." in name]
    assert layers and all(torch.equal(ours[name], theirs[f"bert.{name.removeprefix('bert.')}"]) for name in layers)
    with pytest.raises(ValidationError, match="nothing learns the teacher's answers; set signal: labels"):
        LayerDropping(steps=0, signal="teacher")
    halved = shortened(LayerDropping(steps=0))
    assert halved.steps == 0 and shortened(LayerDropping(steps=40)).steps == 10


def prepared(kind: str, table: Path, folder: Path, **data: Any) -> Path:
    """Return the folder of prepared rows of a table of documents or chats."""
    spec = TaskSpec(name="texts", kind=kind, **({"text": "messages"} if kind == "chats" else {}))  # type: ignore[arg-type]
    prepare_rows(table, RowsSlice(task=spec, selection_rows=2, **data), folder)
    return folder


@pytest.mark.parametrize("kind", ["next-words", "chats"])
def test_layers_are_measured_on_texts_as_a_model_reads_them(kind: str, tmp_path: Path) -> None:
    """Documents stand between their tokens and chats in their template, in windows, as many tokens as are asked for:
    selection rows first, then train rows. Chats were read as they are stored, and two rows were all."""
    if kind == "chats":
        rows = prepared(kind, write_chats(tmp_path / "table", 40), tmp_path / "rows")
        model = write_answering(tmp_path / "model", layers=2)
    else:
        rows = prepared(kind, write_documents(tmp_path / "table", 40), tmp_path / "rows")
        model = write_decoder(tmp_path / "model", layers=2)
    head, tokenizer = read_task(rows, kind).head, load_tokenizer(model)
    held, learned = (read_rows(rows, split, head) for split in ("selection", "train"))
    knobs = ContributionSlice(task_type=kind, token="mean", max_length=32, measured_tokens=2000)  # type: ignore[arg-type]
    made = job("contributions", knobs, tmp_path / "out", base=model, rows=rows)
    found = measured_texts(made, knobs, head, tokenizer)
    windows = [one.tokens(tokenizer, 32) for one in (held, learned)]
    as_read = np.concatenate([one.ids_S for one in windows])
    np.testing.assert_array_equal(found.ids_S, as_read[: len(found.ids_S)])
    assert len(windows[0].ids_S) < 1968 < len(found.ids_S) <= 2000
    facts = measure_contributions(made)
    assert facts["tokens"] == len(found.ids_S) and len(facts["cosines"]) == 2  # type: ignore[arg-type]
    text = tokenizer.decode(found.ids_S[: found.offsets[1]])
    assert text.startswith("<|start|>" if kind == "chats" else "<|end|>")


def test_a_search_hands_over_the_layers_that_stay(rows: Path, tiny_bert: Path, tmp_path: Path) -> None:
    facts = drop_and_train(
        job(
            "drop",
            DropSlice(task_type="classification", **FAST, strategy="greedy", drop=2, kept=(0, 3)),
            tmp_path / "out",
            base=tiny_bert,
            rows=rows,
        )
    )
    assert facts["kept_layers"] == [0, 3] and "selection_score" in facts
    assert json.loads((tmp_path / "out" / "config.json").read_text())["kept_layers"] == [0, 3]
    with pytest.raises(RecipeError, match="needs the 2 of 4 layers that its search kept"):
        drop_and_train(
            job(
                "drop",
                DropSlice(task_type="classification", **FAST, strategy="greedy", drop=2),
                tmp_path / "none",
                base=tiny_bert,
                rows=rows,
            )
        )
