"""The heads of all task types: a tiny model of each learns from labels and from a teacher, and stays a plain model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice
from tasks.task_types.heads import HEADS
from tasks.task_types.interfaces import Head
from tasks.task_types.types import TARGET_LOGITS, TASK_TYPES, WORD_LOGITS
from tasks.training.data.encoded import collate, encode
from tasks.training.data.rows import Task, load_tokenizer, read_rows, read_task
from tasks.training.models.students import load_classifier
from tasks.training.objectives.capture import outputs_of
from tests.architecture.sources import ROOT
from tests.task_types.test_answers import ONE_ANSWER

CPU, TEXTS = torch.device("cpu"), ["the film was good", "a poor meal but a very fine song", "it"]
LABELS: dict[str, list[Any]] = dict.fromkeys(HEADS, [4.0, None, 1.0]) | {
    "classification": [1, None, 0],
    "multi-label": [3, None, 0],
}
NAMES = dict.fromkeys(HEADS) | {"classification": ["no", "yes"], "multi-label": ["no", "yes"]}


@pytest.fixture
def model(request: pytest.FixtureRequest, tiny_bert: Path) -> Any:
    """A model of a task type that has learned nothing."""
    name = request.param
    return load_classifier(tiny_bert, Task("tiny", name, NAMES[name], "", False, HEADS[name]), CPU).eval()


@pytest.fixture
def inputs(tiny_bert: Path) -> dict[str, torch.Tensor]:
    tokenizer = load_tokenizer(tiny_bert)
    batch = collate(encode(tokenizer, TEXTS, None, 24), [0, 1, 2], tokenizer.pad_token_id, CPU)
    return {"input_ids": batch.ids_BT, "attention_mask": batch.mask_BT, "token_type_ids": batch.segments_BT}


ALL = pytest.mark.parametrize(("name", "model"), [(name, name) for name in ONE_ANSWER], indirect=["model"])


def test_every_type_has_a_head_with_the_outputs_and_the_class_of_its_data() -> None:
    assert set(HEADS) == set(TASK_TYPES)
    for name, head in HEADS.items():
        learned = WORD_LOGITS if head.keep else TASK_TYPES[name].outputs
        learned = TARGET_LOGITS if name == "seq2seq" else learned
        assert head.outputs == learned and (head.keep is not None) == TASK_TYPES[name].keeps_words
        assert (head.write is not None) == TASK_TYPES[name].writes
        assert TASK_TYPES[name].auto_class in {one.__name__ for one in head.auto_class().__mro__}


@ALL
def test_its_outputs_are_named_and_have_a_row_each(name: str, model: Any, inputs: Any) -> None:
    found = outputs_of(HEADS[name], model(**inputs))
    assert {output: len(values) for output, values in found.items()} == {
        output.name: len(TEXTS) for output in HEADS[name].outputs
    }


def targets_of(head: Head, labels: list[Any]) -> torch.Tensor:
    """Return the targets of the loss of the three texts."""
    found = head.targets(labels) if head.pair_targets is None else head.pair_targets(TEXTS, labels)
    return torch.from_numpy(found)


@ALL
def test_rows_without_a_label_teach_nothing(name: str, model: Any, inputs: Any) -> None:
    head = HEADS[name]
    outputs, targets = outputs_of(head, model(**inputs)), targets_of(head, LABELS[name])
    known = {output: values[[0, 2]] for output, values in outputs.items()}
    torch.testing.assert_close(head.label_loss(outputs, targets).mean(), head.label_loss(known, targets[[0, 2]]).mean())
    nothing = head.label_loss(outputs, targets_of(head, [None] * 3)).mean()
    nothing.backward()
    assert nothing.item() == 0 and all(one.grad is None or one.grad.eq(0).all() for one in model.parameters())


@ALL
def test_a_student_that_answers_as_its_teacher_has_nothing_to_learn(name: str, model: Any, inputs: Any) -> None:
    head = HEADS[name]
    theirs = {output: values.detach() for output, values in outputs_of(head, model(**inputs)).items()}
    targets, knobs = targets_of(head, LABELS[name]), {"temperature": 2.0, "formula": "default"}

    def loss(moved: float, hard_weight: float) -> float:
        """Return the loss of a student whose answers are the teacher's, some of them moved."""
        ours = {
            output: values + moved * torch.arange(values.numel()).view_as(values) for output, values in theirs.items()
        }
        return head.teacher_loss(ours, theirs, targets, hard_weight=hard_weight, **knobs).mean().item()

    assert loss(0, 0) == pytest.approx(0, abs=1e-6) and loss(1, 0) > 0.01
    assert loss(0, 1) == pytest.approx(head.label_loss(theirs, targets).mean().item())


@ALL
def test_a_teacher_mixed_with_itself_answers_as_before(name: str, model: Any, inputs: Any) -> None:
    head = HEADS[name]
    for values_NC in outputs_of(head, model(**inputs)).values():
        weights_MN = torch.tensor([[0.25], [0.75]]).expand(2, len(TEXTS))
        mixed_NC = head.mix(torch.stack([values_NC, values_NC]), weights_MN, 2.0)
        theirs = {output.name: values_NC for output in head.outputs}
        mixed = {output.name: mixed_NC for output in head.outputs}
        targets = targets_of(head, [None] * 3)
        apart = head.teacher_loss(mixed, theirs, targets, temperature=2.0, hard_weight=0.0, formula="default")
        assert apart.mean().item() == pytest.approx(0, abs=1e-6)


@ALL
def test_a_head_that_starts_from_labels_is_a_plain_one_afterwards(name: str, model: Any, inputs: Any) -> None:
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    with HEADS[name].start_from_labels(model, lambda: HEADS[name].targets(LABELS[name])):
        during = model(**inputs)
    assert list(model.state_dict()) == names and [type(module) for module in model.modules()] == kinds
    for output, values in outputs_of(HEADS[name], during).items():
        assert np.isfinite(values.detach().numpy()).all(), output


def test_rows_of_another_type_are_refused(tiny_rows: Path, tmp_path: Path) -> None:
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), tmp_path)
    task = read_task(tmp_path, "classification")
    assert set(read_rows(tmp_path, "train", task.head).labels_N.tolist()) == {0, 1}
    with pytest.raises(DataError, match="of type classification, and this stage is for regression"):
        read_task(tmp_path, "regression")


@pytest.mark.parametrize("module", ["types", "interfaces", "readers", "answers", "views", "graphs"])
def test_the_other_parts_are_read_without_torch(module: str) -> None:
    """The interface of heads names tensors in annotations alone."""
    code = f"import json, sys, tasks.task_types.{module}; "
    code += "print(json.dumps([m for m in ('torch', 'transformers') if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
