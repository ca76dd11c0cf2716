"""The teacher's inner signals, computed once and stored by row: later epochs, other seeds and other students of the
same layer map do not run the teacher.

Method: Jiao et al. 2019, TinyBERT, arXiv:1909.10351. Signals are stored for valid tokens only (``signal_files.py``).
Whether a run stores them is decided before (``flows/branches/teacher_signals.py``), and is part of the key of a student
by its inputs. Shape letters: B batch, T tokens, E teacher width, H heads, M mapped hidden states, L mapped attention
layers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.engine.job import Job
from tasks.methods.layers.layer_maps import layer_map
from tasks.recipe.slices import SignalSlice
from tasks.task_types.common_head import words_at_a_token
from tasks.training.data.batches import by_length, tokens_at_once
from tasks.training.data.encoded import Batch, Encoded, collate, valid
from tasks.training.data.epochs import Indices
from tasks.training.data.rows import rows_by_id, student_rows, task_and_tokenizer
from tasks.training.models.students import freeze, load_classifier
from tasks.training.objectives.capture import Capture, Signals
from tasks.training.objectives.layers import weighted_signals
from tasks.training.objectives.signal_files import SignalFiles, StoragePlan
from tasks.training.precision import arithmetic, device, store_as_multiplied


def record_signals(job: Job) -> dict[str, object]:
    """Run the teacher over every row that students learn from and store its mapped layers; store nothing if values are
    too large for the format."""
    knobs, place = job.read(SignalSlice), device()
    task, tokenizer = task_and_tokenizer(job, knobs.task_type, "teacher")
    teacher = freeze(load_classifier(job.inputs["teacher"], task, place))
    rows = student_rows(job, task, transfer_alone=knobs.transfer_alone)
    encoded = rows.tokens(tokenizer, knobs.max_length)
    mapped = layer_map(knobs.layer_map, knobs.layers, teacher.config.num_hidden_layers)
    signals = weighted_signals(knobs, mapped.hidden, mapped.attention)
    plan = StoragePlan(
        hidden=signals["hidden"],
        attention=signals["attention"],
        width=teacher.config.hidden_size,
        heads=teacher.config.num_attention_heads,
        left=encoded.left,
        bits=knobs.signal_bits,
    )
    store_as_multiplied(teacher, knobs.precision)
    try:
        write_signals(job, teacher, encoded, plan, tokenizer.pad_token_id, precision=knobs.precision)
    except OverflowError as error:
        return live(job, str(error))
    index = {
        **plan.__dict__,
        "kept": True,
        "ids": encoded.ids_of(rows.ids_N).tolist(),
        "lengths": encoded.lengths_N.tolist(),
    }
    (job.output / "index.json").write_text(json.dumps(index))
    return {"kept": True, "rows": len(rows)}


def live(job: Job, reason: str) -> dict[str, object]:
    """Store no signals: students run the teacher while they learn."""
    job.log(f"the teacher's layers are not stored, it runs during each training: {reason}")
    for path in job.output.iterdir():
        path.unlink()
    (job.output / "index.json").write_text(json.dumps({"kept": False}))
    return {"kept": False, "reason": reason}


def write_signals(job: Job, teacher: Any, encoded: Encoded, plan: StoragePlan, pad: int, *, precision: str) -> None:
    """Write the teacher's signals of each row, in row order."""
    files = SignalFiles(job.output, encoded.lengths_N, plan, "r+")
    capture, done = Capture(teacher, hidden=plan.hidden, attention=plan.attention), 0
    tokens = tokens_at_once(8192, teacher.device, words_at_a_token(teacher))
    for rows in by_length(encoded.lengths_N, size=64, tokens=tokens):
        with torch.inference_mode(), arithmetic(precision, teacher.device):
            batch = collate(encoded, rows, pad, teacher.device)
            shown = capture(**batch.inputs(teacher))
        states_BTME = stacked([shown.hidden[layer] for layer in plan.hidden], 2)
        scores_BLHTT = stacked([shown.scores[layer] for layer in plan.attention], 1)
        if not done and states_BTME is not None:
            files.scale_units(states_BTME[batch.mask_BT.cpu().numpy() == 1])
        for at, row in enumerate(rows):
            there = valid(int(encoded.lengths_N[row]), batch.mask_BT.shape[1], left=plan.left)
            if states_BTME is not None:
                files.write_states(row, states_BTME[at, there])
            if scores_BLHTT is not None:
                files.write_scores(row, scores_BLHTT[at, :, :, there, there])
        done += len(rows)
        job.progress(done, len(encoded.lengths_N), unit="rows")
    files.flush()


def stacked(signals: list[Tensor], axis: int) -> np.ndarray | None:
    """Stack the signals of several layers, in float32."""
    return torch.stack(signals, axis).float().cpu().numpy() if signals else None


