"""The training loop, shared by all stages that train: they differ in their loss.

Source of the optimizer settings: Loshchilov, Hutter 2017, AdamW, arXiv:1711.05101.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from tasks.engine.heap import Heap
from tasks.engine.job import Job
from tasks.errors import Interrupted, ModelError
from tasks.methods.losses.means import Loss
from tasks.recipe.training import SeededTraining
from tasks.training import checkpoints
from tasks.training.checkpoints import Progress
from tasks.training.data.epochs import Epoch, Epochs, Indices
from tasks.training.distributed import ProcessGroup, join
from tasks.training.models.dropout import MASKS, cheap_masks
from tasks.training.models.phases import Phase, Phases
from tasks.training.models.snapshots import copy_snapshot, require_steps, write_snapshot
from tasks.training.models.sparse_embedding import SparseEmbedding, used_rows_only
from tasks.training.precision import arithmetic
from tasks.training.steps.batch_loss import BatchInputs, BatchLoss
from tasks.training.steps.captured_steps import CapturedSteps, GraphRecorder, make_capturable, own_stream, set_rate


@dataclass
class TrainingSpec:
    """The definition of a training: the modules to train, the epoch of a given number, the loss of a batch, and a score
    (higher is better)."""

    modules: nn.Module
    epoch: Callable[[int], Epoch]
    loss: Callable[[Indices], Loss]
    score: Callable[[], float] | None = None
    pad: int = 0
    """Id of the token that pads batches."""
    begin: Callable[[int, int], None] = lambda step, total: None
    """Called before every step with its number and the number of all steps."""
    after_step: Sequence[Callable[[int], None]] = ()
    """Called in this order, without gradients, after every optimizer step with the number of steps taken, such as to
    mask weights again. A hook depends on this number and on the state of ``modules`` alone, so that all processes do
    the same, and a resumed training too. On a CPU the input embedding may hold nothing but the rows in use
    (``sparse_embedding.py``): for a hook that changes it, plan epochs without ``tokens_S``."""
    snapshots: Mapping[str, int] = field(default_factory=dict)
    """Names of snapshots, each with the number of steps after which it is taken; 0: before the first."""
    phases: Callable[[int], Sequence[Phase]] = lambda total: [Phase(total)]
    """The phases of a training of so many steps: by default one, in which all parameters learn."""
    tally: Callable[[Indices], dict[str, int]] = lambda indices: {}
    """Counts of a batch by name; their sums over all steps, also over those before a resume, are facts."""
    facts: Callable[[Epoch], Mapping[str, object]] = lambda last: {}
    """Further facts for result tables, computed from the last planned epoch."""
    optimizer: Callable[[nn.Module, SeededTraining], torch.optim.Optimizer] | None = None
    """Makes another optimizer than AdamW; it divides gradients by its ``grad_scale``."""
    repeats: bool = False
    """Whether all steps of a phase do the same with batches of the same sizes, whatever ``begin`` and ``after_step``
    did before; a GPU then repeats them (``captured_steps.py``), if ``loss`` is a ``BatchLoss``."""


def train(job: Job, knobs: SeededTraining, spec: TrainingSpec, place: torch.device) -> dict[str, object]:
    """Train to the end, from the newest checkpoint if there is one; return facts. The modules end up with the best
    weights, or with the last ones if there is no score."""
    epochs = Epochs(spec.epoch, ahead=place.type == "cuda")
    total = knobs.steps or max(1, round(len(epochs.current.batches) * knobs.epochs))
    require_steps(spec.snapshots, total)
    group = join(place)
    with own_stream(place), cpu_optimisations(spec, epochs.current, group, place) as table:
        optimizer = (spec.optimizer or make_optimizer)(spec.modules, knobs)
        progress = checkpoints.load(job.checkpoints, spec.modules, optimizer, job.log)
        if progress.step:
            job.log(f"resuming at step {progress.step:,} of {total:,}")
        run = Run(job, knobs, spec, optimizer, progress, total, group, table)
        run.capture_steps(place)
        run.restore_snapshots()
        with StopSignal() as stop, epochs, run.saver:
            while progress.step < total:
                run.one_step(epochs.at(progress.step, total), place)
                run.keep_watch(stop, place)
        run.phases.finish()
        if spec.score is not None and progress.best_weights:
            spec.modules.load_state_dict(progress.best_weights)
    return {**run.facts(), **spec.facts(epochs.current)}


@contextmanager
def cpu_optimisations(
    spec: TrainingSpec, first: Epoch, group: ProcessGroup, place: torch.device
) -> Iterator[SparseEmbedding | None]:
    """Apply CPU-only optimisations: train only the embedding rows that the text uses, and draw dropout masks in bulk
    instead of one number at a time."""
    with ExitStack() as spared:
        if place.type == "cpu":
            spared.enter_context(cheap_masks(spec.modules))
        # Processes that share a step synchronise tables of a fixed size, which activated rows would change.
        few = place.type == "cpu" and group.size == 1 and first.tokens_S is not None
        yield spared.enter_context(used_rows_only(spec.modules)) if few else None


class Run:
    """A training in progress: one step, and all work between steps."""

    def __init__(
        self,
        job: Job,
        knobs: SeededTraining,
        spec: TrainingSpec,
        optimizer: torch.optim.Optimizer,
        progress: Progress,
        total: int,
        group: ProcessGroup,
        table: SparseEmbedding | None,
    ) -> None:
        self.job, self.knobs, self.spec, self.optimizer = job, knobs, spec, optimizer
        self.progress, self.total, self.group, self.table = progress, total, group, table
        self.phases = Phases(spec.phases(total), total, spec.modules)
        self.after_step = (*([] if table is None else [self.decay_unused_rows]), *spec.after_step)
        self.examples, self.started, self.saved = 0, time.monotonic(), time.monotonic()
        self.losses: list[Tensor] = []
        self.seconds_before, self.saver = progress.seconds, checkpoints.Saver(job.log)
        self.parameters = [value for group in optimizer.param_groups for value in group["params"]]
        self.captured: CapturedSteps | None = None
        self.heap = Heap()

    def capture_steps(self, place: torch.device) -> None:
        """Let a GPU repeat the steps, if all of them do the same."""
        if place.type == "cuda" and self.spec.repeats and self.spec.optimizer is None and self.group.size == 1:
            make_capturable(self.optimizer, place)
            recorder = GraphRecorder(place, self.optimizer)
            self.captured = CapturedSteps(partial(self.step_on_inputs, place), self.job.log, recorder)

    def one_step(self, indices: Indices, place: torch.device) -> None:
        """Take one optimizer step on a batch."""
        if self.progress.step >= self.phases.end:
            self.begin_phase()
        self.spec.modules.train()
        for group in self.optimizer.param_groups:
            set_rate(group, self.rate_now())
        self.spec.begin(self.progress.step, self.total)
        self.prepare(indices.epoch)
        self.losses.append(self.take_step(self.group.share(indices), place))
        self.progress.step += 1
        self.finish_step()
        self.examples += len(indices.rows_B)
        for name, count in self.spec.tally(indices).items():
            self.progress.tallies[name] = self.progress.tallies.get(name, 0) + count

    def take_step(self, indices: Indices, place: torch.device) -> Tensor:
        """Change the weights by a batch, and return its loss."""
        if self.captured is None or self.batch_loss is None:
            return self.descend(partial(self.loss, indices), place)
        with arithmetic(self.knobs.precision, place):
            given = self.batch_loss.read(indices)
        return self.captured.take(given, self.phases.start)

    def step_on_inputs(self, place: torch.device, given: BatchInputs) -> Tensor:
        """Change the weights by the inputs of a batch, and return its loss."""
        assert self.batch_loss is not None
        of = self.batch_loss.of
        return self.descend(lambda: of(given).mean(), place)

    def descend(self, loss: Callable[[], Tensor], place: torch.device) -> Tensor:
        """Compute a loss, update the weights by its gradients, and return it without them."""
        with arithmetic(self.knobs.precision, place):
            computed = loss()
        computed.backward()
        self.update()
        return computed.detach()

    def rate_now(self) -> float:
        """Return the learning rate of the next step."""
        phase = self.phases.end - self.phases.start
        share = rate(self.progress.step - self.phases.start, phase, self.knobs.warmup, self.knobs.schedule)
        return self.knobs.learning_rate * share

    def begin_phase(self) -> None:
        """Begin the phase of the next step, or go on with it after a resume."""
        phase = self.phases.at(self.progress.step, self.optimizer)
        # Gradients are averaged over processes only for parameters that learn when this is called.
        loss = phase.loss or self.spec.loss
        self.loss = self.group.synchronised(self.spec.modules, loss)
        self.batch_loss = loss if isinstance(loss, BatchLoss) else None

    def prepare(self, epoch: Epoch) -> None:
        """Seed the dropout masks of this step, and activate the embedding rows of new tokens."""
        self.group.seed(self.knobs.seed, self.progress.step)
        MASKS.start(self.knobs.seed, self.progress.step, self.group.rank)
        if self.table is not None and epoch.tokens_S is not None:
            self.table.activate(epoch.tokens_S, self.spec.pad, self.optimizer)

    def update(self) -> None:
        """Clip the gradients and update the weights. The fused kernel divides by the norm during the update, which
        saves a pass over the gradients."""
        table = None if self.table is None else self.table.weight
        gradients = [value.grad for value in self.parameters if value.grad is not None and value is not table]
        norm = nn.utils.get_total_norm(gradients if self.table is None else [*gradients, *self.table.touched_rows()])
        self.optimizer.grad_scale = ((norm + 1e-6) / self.knobs.clip).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def finish_step(self) -> None:
        """Call the hooks of a step that was taken, and take the snapshots that are due."""
        with torch.no_grad():
            for hook in self.after_step:
                hook(self.progress.step)
        self.take_snapshots()

    def decay_unused_rows(self, step: int) -> None:
        """Decay the rows of the input embedding that are not in use as the optimizer decayed the others."""
        assert self.table is not None
        decayed = self.optimizer.param_groups[0]
        self.table.after_step(1 - decayed["lr"] * decayed["weight_decay"])

    def restore_snapshots(self) -> None:
        """Copy the checkpoint's snapshots into the output of this attempt; take those of step 0 at the start."""
        if self.group.is_main_process:
            for name, file in self.progress.snapshots.items():
                self.progress.snapshots[name] = copy_snapshot(file, self.job.output, name)
        if not self.progress.step:
            self.take_snapshots()

    def take_snapshots(self) -> None:
        """Write the snapshots of the current step."""
        for name, step in self.spec.snapshots.items():
            if step == self.progress.step and self.group.is_main_process:
                self.progress.snapshots[name] = write_snapshot(self.job.output, name, self.spec.modules)

    def keep_watch(self, stop: StopSignal, place: torch.device) -> None:
        """Report, score, save and stop when due; several processes stop at the same step."""
        step, last = self.progress.step, self.progress.step == self.total
        stop_now = self.group.agree(stop.asked, step, place)
        if len(self.losses) >= 50 or step == self.phases.end:  # no mean is of the losses of two phases
            self.report()
        if self.spec.score is not None and step in evaluation_steps(self.total, self.knobs.evaluations):
            self.evaluate(place)
        due = time.monotonic() - self.saved > self.knobs.checkpoint_minutes * 60
        if (stop_now or due) and not last and self.group.is_main_process:
            self.progress.seconds = self.seconds()
            self.saver.save(self.job.checkpoints, self.spec.modules, self.optimizer, self.progress)
            self.saved = time.monotonic()
        if stop_now and not last:
            self.saver.wait()
            raise Interrupted(
                f"stopped at step {step:,} of {self.total:,}; run the same command again to continue from there"
            )

    def report(self) -> None:
        """Report the mean loss since the last report; raise ModelError if it is not finite."""
        loss = float(self.group.mean(torch.stack(self.losses).mean()))
        self.losses = []
        if not np.isfinite(loss):
            raise ModelError(
                f"the loss became {loss} at step {self.progress.step:,}; lower learning_rate, or set precision: fp32"
            )
        speed = self.examples / max(1e-9, time.monotonic() - self.started)
        self.job.curve(self.progress.step, loss=loss)
        self.job.progress(self.progress.step, self.total, loss=loss, examples_per_s=speed)
        self.heap.watch()

    def evaluate(self, place: torch.device) -> None:
        """Score the held-back rows and store the weights if they are the best so far."""
        assert self.spec.score is not None
        self.spec.modules.eval()
        if self.table is not None:
            self.table.flush_decay()
        score = self.group.found_by_first(self.spec.score, place)
        self.job.curve(self.progress.step, selection_score=score)
        if self.progress.best is None or score > self.progress.best:
            self.progress.best, self.progress.best_step = score, self.progress.step
            self.progress.best_weights = {
                name: value.detach().clone() for name, value in self.spec.modules.state_dict().items()
            }

    def seconds(self) -> float:
        """Return the training time in seconds, without interruptions."""
        return self.seconds_before + time.monotonic() - self.started

    def facts(self) -> dict[str, object]:
        """Return the facts of this training for result tables and gates."""
        seconds = self.seconds()
        facts: dict[str, object] = {"steps": self.total, "train_seconds": round(seconds, 3), **self.progress.tallies}
        if self.progress.best is not None:
            facts |= {"selection_score": self.progress.best, "best_step": self.progress.best_step}
        return facts


