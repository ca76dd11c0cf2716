"""What a user would pick instead: a plain loop after the published recipe, and Hugging Face's Trainer with a
distillation loss.

The plain loop pads to a fixed length and runs the teacher in fp32 beside every step, as TinyBERT's published code does
(Jiao et al. 2019, arXiv:1909.10351); every contest also runs a Trainer on its very batches, to show that it is no straw
man. Losses are means over everything, attention is what ``output_attentions`` gives: less work than ours, never more.

The tuned Trainer has its switches set: bf16, and sentences of like length together. They leave a distillation's teacher
in fp32, because they reach the trained model's forward pass alone. The Trainer "by hand" is what somebody makes of it
who knows: everything in bf16, attention in the kernel that is fastest here; targets are set against it. The plain loop
"helped" is the published code with its own optimizer and with fp32 products that run in bf16, which its user gets by
one line; the allocator's settings are those of every process here. A Trainer's own
sampler groups by so many sentences as there are, which a sample is too small for; both get the batches of a whole
epoch. Shape letters: B batch, T tokens, C classes.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainerCallback, TrainingArguments

from tasks.training.data.batches import plan
from tests.benchmarks.measure import Lap, settle, timed

BATCH = 32
Example = dict[str, list[int]]
Loss = Callable[[nn.Module, dict[str, Tensor]], Tensor]
Collator = Callable[[list[Example]], dict[str, Tensor]]


def examples_of(sentences: Sequence[Sequence[int]]) -> list[Example]:
    """Return sentences as a Trainer's dataset, with labels drawn by position."""
    return [{"input_ids": list(tokens), "labels": [number % 2]} for number, tokens in enumerate(sentences)]


def padding(width: int | None) -> Collator:
    """Return a collator that pads to a fixed width, or to the longest of a batch."""

    def collate(batch: list[Example]) -> dict[str, Tensor]:
        longest = width or max(len(example["input_ids"]) for example in batch)
        ids = [example["input_ids"][:longest] for example in batch]
        ids_BT = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in ids])
        mask_BT = torch.tensor([[1] * len(tokens) + [0] * (longest - len(tokens)) for tokens in ids])
        return {
            "input_ids": ids_BT,
            "attention_mask": mask_BT,
            "labels": torch.tensor([example["labels"][0] for example in batch]),
        }

    return collate


class Pupil(nn.Module):
    """A student with the map from its width to its teacher's, so that both are trained."""

    def __init__(self, student: Any, width: int) -> None:
        super().__init__()
        self.student, self.projection = student, nn.Linear(student.config.hidden_size, width)

    def forward(self, **inputs: Tensor) -> Any:
        return self.student(**inputs)


