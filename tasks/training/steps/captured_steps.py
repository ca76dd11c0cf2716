"""Steps of a training that a GPU repeats: captured once for each size of a batch, and replayed for all others.

A step of a small student has about a thousand operations. To start them one by one takes longer than to compute them,
so that a GPU would wait most of the time; a captured step is started as a whole. Source: CUDA graphs, Gray 2019,
Getting Started with CUDA Graphs, NVIDIA Technical Blog.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tasks.training.steps.batch_loss import BatchInputs

MOST = 48
"""Captured sizes of one training: widths of 8, 16, … 128 tokens, with and without padding, leave room for others."""
TakeStep = Callable[[BatchInputs], Tensor]
"""Takes a whole step on a batch, from the forward pass to the optimizer, and returns its loss, a scalar."""


class Recorder(Protocol):
    """Records steps, so that they can be repeated."""

    def __call__(self, step: TakeStep, held: BatchInputs) -> tuple[Callable[[], None], Tensor]:
        """Record a step on tensors that stay where they are; return a function that repeats it, and its loss."""

    def release(self) -> None:
        """Give back the memory of steps that nobody repeats any more, and forget a step that was broken off."""


@dataclass(frozen=True)
class CapturedStep:
    """A step that was captured: its inputs and its loss have places of their own."""

    inputs: BatchInputs
    repeat: Callable[[], None]
    loss: Tensor

    def take(self, given: BatchInputs) -> Tensor:
        """Take the step on another batch of the same sizes."""
        self.inputs.fill(given)
        self.repeat()
        return self.loss.clone()


class CapturedSteps:
    """Takes the steps of a training. The first batch of each size is computed as it is: it makes what later ones have,
    such as the moments of the optimizer. The second one is captured.

    A step that cannot be captured, because it must know a value on the host or draws random numbers there, is reported
    once; from then on, every operation is started by itself. The same happens where captured steps, which keep their
    memory, leave too little to others.
    """

    def __init__(self, step: TakeStep, tell: Callable[[str], None], record: Recorder) -> None:
        self.step, self.tell, self.record = step, tell, record
        self.seen, self.captured, self.is_refused = Counter[Hashable](), dict[Hashable, CapturedStep](), False

    def take(self, given: BatchInputs, phase: int) -> Tensor:
        """Take one step in a phase of the training, and return its loss."""
        sizes = phase, given.sizes()
        self.seen[sizes] += 1
        if self.seen[sizes] > 1 and sizes not in self.captured and len(self.captured) < MOST and not self.is_refused:
            self.capture(sizes, given)
        found = self.captured.get(sizes)
        return self.take_single(given) if found is None else found.take(given)

    def take_single(self, given: BatchInputs) -> Tensor:
        """Take a step operation by operation; once more without captured steps if they left too little memory: weights
        change at the end of a step alone."""
        try:
            return self.step(given)
        except torch.OutOfMemoryError:
            if not self.captured:
                raise
        self.captured.clear()
        self.record.release()
        self.refuse("they need more memory than the GPU has")
        return self.step(given)

    def capture(self, sizes: Hashable, given: BatchInputs) -> None:
        """Capture the step on a batch, without taking it."""
        held, random_before = given.copied(), host_random_states()
        try:
            captured = CapturedStep(held, *self.record(self.step, held))
        except RuntimeError as error:
            return self.refuse(str(error).splitlines()[0])
        if host_random_states() != random_before:
            restore_random_states(random_before)
            return self.refuse("they draw random numbers on the host")
        self.captured[sizes] = captured

    def refuse(self, reason: str) -> None:
        """Capture nothing any more, and say why."""
        self.is_refused = True
        self.tell(
            f"the steps of this training cannot be captured, so a GPU waits for each of their operations: {reason}"
        )


def host_random_states() -> tuple[bytes, Any]:
    """Return the states of torch's and Python's random numbers on the host."""
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def restore_random_states(states: tuple[bytes, Any]) -> None:
    """Set the random numbers on the host back to a state."""
    torch.set_rng_state(torch.frombuffer(bytearray(states[0]), dtype=torch.uint8))
    random.setstate(states[1])


class GraphRecorder:
    """Records steps as CUDA graphs, which share the memory of their intermediate results."""

    def __init__(self, place: torch.device, optimizer: torch.optim.Optimizer) -> None:
        self.place, self.optimizer, self.pool = place, optimizer, torch.cuda.graph_pool_handle()

    def __call__(self, step: TakeStep, held: BatchInputs) -> tuple[Callable[[], None], Tensor]:
        """Record a step. Raises RuntimeError if it waits for the GPU."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.place)
        generator = torch.cuda.default_generators[self.place.index or 0]
        drawn = generator.clone_state()
        try:
            # Other threads may copy to the host meanwhile: a checkpoint is written beside the training.
            with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
                loss = step(held)
        except RuntimeError:
            self.optimizer.zero_grad(set_to_none=True)
            generator.graphsafe_set_state(drawn)  # the one that took part in a broken capture draws no more numbers
            raise
        return graph.replay, loss

    def release(self) -> None:
        """Forget the gradients of a step that was broken off, and give back the memory of graphs that are gone."""
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def own_stream(place: torch.device) -> Iterator[None]:
    """Run all operations of a block on a stream of their own on a GPU: the default one cannot be captured."""
    if place.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(place)
    stream.wait_stream(torch.cuda.current_stream(place))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(place).wait_stream(stream)


def make_capturable(optimizer: torch.optim.Optimizer, place: torch.device) -> None:
    """Let an optimizer read its learning rate where a captured step finds the new one: on the GPU."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]), device=place)
        group["capturable"] = True


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the learning rate of a group of parameters, on the GPU if it is there."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
