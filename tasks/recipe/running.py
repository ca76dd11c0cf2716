"""Recipe sections on the report, the resources and the costs of a run."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.knobs import Knobs, runtime_knob

THREADS_ALONE = 4
"""One number for all machines. On one or two cores, four threads cost little: 2 % (float32) to 24 % (bf16) more
processor time than one thread, and no more than two threads (6 x 384, measured on two cores)."""


STAGE_HOURS = 12.0
"""Default limit of a stage in hours on the clock: several times what a training of the shelf takes on a GPU, and far
less than the weekend of an instance that hangs."""


class Report(Knobs):
    """Contents of a run's page; never part of a key."""

    texts: bool = runtime_knob(
        True, "Display the texts on which student and teacher disagree; false if they must not leave the store."
    )


class Resources(Knobs):
    """Cores, threads and workers of a run. Threads are part of keys, because another number of threads changes the
    order of summation."""

    cores: int | None = runtime_knob(
        None, "Maximum number of cores used by stages at once; empty: all cores available to this process.", ge=1
    )
    threads: int = Field(
        1,
        ge=1,
        le=256,
        description="Threads of a stage that runs in parallel with others of its kind: students, dropped models, "
        "scores, exports.",
    )
    threads_alone: int = Field(
        THREADS_ALONE,
        ge=1,
        le=256,
        description="Threads of a stage on which the others depend: pretraining, teacher, its predictions and "
        "layers, general distillation.",
    )
    gpu_pool: Literal["prefer", "require", "ignore"] = runtime_knob(
        "prefer",
        "Stages that run models, where the deployment has a pool of GPU workers: prefer sends them there, and computes "
        "them in the run itself if no worker is alive; require stops the run instead, as a run does whose pool starts "
        "containers and whose recipe says nothing; ignore sends nothing.",
    )
    worker_seconds: float = runtime_knob(
        30.0,
        "Seconds for which a run waits for a live worker of that pool; 900 for a pool that starts containers.",
        ge=0,
        le=86400,
    )
    stage_hours: float = runtime_knob(
        STAGE_HOURS,
        "Hours on the clock after which a stage is ended, as one that hangs; its checkpoint stays. A worker may allow "
        "less (LIMBECK_STAGE_HOURS).",
        gt=0,
        le=8784,
    )


class Budget(Knobs):
    """Limits on a run's spending, checked before each stage that would compute, and while it does. Empty: no limit."""

    dollars: float | None = runtime_knob(None, "Dollars for the instance's hours, from the run's start on.", gt=0)
    kwh: float | None = runtime_knob(None, "kWh of the run's stages, as far as known.", gt=0)
    hours: float | None = runtime_knob(None, "Hours of the clock, from the run's start on.", gt=0)
    by_estimate: bool = runtime_knob(
        True,
        "Refuse stages whose estimated cost exceeds the budget; false: continue until it is spent.",
    )


class Costs(Knobs):
    """Inputs of the cost ledger. None of them is part of a key; a missing value stays unknown, and is never counted as
    0."""

    region: str | None = runtime_knob(
        None, "Region of the cloud (us-east-1), or country (DE), of the grid and the prices."
    )
    instance: str | None = runtime_knob(None, "Instance type of the run, for example g5.xlarge; empty: no dollars.")
    market: Literal["on-demand", "spot"] = runtime_knob(
        "on-demand", "Price used for a budget in dollars and in MLflow."
    )
    pue: float | None = runtime_knob(
        None, "kWh of the data centre per kWh of the machine (PUE); empty: the region's, or 1.", ge=1
    )
    grid_kg_per_kwh: float | None = runtime_knob(None, "kg CO2e per kWh of the grid; empty: the region's.", ge=0)
    core_watts: float | None = runtime_knob(
        None, "Watts of a busy core; empty: from the processor's name, or 3.5.", gt=0
    )
    gpu_watts: float | None = runtime_knob(
        None, "Watts of a busy GPU without an energy counter; empty: from its name.", gt=0
    )
    budget: Budget = runtime_knob(Budget(), "Budget of the run.")

    @model_validator(mode="after")
    def can_be_counted(self) -> Self:
        """Reject a price that cannot be looked up, and dollars without a price."""
        if self.instance is not None and self.region is None:
            raise ValueError(
                f"an instance has a price in a region; set costs.region beside costs.instance {self.instance}"
            )
        if self.budget.dollars is not None and self.instance is None:
            raise ValueError(
                "a budget in dollars needs a price; set costs.instance and costs.region, or set the budget in kwh or "
                "hours"
            )
        return self
