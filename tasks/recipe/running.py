"""Recipe sections on the report, the resources and the costs of a run."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.knobs import Knobs, runtime_knob

THREADS_ALONE = 4
"""One number for all machines. On one or two cores, four threads cost little: 2 % (float32) to 24 % (bf16) more
processor time than one thread, and no more than two threads (6 x 384, measured on two cores)."""


class Report(Knobs):
    """Contents of a run's page; never part of a key."""

    texts: bool = runtime_knob(
        True, "Show the texts on which student and teacher disagree; false where they must not leave the store."
    )


class Resources(Knobs):
    """Cores and threads of a run. Threads are part of keys, because another number of threads changes the order of
    summation."""

    cores: int | None = runtime_knob(
        None, "Cores that stages may hold at once; empty: all that this process may use.", ge=1
    )
    threads: int = Field(
        1,
        ge=1,
        le=256,
        description="Threads of a stage that runs beside others like it: students, dropped models, scores, exports.",
    )
    threads_alone: int = Field(
        THREADS_ALONE,
        ge=1,
        le=256,
        description="Threads of a stage that the others wait for: pretraining, teacher, its answers and layers, "
        "general distillation.",
    )


class Budget(Knobs):
    """Limits on a run's spending, checked before each stage that would compute, and while it does. Empty: no limit."""

    dollars: float | None = runtime_knob(None, "Dollars for the instance's hours, from the run's start on.", gt=0)
    kwh: float | None = runtime_knob(None, "kWh that the run's stages may take, as far as they are known.", gt=0)
    hours: float | None = runtime_knob(None, "Hours of the clock, from the run's start on.", gt=0)
    by_estimate: bool = runtime_knob(
        True,
        "Refuse what would go beyond the budget if it takes what the like of it took; false: go on until it is spent.",
    )


class Costs(Knobs):
    """Inputs of the cost ledger. None of them is part of a key; a missing value stays unknown, and is never counted as
    0."""

    region: str | None = runtime_knob(
        None, "Region of the cloud (us-east-1), or country (DE), whose grid and prices count."
    )
    instance: str | None = runtime_knob(
        None, "Instance type that the run pays for, for example g5.xlarge; empty: no dollars."
    )
    market: Literal["on-demand", "spot"] = runtime_knob(
        "on-demand", "Price that a budget in dollars, and MLflow, count with."
    )
    pue: float | None = runtime_knob(
        None, "kWh of the data centre for each of the machine (PUE); empty: the region's, or 1.", ge=1
    )
    grid_kg_per_kwh: float | None = runtime_knob(None, "kg CO2e per kWh of the grid; empty: the region's.", ge=0)
    core_watts: float | None = runtime_knob(None, "Watts of a busy core; empty: by the processor's name, or 3.5.", gt=0)
    gpu_watts: float | None = runtime_knob(
        None, "Watts of a busy GPU that does not count its own; empty: by its name.", gt=0
    )
    budget: Budget = runtime_knob(Budget(), "What the run may spend.")

    @model_validator(mode="after")
    def can_be_counted(self) -> Self:
        """Reject a price that cannot be looked up, and dollars without a price."""
        if self.instance is not None and self.region is None:
            raise ValueError(
                f"an instance has a price in a region; set costs.region beside costs.instance {self.instance}"
            )
        if self.budget.dollars is not None and self.instance is None:
            raise ValueError(
                "a budget in dollars needs a price; set costs.instance and costs.region, or give the budget in kwh "
                "or hours"
            )
        return self