class StopSignal:
    """Records SIGTERM and SIGINT in a flag that is read between steps, so that a checkpoint is always of a whole
    step."""

    def __enter__(self) -> StopSignal:
        self.asked = False
        self.before = {number: signal.signal(number, self.ask) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def ask(self, number: int, frame: object) -> None:
        """Record the request to stop."""
        self.asked = True

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def evaluation_steps(total: int, evaluations: int) -> set[int]:
    """Return the steps after which the held-back rows are scored: evenly spaced, the last one included."""
    return {round(total * part / evaluations) for part in range(1, evaluations + 1)} if evaluations else set()


def rate(step: int, total: int, warmup: float, schedule: str) -> float:
    """Return the learning rate of a step as a share of the peak."""
    rising = int(total * warmup)
    if step < rising:
        return (step + 1) / rising
    return 1.0 if schedule == "constant" else (total - step) / max(1, total - rising)


def decayed_and_others(modules: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the parameters that learn: those that decay, and biases and norm weights, which are vectors and do not."""
    learned = [value for value in modules.parameters() if value.requires_grad]
    return [value for value in learned if value.ndim > 1], [value for value in learned if value.ndim <= 1]


def make_optimizer(modules: nn.Module, knobs: SeededTraining) -> torch.optim.Optimizer:
    """Return AdamW."""
    decayed, others = decayed_and_others(modules)
    groups = [{"params": decayed, "weight_decay": knobs.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        groups, lr=knobs.learning_rate, betas=(knobs.beta1, knobs.beta2), eps=knobs.eps, fused=True
    )