def inner_loss(teacher: Any) -> Loss:
    """Return the loss of TinyBERT's first phase: squared differences of mapped hidden states and attentions."""

    def loss(pupil: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            theirs = teacher(**inputs, output_hidden_states=True, output_attentions=True)
        ours = pupil(**inputs, output_hidden_states=True, output_attentions=True)
        layers, step = len(ours.attentions), len(theirs.attentions) / len(ours.attentions)
        total = torch.zeros(())
        for m in range(layers + 1):
            total = total + F.mse_loss(pupil.projection(ours.hidden_states[m]), theirs.hidden_states[int(m * step)])
        for m in range(layers):
            total = total + F.mse_loss(ours.attentions[m], theirs.attentions[int((m + 1) * step) - 1])
        return total

    return loss


def label_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the cross entropy against labels."""
    return model(**batch).loss


class BertAdam(torch.optim.Optimizer):
    """The optimizer of BERT's and TinyBERT's published code: Adam without correction of its bias, decoupled weight
    decay, and gradients clipped tensor by tensor (Devlin et al. 2018, arXiv:1810.04805)."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6, "decay": 0.01, "clip": 1.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Change every tensor that has a gradient."""
        for group in self.param_groups:
            for tensor in (one for one in group["params"] if one.grad is not None):
                state = self.state[tensor]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(tensor), torch.zeros_like(tensor)
                nn.utils.clip_grad_norm_([tensor], group["clip"])
                first, second = group["betas"]
                state["mean"].mul_(first).add_(tensor.grad, alpha=1 - first)
                state["square"].mul_(second).addcmul_(tensor.grad, tensor.grad, value=1 - second)
                change = state["mean"] / (state["square"].sqrt() + group["eps"]) + group["decay"] * tensor
                tensor.add_(change, alpha=-group["lr"])


@contextmanager
def products_in_bf16() -> Iterator[None]:
    """Let fp32 products run in bf16 inside the block, by the one line that a user of published code could add."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def plain_loop(
    model: nn.Module,
    loss: Loss,
    examples: list[Example],
    width: int,
    *,
    helped: bool = False,
    place: torch.device | None = None,
) -> Callable[[], Lap]:
    """Return a contestant: a handwritten loop over batches of one fixed width, in the order given; one unit is a
    batch. ``helped``: published code with its own optimizer, and with products in bf16."""
    optimizer = BertAdam(model.parameters()) if helped else torch.optim.AdamW(model.parameters(), lr=1e-4)
    collate = padding(width)

    def once() -> Lap:
        model.train()
        with (
            products_in_bf16() if helped else nullcontext(),
            timed(len(examples) / BATCH, len(examples) * width) as lap,
        ):
            for start in range(0, len(examples), BATCH):
                batch = collate(examples[start : start + BATCH])
                if place is not None:
                    batch = {name: values.to(place) for name, values in batch.items()}
                loss(model, batch).backward()
                if not helped:  # that optimizer clips by itself
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        return lap

    return once


def counting(collate: Collator, lap: Lap) -> Collator:
    """Return a collator that adds the padded tokens of its batches to a lap."""

    def counted(batch: list[Example]) -> dict[str, Tensor]:
        made = collate(batch)
        lap.tokens += made["input_ids"].numel()
        return made

    return counted


def in_bf16(loss: Loss, device: str = "cpu") -> Loss:
    """Return a loss whose every matrix product runs in bf16."""

    def narrow(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            return loss(model, batch)

    return narrow


def in_batches_of_like_length(examples: list[Example], size: int = BATCH) -> list[Example]:
    """Return examples in the order in which an epoch grouped by length would pass them."""
    lengths_N = np.asarray([len(example["input_ids"]) for example in examples])
    batches = plan(lengths_N, size=size, tokens=10**9, seed=0, epoch=0)
    return [examples[row] for batch in batches for row in batch]


class Clocked(TrainerCallback):
    """Times a Trainer from its first step to its last, its set-up left out."""

    def __init__(self, lap: Lap) -> None:
        self.lap = lap

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        gc.collect()
        settle()
        self.lap.wall, self.lap.cpu = -time.perf_counter(), -time.process_time()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        settle()
        self.lap.wall += time.perf_counter()
        self.lap.cpu += time.process_time()


class Distiller(Trainer):
    """The subclass that everyone writes: a Trainer with another loss."""

    def __init__(self, *given: Any, own_loss: Loss, **named: Any) -> None:
        super().__init__(*given, **named)
        self.own_loss = own_loss

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the loss of a batch."""
        return self.own_loss(model, inputs)


def trainer_loop(
    model: nn.Module,
    loss: Loss,
    examples: list[Example],
    *,
    width: int | None = None,
    tuned: bool = False,
    size: int = BATCH,
    unit: float = 1.0,
    on_cpu: bool = True,
) -> Callable[[], Lap]:
    """Return a contestant: one epoch of a Trainer with its defaults, or with its switches set (sentences of like length
    together, bf16). ``unit`` is the work of one batch of ``size``."""
    better = {"train_sampling_strategy": "sequential", "bf16": True} if tuned else {}
    ordered = in_batches_of_like_length(examples, size) if tuned else examples

    def once() -> Lap:
        lap = Lap(amount=unit * len(examples) / size)
        with tempfile.TemporaryDirectory() as folder:
            options = TrainingArguments(
                folder,
                per_device_train_batch_size=size,
                num_train_epochs=1,
                learning_rate=1e-4,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=on_cpu,
                remove_unused_columns=False,
                dataloader_pin_memory=False,
                logging_strategy="no",
                **better,
            )
            trainer = Distiller(
                model,
                options,
                own_loss=loss,
                train_dataset=ordered,
                data_collator=counting(padding(width), lap),
                callbacks=[Clocked(lap)],
            )
            trainer.train()
        return lap

    return once
