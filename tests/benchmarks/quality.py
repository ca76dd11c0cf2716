"""What speed costs in quality: the product's way of distilling and a plain one, the same method, the same rows, the
same number of steps.

The plain way: batches in random order padded to 64, float32, the teacher run beside every step, AdamW over every
parameter, clipping in a pass of its own. Losses and attention are the same code on both sides; that they are right,
tests show beside the reference's and transformers' own.

Needs a real encoder and real rows: ``BASE=folder ROWS=train.parquet`` (columns sentence and label). From the rows
20,000 are held back; the figure is the difference in accuracy on them, in points, paired row by row, with an interval
over rows (Efron 1979) for these very students; what another seed would change shows in the differences by seed. Shape
letters: N rows, C classes.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import logging

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss
from tasks.methods.losses.soft_targets import class_prediction_loss
from tasks.recipe.slices import IntermediateSlice, PredictionSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.recipe.training import SeededTraining
from tasks.task_types.heads import HEADS
from tasks.task_types.types import CLASS_LOGITS
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.encoded import Batch, Encoded, collate, encode
from tasks.training.data.epochs import Indices, planned
from tasks.training.data.rows import Rows, Task, load_tokenizer
from tasks.training.distill import inner_spec
from tasks.training.finetune import labelled_loss
from tasks.training.loop import TrainingSpec, rate, train
from tasks.training.models.students import build_student, freeze, load_classifier, set_dropout
from tasks.training.objectives.layers import LayerObjective
from tasks.training.precision import store_as_multiplied
from tasks.training.selection import all_outputs
from tests.benchmarks.distillation import kept_of
from tests.benchmarks.measure import Figure
from tests.benchmarks.setting import Setting

CPU, WIDTH, HELD, SEEDS, RESAMPLES = torch.device("cpu"), 64, 20_000, (0, 1, 2), 4000
TASK = Task("quality", "classification", ["negative", "positive"], "accuracy", False, HEADS["classification"])
LAYERS, STEPS, TEACHER_STEPS, QUICK_STEPS = 3, 500, 1200, 20


@dataclass(frozen=True)
class School:
    """Where the pretrained encoder, the finished teacher and the rows are, and for how long is learned."""

    base: Path
    rows: Path
    teacher: Path
    steps: int
    teacher_steps: int

    def read(self) -> tuple[Any, Rows, Rows]:
        """Return the tokenizer, the rows to learn from, and those held back."""
        table = pq.read_table(self.rows, columns=["sentence", "label"]).to_pydict()
        order = np.random.default_rng(0).permutation(len(table["label"]))
        parts = [
            Rows(part, [table["sentence"][row] for row in part], None, np.asarray(table["label"])[part])
            for part in (order[HELD:], order[:HELD])
        ]
        return load_tokenizer(self.base), parts[0], parts[1]


def quality(setting: Setting) -> list[Figure]:
    """Train three students each way and compare them row by row; processes of one thread each, as many side by side as
    there are cores."""
    steps, teacher_steps = (QUICK_STEPS, 10 * QUICK_STEPS) if setting.quick else (STEPS, TEACHER_STEPS)
    with tempfile.TemporaryDirectory() as folder:
        school = School(Path(os.environ["BASE"]), Path(os.environ["ROWS"]), Path(folder), steps, teacher_steps)
        with ProcessPoolExecutor(
            min(len(os.sched_getaffinity(0)), 2 * len(SEEDS)),
            multiprocessing.get_context("spawn"),
            initializer=alone_and_quiet,
        ) as pool:
            taught = pool.submit(teach, school).result()
            setting.tell(f"teacher: {taught:.4f} on {HELD:,} rows")
            # The plain ones first: they take longest.
            slow, quick = ([pool.submit(answers_of, way, school, seed) for seed in SEEDS] for way in (plain, fast))
            pairs = [(ours.result(), theirs.result()) for ours, theirs in zip(quick, slow, strict=True)]
    for seed, (fast_N, slow_N) in zip(SEEDS, pairs, strict=True):
        setting.tell(f"seed {seed}: fast {fast_N.mean():.4f}, plain {slow_N.mean():.4f}")
    gaps_N = 100 * np.mean([fast_N.astype(float) - slow_N for fast_N, slow_N in pairs], axis=0)
    random = np.random.default_rng(0)
    means = [float(gaps_N[random.integers(0, len(gaps_N), len(gaps_N))].mean()) for _ in range(RESAMPLES)]
    low, high = (float(value) for value in np.quantile(means, (0.025, 0.975)))
    widest = max(abs(low), abs(high))
    by_seed = ", ".join(f"{100 * (fast_N.mean() - slow_N.mean()):+.2f}" for fast_N, slow_N in pairs)
    name = (
        f"6x384 to 3x384, two phases of {steps} steps: accuracy {np.mean(gaps_N):+.2f} points [{low:+.2f}, "
        f"{high:+.2f}], by seed {by_seed}"
    )
    return [Figure(name, "our way", "the plain way", [widest], "", 0.5, unit=" points at most", at_most=True)]


def alone_and_quiet() -> None:
    """Set a process up: one thread, no bars of progress."""
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def teach(school: School) -> float:
    """Fine-tune the teacher, save it, and return its accuracy on the rows that are held back."""
    tokenizer, rows, held = school.read()
    model = load_classifier(school.base, TASK, CPU)
    set_dropout(model, 0.0)
    encoded = encode(tokenizer, rows.texts, None, WIDTH)
    knobs = TeacherSlice(
        task_type=TASK.kind, steps=school.teacher_steps, learning_rate=1.2e-4, max_length=WIDTH, evaluations=0
    )
    loss = labelled_loss(model, TASK, rows, encoded, tokenizer.pad_token_id)
    train(
        place_of(school, "teacher"),
        knobs,
        TrainingSpec(model, partial(planned, encoded=encoded, knobs=knobs), loss, pad=tokenizer.pad_token_id),
        CPU,
    )
    model.save_pretrained(school.teacher)
    return float(right(model, tokenizer, held).mean())


def answers_of(way: Callable[..., Any], school: School, seed: int) -> np.ndarray:
    """Return which of the held-back rows one way's student answers rightly."""
    tokenizer, rows, held = school.read()
    return right(way(school, seed, rows, encode(tokenizer, rows.texts, None, WIDTH), tokenizer), tokenizer, held)


