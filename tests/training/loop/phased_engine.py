"""An engine with one more job, ``phased``: a short training with masks, snapshots and phases at once.

Run by ``python -m tests.training.loop.phased_engine JOB.json``, or by torchrun.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from safetensors.torch import save_file
from torch import nn

from tasks.engine.job import Job
from tasks.training.__main__ import main
from tasks.training.jobs import JOBS
from tasks.training.loop import TrainingSpec, train
from tasks.training.models.phases import Phase
from tests.training.loop.short_training import CPU, OFTEN, model, spec


def phased(job: Job) -> dict[str, Any]:
    """Train, with a checkpoint after every step, and write the weights."""
    learned = model(layers=2, dropout=job.values["dropout"])
    knobs = SimpleNamespace(**OFTEN.__dict__ | {"steps": job.values["steps"]})
    facts = train(job, knobs, everything(job, learned), CPU)
    weights = {name: value.clone() for name, value in learned.state_dict().items()}
    save_file(weights, job.output / "model.safetensors")
    return facts


def everything(job: Job, learned: Any) -> TrainingSpec:
    """Return a training of three phases, with masks and a snapshot in its second phase."""
    inner: nn.Linear = learned.bert.encoder.layer[1].intermediate.dense
    mask = inner.weight.detach().abs() > inner.weight.detach().abs().median()

    def apply(step: int) -> None:
        inner.weight *= mask
        job.log(f"step {step}")

    def phases(total: int) -> list[Phase]:
        rest = ("bert.encoder", "bert.pooler", "classifier")
        return [
            Phase(total // 3, lambda name: name.startswith(rest)),
            Phase(total // 3, lambda name: name.startswith(("bert.embeddings", "classifier"))),
            Phase(total - 2 * (total // 3)),
        ]

    snapshots = {"start": 0, "rewind": job.values["steps"] // 2}
    return spec(learned, few=True, after_step=[apply], snapshots=snapshots, phases=phases)


if __name__ == "__main__":
    JOBS["phased"] = phased
    raise SystemExit(main())
