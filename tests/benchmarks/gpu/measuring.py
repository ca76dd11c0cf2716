"""The engine on a GPU: how close fine-tuning comes to the peak of its matrix units, how fast a step of distillation is
beside what a user would write, and how much of its time the GPU computes.

Times are seconds on the wall between two moments at which the GPU has nothing left to do. The plain loop is the one of
the processor's benchmarks; "helped" adds products in TF32, and "by hand" everything in bf16 with fused attention.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from tasks.recipe.slices import IntermediateSlice, TeacherSlice
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import planned
from tasks.training.data.rows import Rows
from tasks.training.distill import inner_spec
from tasks.training.finetune import labelled_loss
from tasks.training.loop import TrainingSpec
from tasks.training.models.attention import own_attention
from tasks.training.models.students import freeze
from tasks.training.objectives.layers import LayerObjective
from tasks.training.precision import store_as_multiplied
from tests.benchmarks.distillation import DROPOUT, TASK, AsEncoded, ours
from tests.benchmarks.measure import Contestant, Figure, Lap, interleave, timed
from tests.benchmarks.models import classifier
from tests.benchmarks.peers import (
    BATCH,
    Pupil,
    examples_of,
    in_bf16,
    inner_loss,
    label_loss,
    plain_loop,
    trainer_loop,
)
from tests.benchmarks.sentences import FIRST_WORD, LAST_WORD, sample, split
from tests.benchmarks.setting import Setting

LARGE, FULL = 256, 128
"""Rows and tokens of a batch with which the peak is approached."""
SIZE = 8192
"""Rows and columns of the matrices whose product shows the peak."""
STEPS = {"tuning": 80, "distillation": 800, "peers": 30}


def gpu_tuning(setting: Setting) -> list[Figure]:
    """Fine-tuning; raises RuntimeError where there is no GPU."""
    return tuning(setting, gpu())


def gpu_distilling(setting: Setting) -> list[Figure]:
    """Distillation; raises RuntimeError where there is no GPU."""
    return distilling(setting, gpu())


def gpu() -> torch.device:
    """Return the GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("there is no GPU that torch can use")
    return torch.device("cuda")


def peak(place: torch.device) -> Contestant:
    """Return a contestant that multiplies large matrices in bf16; a unit is a GFLOP."""
    left, right = (torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device=place) for _ in range(2))

    def once() -> Lap:
        with timed(30 * 2e-9 * SIZE**3) as lap:
            for _ in range(30):
                left @ right
        return lap

    return once


def operations_of(model: Any, place: torch.device) -> float:
    """Return the GFLOP of matrix products of a forward and backward pass over a full batch."""
    ids_BT = torch.randint(FIRST_WORD, LAST_WORD, (LARGE, FULL), device=place)
    labels_B = torch.arange(LARGE, device=place) % 2
    with FlopCounterMode(display=False) as counter, torch.autocast("cuda", torch.bfloat16):
        model(input_ids=ids_BT, labels=labels_B).loss.backward()
    model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) * 1e-9


def full_rows(count: int) -> Encoded:
    """Return rows of random words that all have the full length."""
    ids_S = np.random.default_rng(0).integers(FIRST_WORD, LAST_WORD, count * FULL).astype(np.int32)
    return Encoded(ids_S, np.zeros_like(ids_S), np.arange(count + 1, dtype=np.int64) * FULL)


