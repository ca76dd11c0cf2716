"""Regression heads start where the labels of train are, learn their scale, and are saved as anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import Interrupted
from tasks.methods.layers.value_head import ValueHead, drawn_head, started_at_labels
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice, TeacherSlice
from tasks.task_types.heads import HEADS
from tasks.training.data.encoded import collate, encode
from tasks.training.data.rows import Task, load_tokenizer, read_rows
from tasks.training.finetune import finetune
from tasks.training.loop import StopSignal
from tasks.training.models.students import load_classifier
from tests.families import NAMES, write_tiny
from tests.tiny import WORDS

CPU, TASK = torch.device("cpu"), Task("tiny", "regression", None, "pearson_spearman", False, HEADS["regression"])
TEXTS = ["the film was good", "a poor meal but a very fine song", "it"]
LABELS = np.array([1.0, np.nan, 4.0, 4.0], dtype=np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_a_drawn_head_of_every_family_starts_at_the_labels_and_ends_as_a_plain_one(name: str, tmp_path: Path) -> None:
    folder = write_tiny(name, tmp_path)
    model, tokenizer = load_classifier(folder, TASK, CPU).eval(), load_tokenizer(folder)
    batch = collate(encode(tokenizer, TEXTS, None, 24), [0, 1, 2], tokenizer.pad_token_id, CPU)
    names, before = list(model.state_dict()), model(**batch.inputs(model)).logits
    with started_at_labels(model, LABELS):
        heads = [module for module in model.modules() if isinstance(module, ValueHead)]
        assert len(heads) == 1
        torch.testing.assert_close(
            model(**batch.inputs(model)).logits, 3.0 + before * 2**0.5
        )  # rows without a label do not count
        heads[0].growth.data.fill_(0.01)
        torch.testing.assert_close(heads[0].scale, torch.full((1,), 2**0.5 * float(np.exp(0.5))))
        trained = model(**batch.inputs(model)).logits
    assert list(model.state_dict()) == names and not any(isinstance(module, ValueHead) for module in model.modules())
    torch.testing.assert_close(model(**batch.inputs(model)).logits, trained)


def test_what_has_learned_is_left_alone_and_so_are_classes(tiny_bert: Path) -> None:
    learned = load_classifier(tiny_bert, TASK, CPU)
    learned.classifier.bias.data.fill_(0.25)
    assert drawn_head(learned) is None
    two = Task("tiny", "classification", ["no", "yes"], "accuracy", False, HEADS["classification"])
    for model, task, labels in (
        (learned, TASK, LABELS),
        (load_classifier(tiny_bert, two, CPU), two, np.array([0, 1])),
        (load_classifier(tiny_bert, TASK, CPU), TASK, LABELS[1:2]),
    ):
        with task.head.start_from_labels(model, lambda labels=labels: labels):
            assert not any(isinstance(module, ValueHead) for module in model.modules())


def test_the_scale_learns_as_fast_as_a_weight() -> None:
    """Answers ten times too near to each other: within forty steps of a rate at which weights of 0.02 move, the scale
    has doubled."""
    torch.manual_seed(0)
    drawn, states = nn.Linear(4, 1), torch.randn(64, 4)
    target = 10 * (states @ drawn.weight.detach().T)
    head = ValueHead(drawn, 0.0, 1.0)
    optimizer = torch.optim.AdamW([head.growth], lr=5e-4)
    for _ in range(40):
        (head(states) - target).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert 2 < float(head.scale.detach()) < 10


def test_labels_that_are_all_one_number_have_no_deviation_to_start_from(tiny_bert: Path) -> None:
    model = load_classifier(tiny_bert, TASK, CPU)
    with started_at_labels(model, np.full(4, 2.5, dtype=np.float32)):
        head = model.classifier
        assert float(head.scale.detach()) == 1.0 and float(head.bias.detach()) == 2.5


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared rows whose labels lie about 70."""
    folder = tmp_path_factory.mktemp("numbered")
    lines = [
        f"the {WORDS[row % 20]} {row} was {'good' if row % 2 else 'bad'},{70 + (3 if row % 2 else -3) + row % 5 / 5}"
        for row in range(120)
    ]
    (folder / "train.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    (folder / "rows").mkdir()
    spec = TaskSpec(name="tiny", kind="regression", metrics=("pearson_spearman", "mse"), headline="pearson_spearman")
    prepare_rows(folder / "train.csv", RowsSlice(task=spec, selection_rows=10), folder / "rows")
    return folder / "rows"


def finetuned(rows: Path, base: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    knobs = TeacherSlice(
        task_type="regression",
        **(
            {
                "steps": 12,
                "batch_size": 8,
                "max_length": 16,
                "precision": "fp32",
                "learning_rate": 2e-3,
                "evaluations": 2,
            }
            | changes
        ),
    )
    order = {
        "job": "finetune",
        "knobs": knobs.model_dump(mode="json"),
        "inputs": {"rows": str(rows), "base": str(base)},
        "output": str(folder / "output"),
        "checkpoints": str(folder / "checkpoints"),
    }
    job = Job(order, silent=True)
    job.output.mkdir(parents=True, exist_ok=True)
    return finetune(job)


def test_the_folder_is_anybodys_and_answers_about_where_the_labels_are(
    numbered: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification

    facts = finetuned(numbered, tiny_bert, tmp_path, choose_by="mse")
    made = tmp_path / "output"
    plain, found = AutoModelForSequenceClassification.from_pretrained(made, output_loading_info=True)
    assert not any(found[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert (
        "growth" not in " ".join(load_file(made / "model.safetensors"))
        and "growth" not in (made / "config.json").read_text()
    )
    held, tokenizer = read_rows(numbered, "selection", HEADS["regression"]), load_tokenizer(made)
    asked = tokenizer(held.texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    error = float((plain.eval()(**asked).logits[:, 0].detach() - torch.from_numpy(held.labels_N)).square().mean())
    assert error < 15, (
        f"a head that starts at 0 is wrong by 70, squared, and twelve steps do not change that; this one by {error}"
    )
    assert (
        facts["selection_split"] == "selection"
        and facts["selection_count"] == len(held)
        and -1 <= facts["selection_correlation"] <= 1
    )


def test_a_stopped_training_ends_with_the_same_bytes(
    numbered: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finetuned(numbered, tiny_bert, tmp_path / "whole")
    asked = iter([False] * 7 + [True] * 99)
    with monkeypatch.context() as patch:
        patch.setattr(StopSignal, "asked", property(lambda self: next(asked), lambda self, value: None), raising=False)
        with pytest.raises(Interrupted):
            finetuned(numbered, tiny_bert, tmp_path / "stopped")
    finetuned(numbered, tiny_bert, tmp_path / "stopped")
    whole, stopped = ((tmp_path / name / "output" / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
    assert whole == stopped
