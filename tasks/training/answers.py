"""The teacher's answers: computed once for every row, mixed if there are several teachers, and looked up while students
train.

A teacher uses its own tokenization of a text. Answers, and the states of its summary token, belong to whole texts, so a
student with another tokenizer may learn from them. Methods: Hinton et al. 2015, arXiv:1503.02531; summary tokens, Sun
et al. 2019, PKD, arXiv:1908.09355. Shape letters: N rows, B batch, T tokens, C classes, L compared layers, D width, M
teachers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor

from tasks.architectures.known_architectures import summary_token
from tasks.engine.job import Job
from tasks.methods.losses.ensembles import mixed
from tasks.methods.losses.patience import patience_layers
from tasks.recipe.slices import AnswerSlice, MixSlice
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.batches import by_length
from tasks.training.data.epochs import Indices
from tasks.training.data.rows import (
    Batch,
    Encoded,
    collate,
    encode,
    load_tokenizer,
    read_task,
    rows_by_id,
    student_rows,
)
from tasks.training.models.students import freeze, load_classifier
from tasks.training.objectives.capture import Capture
from tasks.training.precision import arithmetic, device, store_as_multiplied


@dataclass(frozen=True)
class Answered:
    """A teacher's answers to a batch: logits [B, C] and, if they are compared, the states of its summary token at some
    layers [B, L, D]."""

    logits_BC: Tensor
    summaries_BLD: Tensor | None = None


def answer(job: Job) -> dict[str, Any]:
    """Run the teacher once over every row that students learn from, and write its answers by row id."""
    task, knobs = read_task(job.inputs["rows"]), job.read(AnswerSlice)
    tokenizer = load_tokenizer(job.inputs["teacher"])
    teacher = freeze(load_classifier(job.inputs["teacher"], task, device()))
    layers = (
        []
        if knobs.patience is None
        else patience_layers(knobs.patience.layer_map, knobs.patience.layers, teacher.config.num_hidden_layers)
    )
    store_as_multiplied(teacher, knobs.precision)
    rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
    encoded = encode(tokenizer, rows.texts, rows.pairs, knobs.max_length)
    said = all_answers(job, knobs, teacher, layers, encoded, tokenizer.pad_token_id)
    save_file({"ids": rows.ids_N} | said, job.output / "answers.safetensors")
    return {"rows": len(rows), "truncated": float((encoded.lengths_N >= knobs.max_length).mean())}


def all_answers(
    job: Job, knobs: AnswerSlice, teacher: Any, layers: Sequence[int], encoded: Encoded, pad: int
) -> dict[str, np.ndarray]:
    """Return logits [N, C] and, if layers are named, summary states [N, L, D] in float16, in row order."""
    capture, order, parts = Capture(teacher, hidden=layers), [], []
    for rows in by_length(encoded.lengths_N, size=64, tokens=16_384):
        with torch.inference_mode(), arithmetic(knobs.precision, teacher.device):
            parts.append(answers_of(capture, collate(encoded, rows, pad, teacher.device)))
        order.append(rows)
        job.progress(sum(map(len, order)), len(encoded.lengths_N), unit="rows")
    place_N = np.argsort(np.concatenate(order))
    said = {"logits": torch.cat([part.logits_BC for part in parts]).cpu().numpy()[place_N]}
    if layers:
        said["summaries"] = torch.cat(
            [part.summaries_BLD.half().cpu() for part in parts if part.summaries_BLD is not None]
        ).numpy()[place_N]
    return said


def answers_of(capture: Capture, batch: Batch) -> Answered:
    """Return a teacher's answers to one batch."""
    shown = capture(**batch.inputs(capture.model))
    assert shown.logits_BC is not None
    states = [summary_of(capture.model, shown.hidden[layer], batch.mask_BT) for layer in capture.hidden]
    return Answered(shown.logits_BC.float(), torch.stack(states, 1).float() if states else None)


def summary_of(model: Any, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the state [B, D] of the token that represents each row: the first, or the last in XLNet."""
    last = summary_token(model.config) == "last"
    at_B = mask_BT.shape[1] - 1 - mask_BT.flip(1).long().argmax(1) if last else mask_BT.long().argmax(1)
    return states_BTD[torch.arange(len(states_BTD), device=states_BTD.device), at_B]


def mix(job: Job) -> dict[str, Any]:
    """Mix the answers of several teachers into one file of the same format."""
    knobs, said = job.read(MixSlice), [load_file(folder / "answers.safetensors") for folder in job.lists["answers"]]
    ids_N = said[0]["ids"]
    logits_MNC = torch.stack(
        [torch.from_numpy(each["logits"][rows_by_id(each["ids"], ids_N, "answers", "answer-rows")]) for each in said]
    )
    logits_NC = mixed(logits_MNC, knobs.weights, combine=knobs.combine, temperature=knobs.temperature)
    save_file({"ids": ids_N, "logits": logits_NC.contiguous().numpy()}, job.output / "answers.safetensors")
    return {"rows": len(ids_N), "teachers": len(said)}


class Answers:
    """The teacher's answers to a batch: looked up for rows with their own text, computed only for augmented
    variants."""

    def __init__(
        self, folder: Path, augmented: AugmentedRows, teacher: Any, tokenizer: Any, layers: Sequence[int] = ()
    ) -> None:
        self.max_length, self.tokenizer, self.place = augmented.max_length, tokenizer, teacher.device
        self.capture, stored = Capture(teacher, hidden=layers), load_file(folder / "answers.safetensors")
        order = rows_by_id(stored["ids"], augmented.rows.ids_N, "answers", "answer-rows")
        self.logits_NC = torch.from_numpy(stored["logits"][order]).to(self.place)
        self.summaries_NLD = torch.from_numpy(stored["summaries"][order]) if layers else None

    def of(self, indices: Indices) -> Answered:
        """Return the answers to a batch of rows."""
        rows, changed, variants = indices.rows_B, indices.changed(), indices.epoch.variants
        logits_BC = self.logits_NC[rows]
        summaries_BLD = None if self.summaries_NLD is None else self.summaries_NLD[rows].to(self.place).float()
        if variants is None or not len(changed):
            return Answered(logits_BC, summaries_BLD)
        with torch.inference_mode():
            texts, pairs = variants.read(rows[changed])
            encoded = encode(self.tokenizer, texts, pairs, self.max_length)
            fresh = answers_of(
                self.capture, collate(encoded, np.arange(len(changed)), self.tokenizer.pad_token_id, self.place)
            )
        at = torch.from_numpy(changed).to(self.place)
        # Autograd cannot use inference tensors in a loss: copy them into normal tensors.
        logits_BC = logits_BC.clone().index_copy_(0, at, fresh.logits_BC.clone())
        if summaries_BLD is not None and fresh.summaries_BLD is not None:
            summaries_BLD = summaries_BLD.index_copy_(0, at, fresh.summaries_BLD.clone())
        return Answered(logits_BC, summaries_BLD)
