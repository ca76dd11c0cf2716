"""Who takes part in a comparison of libraries: our engine, a Trainer whose loss somebody has written, TextBrewer and
torchdistill. Each gets the same lesson and returns the folder of its student and the time of its training.

TextBrewer (Yang et al. 2020, arXiv:2002.12620) and torchdistill (Matsubara 2021, arXiv:2011.12913) compute in float32;
in bfloat16 by hand they are what somebody makes of them who puts their training under autocast. TextBrewer compares the
attention that a model shows, which in transformers is the probabilities; ours are scores. Of torchdistill, a model's
layers reach a loss by hooks, and what transformers' attention shows is no layer's output: soft targets alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments

from tasks.training.distill import distill_intermediate, distill_prediction
from tasks.training.precision import is_faster_in_bf16
from tests.benchmarks.libraries.lesson import Batch, Lesson, inputs_of
from tests.benchmarks.measure import Lap, timed
from tests.benchmarks.peers import Distiller, Pupil, in_bf16, inner_loss
from tests.benchmarks.types.school import CPU
from tests.benchmarks.types.trainers import divergence_from, settings_of

Learned = tuple[Path, Lap]
Learn = Callable[[Lesson], Learned]


@dataclass(frozen=True)
class Contestant:
    """A way to train; ``layers`` is None where it cannot learn inner layers."""

    answers: Learn
    layers: Learn | None = None


def our_answers(kept: Path, share: Lap, lesson: Lesson) -> Learned:
    """Train on the answers that the teacher gave once; the lap has this student's share of them."""
    folder, steps = lesson.school.scratch / f"{lesson.name}-ours", len(lesson.batches)
    with timed(steps) as lap:
        distill_prediction(lesson.school.job(folder.name, lesson.knobs, start=lesson.start, answers=kept))
    return folder, Lap(lap.cpu + share.cpu, lap.wall + share.wall, lap.amount)


def our_layers(lesson: Lesson) -> Learned:
    """Train the first phase with the teacher beside the student."""
    folder = lesson.school.scratch / f"{lesson.name}-ours"
    with timed(len(lesson.batches)) as lap:
        distill_intermediate(lesson.school.job(folder.name, lesson.knobs, start=lesson.start))
    return folder, lap


def trainer_answers(lesson: Lesson) -> Learned:
    """Train on a live teacher's answers by a Trainer with its loss in bfloat16."""
    teacher, student = lesson.pair()
    lap = trained_by_trainer(lesson, student, divergence_from(teacher, lesson.answers, False))
    return lesson.save(student, "trainer"), lap


def trainer_layers(lesson: Lesson) -> Learned:
    """Train on a live teacher's hidden states and attention by a Trainer."""
    teacher, student = lesson.pair(inner=True)
    pupil = Pupil(student, teacher.config.hidden_size)
    lap = trained_by_trainer(lesson, pupil, inner_loss(teacher))
    return lesson.save(student, "trainer"), lap


def trained_by_trainer(lesson: Lesson, model: nn.Module, loss: Any) -> Lap:
    """Run a Trainer over the lesson's batches: to it, each is one example."""
    options = settings_of(lesson.school, lesson.knobs.seed) | {
        "per_device_train_batch_size": 1,
        "max_steps": len(lesson.batches),
        "max_grad_norm": lesson.knobs.clip,
    }
    optimizer = lesson.optimizer(model.parameters())
    with timed(len(lesson.batches)) as lap:
        Distiller(
            model,
            TrainingArguments(
                str(lesson.scratch("trainer")),
                **options,
                train_sampling_strategy="sequential",
                remove_unused_columns=False,
            ),
            own_loss=in_bf16(loss) if is_faster_in_bf16(torch.device("cpu")) else loss,
            train_dataset=lesson.batches,
            data_collator=lambda examples: examples[0],
            optimizers=(optimizer, LambdaLR(optimizer, lesson.share())),
        ).train()
    return lap


def textbrewer_answers(bf16: bool, lesson: Lesson) -> Learned:
    """Train on a live teacher's answers by TextBrewer."""
    return taught_by_textbrewer(lesson, bf16, textbrewer_settings(lesson), lesson.pair(), shown_answers)


def textbrewer_settings(lesson: Lesson) -> dict[str, Any]:
    """Return TextBrewer's configuration of softened answers and labels; its cross entropy is not multiplied by the
    squared temperature, so its weight is."""
    knobs = lesson.answers
    return {
        "temperature": knobs.temperature,
        "kd_loss_type": "ce",
        "kd_loss_weight": (1 - knobs.hard_weight) * knobs.temperature**2,
        "hard_label_weight": knobs.hard_weight,
    }