def knobs_of(school: School, seed: int) -> tuple[IntermediateSlice, PredictionSlice]:
    """Return the knobs of both phases, the same for both ways."""
    shared: dict[str, Any] = {
        "steps": school.steps,
        "seed": seed,
        "max_length": WIDTH,
        "evaluations": 0,
        "shape": Shape(layers=LAYERS),
        "start": "teacher",
    }
    return IntermediateSlice(task_type="classification", **shared, learning_rate=3e-4), PredictionSlice(
        task_type="classification", **shared, learning_rate=1.5e-4
    )


def cast(school: School, seed: int) -> tuple[Any, Any]:
    """Return the frozen teacher and a student that starts from its layers."""
    teacher = load_classifier(school.teacher, TASK, CPU)
    student = build_student(
        "teacher", teacher, SimpleNamespace(layers=LAYERS, hidden=None, heads=None, feed_forward=None), seed=seed
    )
    set_dropout(student, IntermediateSlice.model_fields["dropout"].default)
    return freeze(teacher), student.requires_grad_(True)


def fast(school: School, seed: int, rows: Rows, encoded: Encoded, tokenizer: Any) -> Any:
    """Distil as the product does: kept signals, batches of like length, bfloat16 where the machine has it."""
    teacher, student = cast(school, seed)
    first, second = knobs_of(school, seed)
    matcher, varied = LayerObjective(student, teacher, first.matching), AugmentedRows(rows, tokenizer, WIDTH, seed)
    store_as_multiplied(teacher, "auto")
    with tempfile.TemporaryDirectory() as folder:
        kept = kept_of(teacher, matcher, encoded, Path(folder))
        train(place_of(school, f"first-{seed}"), first, inner_spec(matcher, varied, first, kept, CPU), CPU)
    outputs = all_outputs(teacher, CLASS_LOGITS, encoded, tokenizer.pad_token_id, precision="auto")
    answers_NC = torch.from_numpy(outputs["logits"])

    def loss(indices: Indices) -> Loss:
        batch = indices.rows_B
        return answer_loss(
            student,
            collate(encoded, batch, tokenizer.pad_token_id, CPU),
            answers_NC[batch],
            rows.labels_N[batch],
            second,
        )

    spec = TrainingSpec(student, partial(planned, encoded=encoded, knobs=second), loss, pad=tokenizer.pad_token_id)
    train(place_of(school, f"second-{seed}"), second, spec, CPU)
    return student


