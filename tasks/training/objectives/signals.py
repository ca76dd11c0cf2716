"""The teacher's inner signals, computed once and stored by row: later epochs, other seeds and other students of the
same layer map do not run the teacher.

Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351. Signals are stored in float16 (11 bits of precision), for valid
tokens only. The decision to store them depends only on inputs of the stage's key, so that a repeated run decides alike.
Shape letters: N rows, S tokens of all rows, B batch, T tokens, E teacher width, H heads, M mapped hidden states, L
mapped attention layers.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.methods.layers.layer_maps import layer_map
from tasks.recipe.slices import SignalSlice
from tasks.training.data.batches import by_length
from tasks.training.data.epochs import Indices
from tasks.training.data.rows import (
    Encoded,
    collate,
    encode,
    load_tokenizer,
    read_task,
    rows_by_id,
    student_rows,
    valid,
)
from tasks.training.models.students import freeze, load_classifier
from tasks.training.objectives.capture import Capture, Signals
from tasks.training.objectives.layers import weighted_signals
from tasks.training.precision import arithmetic, device, store_as_multiplied

LARGEST = 60_000.0  # a little less than the largest float16, 65,504


@dataclass(frozen=True)
class Plan:
    """The signals to store of each row: the layers of hidden states and of scores, and their sizes."""

    hidden: tuple[int, ...]
    attention: tuple[int, ...]
    width: int
    heads: int
    left: bool = False

    def numbers(self, lengths_N: np.ndarray) -> tuple[int, int]:
        """Return how many numbers rows of these lengths take, in hidden states and in scores."""
        tokens, pairs = int(lengths_N.sum()), int(np.square(lengths_N.astype(np.int64)).sum())
        return tokens * len(self.hidden) * self.width, pairs * len(self.attention) * self.heads


def record_signals(job: Job) -> dict[str, Any]:
    """Run the teacher over every row that students learn from and store its mapped layers; store nothing on a GPU,
    above the size budget, or if values are too large for float16."""
    knobs, place = job.read(SignalSlice), device()
    task = read_task(job.inputs["rows"], knobs.task_type)
    if place.type == "cuda":
        return live(job, "a GPU runs the teacher faster than a disk reads its stored outputs")
    tokenizer = load_tokenizer(job.inputs["teacher"])
    teacher = freeze(load_classifier(job.inputs["teacher"], task, place))
    rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
    encoded = encode(tokenizer, rows.texts, rows.pairs, knobs.max_length)
    mapped = layer_map(knobs.layer_map, knobs.layers, teacher.config.num_hidden_layers)
    wide = {"width": teacher.config.hidden_size, "heads": teacher.config.num_attention_heads}
    plan = Plan(**weighted_signals(knobs, mapped.hidden, mapped.attention), **wide, left=encoded.left)  # type: ignore[arg-type]
    size = 2 * sum(plan.numbers(encoded.lengths_N))
    if size > knobs.signal_budget_gb * 1e9:
        return live(job, f"they would take {size / 1e9:.1f} GB, and signal_budget_gb is {knobs.signal_budget_gb:g}")
    store_as_multiplied(teacher, knobs.precision)
    try:
        write_signals(job, teacher, encoded, plan, tokenizer.pad_token_id, precision=knobs.precision)
    except OverflowError as error:
        return live(job, str(error))
    index = {**plan.__dict__, "kept": True, "ids": rows.ids_N.tolist(), "lengths": encoded.lengths_N.tolist()}
    (job.output / "index.json").write_text(json.dumps(index))
    return {"kept": True, "rows": len(rows)}


def live(job: Job, reason: str) -> dict[str, Any]:
    """Store no signals: students run the teacher while they learn."""
    job.log(f"the teacher's layers are not stored, it runs during each training: {reason}")
    for path in job.output.iterdir():
        path.unlink()
    (job.output / "index.json").write_text(json.dumps({"kept": False}))
    return {"kept": False, "reason": reason}


def write_signals(job: Job, teacher: Any, encoded: Encoded, plan: Plan, pad: int, *, precision: str) -> None:
    """Write the teacher's signals of each row, in row order."""
    hidden_SME, scores = open_files(job.output, encoded.lengths_N, plan, "r+")
    places = score_places(encoded.lengths_N, plan)
    capture, done = Capture(teacher, hidden=plan.hidden, attention=plan.attention), 0
    for rows in by_length(encoded.lengths_N, size=64, tokens=8192):
        with torch.inference_mode(), arithmetic(precision, teacher.device):
            batch = collate(encoded, rows, pad, teacher.device)
            shown = capture(**batch.inputs(teacher))
        states_BTME = to_16_bits([shown.hidden[layer] for layer in plan.hidden], 2)
        scores_BLHTT = to_16_bits([shown.scores[layer] for layer in plan.attention], 1)
        for at, row in enumerate(rows):
            there = valid(int(encoded.lengths_N[row]), batch.mask_BT.shape[1], left=plan.left)
            if states_BTME is not None:
                hidden_SME[encoded.offsets[row] : encoded.offsets[row + 1]] = states_BTME[at, there]
            if scores_BLHTT is not None:
                scores[places[row] : places[row + 1]] = scores_BLHTT[at, :, :, there, there].ravel()
        done += len(rows)
        job.progress(done, len(encoded.lengths_N), unit="rows")
    for values in (hidden_SME, scores):
        values.flush()