def textbrewer_layers(bf16: bool, lesson: Lesson) -> Learned:
    """Train on a live teacher's hidden states and attention by TextBrewer, over the layers that ours compares; it maps
    each pair of states of other widths by itself."""
    teacher, student = lesson.pair(inner=True)
    ours, theirs = student.config.num_hidden_layers, teacher.config.num_hidden_layers
    widths = student.config.hidden_size, teacher.config.hidden_size
    maps: dict[str, Any] = {} if widths[0] == widths[1] else {"proj": ["linear", *widths]}
    hidden = [
        {"layer_S": m, "layer_T": m * theirs // ours, "feature": "hidden", "loss": "hidden_mse", "weight": 1, **maps}
        for m in range(ours + 1)
    ]
    attention = [
        {"layer_S": m, "layer_T": (m + 1) * theirs // ours - 1, "feature": "attention", "loss": "attention_mse"}
        for m in range(ours)
    ]
    given = {"intermediate_matches": [*hidden, *({**one, "weight": 1} for one in attention)]}
    return taught_by_textbrewer(lesson, bf16, given, (teacher, student), shown_layers)


def shown_answers(batch: Batch, outputs: Any) -> dict[str, Any]:
    """Return what TextBrewer compares of a model's outputs; a teacher gets no labels, and shows no loss."""
    return {"logits": outputs.logits} | ({} if outputs.loss is None else {"losses": outputs.loss})


def shown_layers(batch: Batch, outputs: Any) -> dict[str, Any]:
    """Return the layers that TextBrewer compares, padding left out by its own mask."""
    return {
        "hidden": outputs.hidden_states,
        "attention": outputs.attentions,
        "inputs_mask": batch["attention_mask"],
    }


def taught_by_textbrewer(
    lesson: Lesson, bf16: bool, given: dict[str, Any], pair: tuple[Any, Any], shown: Callable[..., dict[str, Any]]
) -> Learned:
    """Run TextBrewer's loop for as many steps as there are batches."""
    student = pair[1]
    inner = {"output_hidden_states": True, "output_attentions": True} if shown is shown_layers else {}
    fed = [{"teacher": inputs_of(one), "student": inputs_of(one) if inner else one} for one in lesson.batches]
    name, steps = "textbrewer-bf16" if bf16 else "textbrewer", len(fed)
    distiller = textbrewer_of(lesson.scratch(name), steps, given, pair, shown)
    with timed(steps) as lap, distiller, narrow(bf16):
        distiller.train(
            lesson.optimizer(student.parameters()),
            fed,
            num_steps=steps,
            scheduler_class=LambdaLR,
            scheduler_args={"lr_lambda": lesson.share()},
            max_grad_norm=lesson.knobs.clip,
            **inner,
        )
    return lesson.save(student, name), lap


def textbrewer_of(
    scratch: Path, steps: int, given: dict[str, Any], pair: tuple[Any, Any], shown: Callable[..., dict[str, Any]]
) -> Any:
    """Return TextBrewer's trainer; it saves the student at its last step."""
    from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

    setting = TrainingConfig(device="cpu", output_dir=str(scratch), ckpt_steps=steps)
    return GeneralDistiller(setting, DistillationConfig(**given), *pair, shown, shown)


def torchdistill_answers(bf16: bool, lesson: Lesson) -> Learned:
    """Train on a live teacher's answers by torchdistill's loop, as its examples write it."""
    teacher, student = lesson.pair()
    box = torchdistill_of(lesson, teacher, student)
    name = "torchdistill-bf16" if bf16 else "torchdistill"
    with timed(len(lesson.batches)) as lap, narrow(bf16):
        box.pre_epoch_process(epoch=0)
        for batch in lesson.batches:
            box.pre_forward_process()
            loss = box.forward_process(inputs_of(batch), batch["labels"], {})
            box.post_forward_process(loss=loss)
        box.post_epoch_process()
    box.clean_modules()
    return lesson.save(student, name), lap


def torchdistill_of(lesson: Lesson, teacher: Any, student: Any) -> Any:
    """Return torchdistill's trainer."""
    from torchdistill.core.distillation import get_distillation_box

    return get_distillation_box(teacher, student, {}, torchdistill_settings(lesson), CPU, [], False, 1.0)


def torchdistill_settings(lesson: Lesson) -> dict[str, Any]:
    """Return torchdistill's configuration; without labels its divergence has no squared temperature."""
    from torchdistill.optim.registry import register_optimizer

    knobs = lesson.answers
    register_optimizer(lambda learned, **_: lesson.optimizer(learned), key="the optimizer of all")
    model = {"forward_proc": "forward_batch_only_as_kwargs", "forward_hook": {"output": ["classifier"]}}
    of_logits = {
        f"{who}_module_{part}": value
        for who in ("student", "teacher")
        for part, value in (("path", "classifier"), ("io", "output"))
    }
    soft = {
        "criterion": {
            "key": "KDLoss",
            "kwargs": {**of_logits, "temperature": knobs.temperature, "alpha": knobs.hard_weight},
        },
        "weight": 1.0 if knobs.hard_weight else knobs.temperature**2,
    }
    return {
        "num_epochs": 1,
        "teacher": {**model, "requires_grad": False},
        "student": model,
        "criterion": {"key": "WeightedSumLoss", "kwargs": {"sub_terms": {"soft": soft}}},
        "optimizer": {"key": "the optimizer of all", "kwargs": {}, "max_grad_norm": knobs.clip},
        "scheduler": {"key": "LambdaLR", "kwargs": {"lr_lambda": lesson.share()}, "scheduling_step": 1},
    }


def narrow(bf16: bool) -> Any:
    """Return the arithmetic of a training: bfloat16 if asked for and there, else float32."""
    return torch.autocast("cpu", torch.bfloat16) if bf16 and is_faster_in_bf16(torch.device("cpu")) else nullcontext()


OTHERS: dict[str, Contestant] = {
    "Trainer, bf16 by hand": Contestant(trainer_answers, trainer_layers),
    "TextBrewer": Contestant(partial(textbrewer_answers, False), partial(textbrewer_layers, False)),
    "TextBrewer, bf16 by hand": Contestant(partial(textbrewer_answers, True), partial(textbrewer_layers, True)),
    "torchdistill": Contestant(partial(torchdistill_answers, False)),
    "torchdistill, bf16 by hand": Contestant(partial(torchdistill_answers, True)),
}