def plain(school: School, seed: int, rows: Rows, encoded: Encoded, tokenizer: Any) -> Any:
    """Distil as a textbook does."""
    teacher, student = cast(school, seed)
    first, second = knobs_of(school, seed)
    matcher = LayerObjective(student, teacher, first.matching)

    def answered(batch: np.ndarray) -> Loss:
        padded = wide(collate(encoded, batch, tokenizer.pad_token_id, CPU))
        with torch.no_grad():
            answers_BC = teacher(**padded.inputs(teacher)).logits
        return answer_loss(student, padded, answers_BC, rows.labels_N[batch], second)

    plain_phase(
        matcher.modules,
        lambda batch: matcher.loss(wide(collate(encoded, batch, tokenizer.pad_token_id, CPU))),
        len(rows),
        first,
    )
    plain_phase(student, answered, len(rows), second)
    return student


def plain_phase(modules: nn.Module, loss: Callable[[np.ndarray], Loss], rows: int, knobs: SeededTraining) -> None:
    """Use the steps of one phase."""
    decayed = [value for value in modules.parameters() if value.ndim > 1]
    others = [value for value in modules.parameters() if value.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": knobs.weight_decay}, {"params": others, "weight_decay": 0.0}]
    )
    random = np.random.default_rng(knobs.seed)
    modules.train()
    for step in range(knobs.steps):
        for group in optimizer.param_groups:
            group["lr"] = knobs.learning_rate * rate(step, knobs.steps, knobs.warmup, knobs.schedule)
        loss(random.choice(rows, knobs.batch_size, replace=False)).mean().backward()
        nn.utils.clip_grad_norm_(modules.parameters(), knobs.clip)
        optimizer.step()
        optimizer.zero_grad()


def wide(batch: Batch) -> Batch:
    """Pad a batch to the fixed width."""
    return Batch(
        *(F.pad(values, (0, WIDTH - values.shape[1])) for values in (batch.ids_BT, batch.mask_BT, batch.segments_BT))
    )


def answer_loss(student: Any, batch: Batch, answers_BC: Tensor, labels_B: np.ndarray, knobs: PredictionSlice) -> Loss:
    """Return the loss of the second phase."""
    options = {"temperature": knobs.temperature, "hard_weight": knobs.hard_weight}
    return class_prediction_loss(
        student(**batch.inputs(student)).logits, answers_BC, torch.from_numpy(labels_B), **options
    )


def right(model: Any, tokenizer: Any, held: Rows) -> np.ndarray:
    """Return which rows a model answers rightly."""
    encoded = encode(tokenizer, held.texts, None, WIDTH)
    outputs = all_outputs(model, CLASS_LOGITS, encoded, tokenizer.pad_token_id, precision="fp32")
    return np.asarray(outputs["logits"].argmax(-1) == held.labels_N)


def place_of(school: School, name: str) -> Job:
    """Give an engine's job in a folder of its own."""
    return Job(
        {"job": name, "knobs": {}, "output": str(school.teacher / name), "checkpoints": str(school.teacher / name)}
    )