def tuning(setting: Setting, place: torch.device) -> list[Figure]:
    """Fine-tuning BERT-base on full batches, as a share of the peak that this GPU shows in the same run."""
    encoded = full_rows(LARGE * STEPS["tuning"])
    count = encoded.answers
    rows = Rows(np.arange(count), [""] * count, None, np.arange(count) % 2)
    contestants: dict[str, Contestant] = {"peak": peak(place)}
    for name, dropout in (("ours", 0.0), ("ours, dropout", DROPOUT)):
        model = own_attention(classifier("12x768", dropout=dropout).to(place))
        amount = operations_of(model, place)
        knobs = TeacherSlice(
            task_type="classification",
            steps=STEPS["tuning"],
            batch_size=LARGE,
            batch_tokens=LARGE * FULL,
            max_length=FULL,
            evaluations=0,
        )
        spec = TrainingSpec(
            modules=model,
            epoch=partial(planned, encoded=encoded, knobs=knobs),
            loss=labelled_loss(model, TASK, rows, encoded, 0),
            repeats=True,
        )
        contestants[name] = ours("bench", spec, knobs, STEPS["tuning"] * amount, place)
    few = examples_of(split(full_rows(LARGE * 10)))
    own = classifier("12x768", kernel="sdpa").to(place)
    contestants["Trainer by hand"] = trainer_loop(
        own, in_bf16(label_loss, "cuda"), few, tuned=True, size=LARGE, unit=amount, on_cpu=False
    )
    contest = interleave(contestants, setting.repeats, tell=setting.tell)
    top = 1e-3 / min(lap.per_unit("wall") for lap in contest.laps["peak"])
    figure = partial(contest.figure, clock="wall", note=f"peak {top:.0f} TFLOP/s")
    name = f"fine-tuning 12x768, {LARGE} x {FULL}"
    return [
        figure(f"{name}, share of the peak", of="ours", against="peak", target=0.4),
        figure(f"{name}, dropout {DROPOUT}, share of the peak", of="ours, dropout", against="peak", target=None),
        figure(name, of="ours", against="Trainer by hand", target=None),
    ]


def distilling(setting: Setting, place: torch.device) -> list[Figure]:
    """A step of task distillation of BERT-base with a live teacher, 32 sentences as long as SST-2's."""
    encoded, few = sample(100, BATCH), examples_of(split(sample(STEPS["peers"], BATCH)))
    knobs = IntermediateSlice(
        task_type="classification", steps=STEPS["distillation"], batch_size=BATCH, max_length=64, evaluations=0
    )
    few_steps = knobs.model_copy(update={"steps": STEPS["peers"]})
    teacher, own_teacher = (freeze(classifier("12x768").to(place)) for _ in range(2))
    fast_teacher = freeze(classifier("12x768").to(place))
    loss = inner_loss(teacher)

    def pupil() -> Pupil:
        return Pupil(classifier("4x312"), teacher.config.hidden_size).to(place)

    matcher = LayerObjective(classifier("4x312").to(place), own_teacher, knobs.matching)
    store_as_multiplied(own_teacher, "auto")
    varied = AsEncoded(None, SimpleNamespace(pad_token_id=0), 64, 0, tokens=encoded)  # type: ignore[arg-type]
    spec = inner_spec(matcher, varied, knobs, None, place)
    contestants: dict[str, Contestant] = {
        "plain 64": plain_loop(pupil(), loss, few, 64, place=place),
        "helped 64": plain_loop(pupil(), loss, few, 64, helped=True, place=place),
        "Trainer by hand": trainer_loop(
            pupil(), in_bf16(inner_loss(fast_teacher), "cuda"), few, tuned=True, on_cpu=False
        ),
        "single": ours("bench", replace(spec, repeats=False), few_steps, STEPS["peers"], place),
        "ours": ours("bench", spec, knobs, knobs.steps or 0, place),
    }
    contest = interleave(contestants, setting.repeats, tell=setting.tell)
    contest.laps["busy"] = [
        Lap(wall=seconds, amount=knobs.steps or 1) for seconds in [computing(contestants["ours"])] * setting.repeats
    ]
    figure = partial(contest.figure, clock="wall")
    pair = "12x768 to 4x312 on a GPU, live teacher"
    milliseconds = {name: 1e3 * min(lap.per_unit("wall") for lap in laps) for name, laps in contest.laps.items()}
    setting.tell(", ".join(f"{name} {value:.2f} ms" for name, value in milliseconds.items()))
    return [
        figure(pair, of="ours", against="plain 64", target=10.0),
        figure(pair, of="ours", against="helped 64", target=None),
        figure(pair, of="ours", against="Trainer by hand", target=None),
        figure(f"{pair}, repeated steps", of="ours", against="single", target=None),
        figure(f"{pair}, share of the time in which the GPU computes", of="ours", against="busy", target=None),
    ]


def computing(contestant: Contestant) -> float:
    """Return for how many seconds the GPU computes in a lap, kernels and copies added up."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        contestant()
    return sum(event.self_device_time_total for event in found.key_averages()) * 1e-6
