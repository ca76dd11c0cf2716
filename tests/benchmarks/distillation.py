"""Task distillation's first phase, and fine-tuning: our engine beside what a user would write.

A unit of work is a batch of 32 sentences of SST-2's lengths. Every contestant sees the same sample, whose mean length
is the population's, except those that pad to a fixed width: to them all sentences are equal, so they see fewer.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tasks.engine.job import Job
from tasks.methods.losses.means import Loss
from tasks.recipe.slices import IntermediateSlice, TeacherSlice
from tasks.task_types.heads import HEADS
from tasks.training.data.augmented_rows import AugmentedRows
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import Indices, Variants, planned
from tasks.training.data.rows import Rows, Task
from tasks.training.distill import inner_spec
from tasks.training.finetune import labelled_loss
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.attention import own_attention
from tasks.training.models.students import freeze
from tasks.training.objectives.layers import LayerObjective
from tasks.training.objectives.signal_files import StoragePlan
from tasks.training.objectives.signals import Recorded, write_signals
from tasks.training.precision import store_as_multiplied
from tasks.training.steps.batch_loss import BatchLoss
from tests.benchmarks.measure import Contest, Contestant, Figure, Lap, interleave, settle, timed
from tests.benchmarks.models import classifier
from tests.benchmarks.peers import BATCH, Pupil, examples_of, in_bf16, inner_loss, label_loss, plain_loop, trainer_loop
from tests.benchmarks.sentences import sample, split, vocabulary
from tests.benchmarks.setting import Setting

CPU = torch.device("cpu")
DROPOUT = 0.1  # what published models are fine-tuned with
TASK = Task("bench", "classification", ["negative", "positive"], "accuracy", False, HEADS["classification"])
TARGETS = {
    "12x768 to 4x312": {"plain 64": 8.0, "plain 128": 16.0, "kept": 28.0, "helped": 11.0, "helped kept": 38.0},
    "6x384 to 3x384": {"plain 64": 8.0, "plain 128": None, "kept": 13.0, "helped": 9.0, "helped kept": 14.0},
}
QUICK = {"plain 64", "helped 64", "Trainer by hand", "live", "kept", "recording"}
"""The contestants of a quick run."""


@contextmanager
def workplace(name: str, **knobs: Any) -> Iterator[Job]:
    """Give an engine's job in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield Job({"job": name, "knobs": knobs, "output": folder})


def ours(name: str, spec: TrainingSpec, knobs: Any, batches: float, place: torch.device = CPU) -> Contestant:
    """Return our loop as a contestant: an epoch over the sample, timed from its first step, its set-up left out as a
    Trainer's is."""

    def once() -> Lap:
        lap = Lap(amount=batches)

        def begin(indices: Indices) -> None:
            if not lap.wall:
                gc.collect()
                settle()
                lap.wall, lap.cpu = -time.perf_counter(), -time.process_time()
            lengths_B = indices.epoch.encoded.lengths_N[indices.rows_B]
            lap.tokens += int(lengths_B.max()) * len(lengths_B)

        with workplace(name) as job:
            train(job, knobs, replace(spec, loss=begun(spec.loss, begin)), place)
        settle()
        lap.wall += time.perf_counter()
        lap.cpu += time.process_time()
        return lap

    return once


def begun(loss: Callable[[Indices], Loss], begin: Callable[[Indices], None]) -> Callable[[Indices], Loss]:
    """Return a loss that calls ``begin`` with each batch, in two parts if it has two."""

    def first(then: Callable[[Indices], Any], indices: Indices) -> Any:
        begin(indices)
        return then(indices)

    return replace(loss, read=partial(first, loss.read)) if isinstance(loss, BatchLoss) else partial(first, loss)


@dataclass(frozen=True)
class AsEncoded(AugmentedRows):
    """A sample whose tokens are there already, and never change."""

    tokens: Encoded | None = None

    def at(self, epoch: int) -> tuple[Encoded, Variants | None]:
        """Return the tokens."""
        assert self.tokens is not None
        return self.tokens, None