@dataclass(frozen=True)
class Recorded:
    """Stored signals, read one batch at a time; ``row_of`` is the stored position of each row of the student."""

    files: SignalFiles
    row_of: np.ndarray

    @classmethod
    def over(cls, folder: Path, plan: StoragePlan, lengths_N: np.ndarray, row_of: np.ndarray | None = None) -> Recorded:
        """Open the stored signals of rows of these lengths."""
        return cls(SignalFiles(folder, lengths_N, plan, "r"), np.arange(len(lengths_N)) if row_of is None else row_of)

    def of(
        self,
        rows_B: np.ndarray,
        place: torch.device,
        width: int | None = None,
        without: Sequence[int] | np.ndarray = (),
    ) -> Signals:
        """Return the signals of a batch of rows, padded with zeros to the longest of them or to ``width`` tokens; zeros
        alone at the positions ``without``."""
        plan, mine, left_out = self.files.plan, self.row_of[rows_B], set(without)
        lengths_B, count = self.files.lengths_N[mine], len(mine)
        width = int(lengths_B.max()) if width is None else width
        kind = np.float16 if plan.bits == 16 else np.float32
        states_BTME = np.zeros((count, width, len(plan.hidden), plan.width), kind)
        scores_BLHTT = np.zeros((count, len(plan.attention), plan.heads, width, width), kind)
        for at, (row, length) in enumerate(zip(mine, lengths_B, strict=True)):
            there = valid(length, width, left=plan.left)
            if at in left_out:
                continue
            if plan.hidden:
                states_BTME[at, there] = self.files.states_of(row)
            if plan.attention:
                scores_BLHTT[at, :, :, there, there] = self.files.scores_of(row)
        states, scores = (
            torch.from_numpy(values).to(place, non_blocking=True) for values in (states_BTME, scores_BLHTT)
        )
        return Signals(
            {},
            {layer: states[:, :, at].float() for at, layer in enumerate(plan.hidden)},
            {layer: scores[:, at].float() for at, layer in enumerate(plan.attention)},
        )


@dataclass(frozen=True)
class TeacherSignals:
    """The teacher's signals of a batch: read for rows with their own text, computed for augmented variants only."""

    stored: Recorded
    capture: Capture
    pad: int

    def of(self, indices: Indices, batch: Batch) -> Signals:
        """Return the signals of a batch, padded as the batch is."""
        changed, width, place = indices.changed(), batch.mask_BT.shape[1], batch.ids_BT.device
        if len(changed) == len(indices.rows_B):
            return self.computed(batch)
        read = self.stored.of(indices.rows_B, place, width, without=changed)
        if len(changed):
            varied = collate(indices.epoch.encoded, indices.rows_B[changed], self.pad, place)
            insert(read, self.computed(varied), changed, left=indices.epoch.encoded.left)
        return read

    def computed(self, batch: Batch) -> Signals:
        """Run the teacher on a batch."""
        with torch.no_grad():  # autograd cannot use tensors of inference mode in a loss without a copy
            return self.capture(**batch.inputs(self.capture.model))


def insert(signals: Signals, fresh: Signals, at: np.ndarray, *, left: bool) -> None:
    """Write the signals of some rows, which may have fewer tokens, to the positions ``at`` of a batch."""
    at_K = torch.from_numpy(at)
    for layer, states_KTE in fresh.hidden.items():
        states_BTE = signals.hidden[layer]
        there = valid(states_KTE.shape[1], states_BTE.shape[1], left=left)
        states_BTE[:, there].index_copy_(0, at_K.to(states_BTE.device, non_blocking=True), states_KTE.float())
    for layer, scores_KHTT in fresh.scores.items():
        scores_BHTT = signals.scores[layer]
        there = valid(scores_KHTT.shape[-1], scores_BHTT.shape[-1], left=left)
        scores_BHTT[:, :, there, there].index_copy_(
            0, at_K.to(scores_BHTT.device, non_blocking=True), scores_KHTT.float()
        )


def recorded(job: Job, ids_N: np.ndarray) -> Recorded | None:
    """Open the recorded signals of a job for rows of these ids; None if the job has none, or if they were not
    stored."""
    if "signals" not in job.inputs:
        return None
    index = json.loads((job.inputs["signals"] / "index.json").read_text())
    if not index["kept"]:
        return None
    wide = {name: index[name] for name in ("width", "heads", "left", "bits")}
    plan = StoragePlan(tuple(index["hidden"]), tuple(index["attention"]), **wide)
    order = rows_by_id(index["ids"], ids_N, "stored layers", "record-signals")
    return Recorded.over(job.inputs["signals"], plan, np.asarray(index["lengths"]), order)