def to_16_bits(signals: list[Tensor], axis: int) -> np.ndarray | None:
    """Stack the signals of several layers, in float16; raise OverflowError if a value is too large."""
    if not signals:
        return None
    values = torch.stack(signals, axis).float()
    if not float(values.abs().max()) < LARGEST:
        raise OverflowError("one of its layers has values too large for 16 bits")
    return values.half().cpu().numpy()


def open_files(folder: Path, lengths_N: np.ndarray, plan: Plan, mode: Any) -> tuple[np.memmap, np.memmap]:
    """Open the two files by memory map: hidden states [S, M, E], and scores end to end."""
    states, scores = plan.numbers(lengths_N)
    shape = (int(lengths_N.sum()), len(plan.hidden), plan.width)
    # An empty file cannot be mapped: a signal that is not stored gets a file of one number.
    shapes = {"hidden.raw": shape if states else (1, 1, 1), "scores.raw": (max(1, scores),)}
    for name, wanted_shape in shapes.items() if mode == "r+" else ():
        with (folder / name).open(
            "wb"
        ) as stream:  # on a full disk, a write to the map would kill the process without a message
            os.posix_fallocate(stream.fileno(), 0, 2 * math.prod(wanted_shape))
    hidden_SME, ends = (
        np.memmap(folder / name, np.float16, mode, shape=wanted_shape) for name, wanted_shape in shapes.items()
    )
    return hidden_SME, ends


def score_places(lengths_N: np.ndarray, plan: Plan) -> np.ndarray:
    """Return the offset of each row's scores, and the end of the last ones."""
    sizes = np.square(lengths_N.astype(np.int64)) * len(plan.attention) * plan.heads
    return np.concatenate([[0], np.cumsum(sizes)])


@dataclass(frozen=True)
class Recorded:
    """Stored signals, read one batch at a time; ``row_of`` is the stored position of each row of the student."""

    plan: Plan
    lengths_N: np.ndarray
    hidden_SME: np.ndarray
    scores: np.ndarray
    row_of: np.ndarray
    starts: np.ndarray
    places: np.ndarray

    @classmethod
    def over(cls, folder: Path, plan: Plan, lengths_N: np.ndarray, row_of: np.ndarray | None = None) -> Recorded:
        """Open the stored signals of rows of these lengths."""
        order = np.arange(len(lengths_N)) if row_of is None else row_of
        starts = np.concatenate([[0], np.cumsum(lengths_N)])
        return cls(
            plan, lengths_N, *open_files(folder, lengths_N, plan, "r"), order, starts, score_places(lengths_N, plan)
        )

    def of(self, indices: Indices, place: torch.device) -> Signals:
        """Return the signals of a batch of rows, padded with zeros to the longest of them.

        Raises ModelError for rows whose text was augmented: signals are stored for the rows' own text only.
        """
        if len(indices.changed()):
            raise ModelError(
                "stored layers belong to the original text of the rows, and this batch has variants of it; set "
                "keep_signals: never, or remove augmentation"
            )
        mine = self.row_of[indices.rows_B]
        lengths_B = self.lengths_N[mine]
        width, count = int(lengths_B.max()), len(mine)
        plan = self.plan
        states_BTME = np.zeros((count, width, len(plan.hidden), plan.width), np.float16)
        scores_BLHTT = np.zeros((count, len(plan.attention), plan.heads, width, width), np.float16)
        for at, (row, length) in enumerate(zip(mine, lengths_B, strict=True)):
            there = valid(length, width, left=plan.left)
            if plan.hidden:
                states_BTME[at, there] = self.hidden_SME[self.starts[row] : self.starts[row + 1]]
            if plan.attention:
                shape = (len(plan.attention), plan.heads, length, length)
                scores_BLHTT[at, :, :, there, there] = self.scores[self.places[row] : self.places[row + 1]].reshape(
                    shape
                )
        states, scores = (torch.from_numpy(values).to(place) for values in (states_BTME, scores_BLHTT))
        return Signals(
            {},
            {layer: states[:, :, at].float() for at, layer in enumerate(plan.hidden)},
            {layer: scores[:, at].float() for at, layer in enumerate(plan.attention)},
        )


def recorded(job: Job, ids_N: np.ndarray) -> Recorded | None:
    """Open the recorded signals of a job for rows of these ids; None if the job has none, or if they were not
    stored."""
    if "signals" not in job.inputs:
        return None
    index = json.loads((job.inputs["signals"] / "index.json").read_text())
    if not index["kept"]:
        return None
    plan = Plan(tuple(index["hidden"]), tuple(index["attention"]), index["width"], index["heads"], index["left"])
    return Recorded.over(
        job.inputs["signals"],
        plan,
        np.asarray(index["lengths"]),
        rows_by_id(index["ids"], ids_N, "stored layers", "record-signals"),
    )