def with_tokens(spec: TrainingSpec, tokens_S: np.ndarray) -> TrainingSpec:
    """Let the rows of the embeddings be in use that a whole data set would have, not those of a sample."""
    return replace(spec, epoch=lambda number: replace(spec.epoch(number), tokens_S=tokens_S))


def kept_of(teacher: Any, matcher: LayerObjective, encoded: Encoded, folder: Path) -> Recorded:
    """Run the teacher once over the sample and keep what it shows."""
    lengths = encoded.lengths_N
    mapped = StoragePlan(
        matcher.map.hidden, matcher.map.attention, teacher.config.hidden_size, teacher.config.num_attention_heads
    )
    job = Job({"job": "signals", "output": str(folder)})
    write_signals(job, teacher, encoded, mapped, 0, precision="auto")
    return Recorded.over(folder, mapped, lengths)


def distill(setting: Setting, teacher_shape: str, student_shape: str, *, batches: int) -> list[Figure]:
    """Time one pair of teacher and student."""
    pair = f"{teacher_shape} to {student_shape}"
    encoded = sample(batches, BATCH)
    tokens = vocabulary(encoded)
    examples, few = examples_of(split(encoded)), examples_of(split(sample(1, BATCH)))
    teacher = freeze(classifier(teacher_shape))
    loss = inner_loss(teacher)
    knobs = IntermediateSlice(task_type="classification", steps=batches, batch_size=BATCH, max_length=64, evaluations=0)
    own_teacher = freeze(classifier(teacher_shape))
    matcher = LayerObjective(classifier(student_shape), own_teacher, knobs.matching)
    store_as_multiplied(own_teacher, "auto")
    varied = AsEncoded(None, SimpleNamespace(pad_token_id=0), 64, 0, tokens=encoded)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        kept = kept_of(own_teacher, matcher, encoded, Path(folder))

        def record() -> Lap:
            with timed(batches) as lap:
                kept_of(own_teacher, matcher, encoded, Path(folder))
            return lap

        contestants: dict[str, Contestant] = {
            "plain 64": plain_loop(pupil(student_shape, teacher), loss, few, 64),
            "helped 64": plain_loop(pupil(student_shape, teacher), loss, few, 64, helped=True),
            "Trainer 64": trainer_loop(pupil(student_shape, teacher), loss, few, width=64),
            "Trainer": trainer_loop(pupil(student_shape, teacher), loss, examples),
            "Trainer tuned": trainer_loop(pupil(student_shape, teacher), loss, examples, tuned=True),
            "Trainer by hand": trainer_loop(pupil(student_shape, teacher), in_bf16(loss), examples, tuned=True),
            "live": ours("bench", with_tokens(inner_spec(matcher, varied, knobs, None, CPU), tokens), knobs, batches),
            "kept": ours("bench", with_tokens(inner_spec(matcher, varied, knobs, kept, CPU), tokens), knobs, batches),
            "recording": record,
        }
        if TARGETS[pair]["plain 128"]:
            contestants["plain 128"] = plain_loop(pupil(student_shape, teacher), loss, few, 128)
        if setting.quick:
            contestants = {name: one for name, one in contestants.items() if name in QUICK}
        return distillation_figures(pair, interleave(contestants, setting.repeats, tell=setting.tell))


def pupil(shape: str, teacher: Any) -> Pupil:
    """Return a fresh student for a peer."""
    return Pupil(classifier(shape), teacher.config.hidden_size)


def distillation_figures(pair: str, contest: Contest) -> list[Figure]:
    """Read the figures of a contest."""
    goals = TARGETS[pair]
    contest.laps["two epochs"] = [
        both_epochs(*laps) for laps in zip(contest.laps["recording"], contest.laps["kept"], strict=True)
    ]
    wanted: list[tuple[str, str, str, float | None]] = [
        ("live teacher", "live", "plain 64", goals["plain 64"]),
        ("live teacher", "live", "plain 128", goals["plain 128"]),
        ("live teacher", "live", "helped 64", goals["helped"]),
        ("kept signals", "kept", "plain 64", goals["kept"]),
        ("kept signals", "kept", "helped 64", goals["helped kept"]),
        ("recording and two epochs of kept signals", "two epochs", "plain 64", None),
        ("live teacher", "live", "Trainer", None),
        ("live teacher", "live", "Trainer tuned", None),
        ("live teacher", "live", "Trainer by hand", 1.3),
        ("kept signals", "kept", "Trainer tuned", None),
        ("kept signals", "kept", "Trainer by hand", 3.0),
    ]
    fair = ("the plain loop is no straw man", "Trainer 64", "plain 64", 1.2)
    lines = [
        contest.figure(f"{pair}, {name}", of=of, against=against, target=target)
        for name, of, against, target in (fair, *wanted)
        if against in contest.laps and of in contest.laps
    ]
    for line in lines:
        line.at_most = line.of == "Trainer 64"
    # A fixed width computes several times as many tokens: that share of the speed-up is padding alone.
    lengths: list[tuple[str, str, str, float | None]] = [
        ("live teacher", "live", "Trainer by hand", 1.3),
        ("live teacher", "live", "plain 64", None),
        ("live teacher", "live", "helped 64", None),
        ("kept signals", "kept", "helped 64", None),
    ]
    return [
        *lines,
        *(
            contest.figure(f"{pair}, {name}, per padded token", of=of, against=against, target=goal, per="tokens")
            for name, of, against, goal in lengths
            if against in contest.laps and of in contest.laps
        ),
    ]


def both_epochs(recording: Lap, epoch: Lap) -> Lap:
    """Return what two epochs take where the teacher's signals must be recorded first."""
    return Lap(recording.cpu + 2 * epoch.cpu, recording.wall + 2 * epoch.wall, recording.amount + epoch.amount)


def distill_bert(setting: Setting) -> list[Figure]:
    """A BERT-base-shaped teacher and TinyBERT's 4 x 312 student."""
    return distill(setting, "12x768", "4x312", batches=20)


def distill_small(setting: Setting) -> list[Figure]:
    """A 6-layer teacher of width 384 and a 3-layer student."""
    return distill(setting, "6x384", "3x384", batches=25)


def finetune(setting: Setting) -> list[Figure]:
    """Fine-tuning with labels, 6 x 384, with the dropout that such models come with; a Trainer runs a model in the
    kernel that it is loaded with."""
    batches = 25
    encoded = sample(batches, BATCH)
    tokens = vocabulary(encoded)
    examples = examples_of(split(encoded))
    rows = Rows(
        np.arange(len(examples)), [""] * len(examples), None, np.asarray([example["labels"][0] for example in examples])
    )
    model = own_attention(classifier("6x384", dropout=DROPOUT))
    knobs = TeacherSlice(task_type="classification", steps=batches, batch_size=BATCH, max_length=64, evaluations=0)
    spec = TrainingSpec(
        modules=model,
        epoch=lambda number: replace(planned(number, encoded, knobs), tokens_S=tokens),
        loss=labelled_loss(model, TASK, rows, encoded, 0),
    )
    as_loaded = {"kernel": "sdpa", "dropout": DROPOUT}
    contestants = {
        "Trainer": trainer_loop(classifier("6x384", **as_loaded), label_loss, examples),
        "Trainer tuned": trainer_loop(classifier("6x384", **as_loaded), label_loss, examples, tuned=True),
        "Trainer by hand": trainer_loop(
            classifier("6x384", dropout=DROPOUT), in_bf16(label_loss), examples, tuned=True
        ),
        "ours": ours("bench", spec, knobs, batches),
    }
    if setting.quick:
        del contestants["Trainer"]
    contest = interleave(contestants, setting.repeats, tell=setting.tell)
    whole, token = "fine-tuning 6x384", "fine-tuning 6x384, per padded token"
    goals = {"Trainer": (None, None), "Trainer tuned": (None, 1.25), "Trainer by hand": (1.25, None)}
    goals = {name: goal for name, goal in goals.items() if name in contest.laps}
    return [
        *(contest.figure(whole, of="ours", against=name, target=goal) for name, (goal, _) in goals.items()),
        *(
            contest.figure(token, of="ours", against=name, target=goal, per="tokens")
            for name, (_, goal) in goals.items()
        ),
    ]
