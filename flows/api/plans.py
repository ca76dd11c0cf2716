"""The plan of a run as ``limbeck plan --json`` writes it, with types."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class PlannedStage(BaseModel):
    """One stage of a plan: ``cache`` is ``hit`` or ``miss``, ``why`` the reason, ``seconds`` an estimate or None."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stage: str
    cache: str
    why: str | None = None
    seconds: float | None = None

    @property
    def is_cached(self) -> bool:
        """Whether the result of the stage is cached."""
        return self.cache == "hit"


class RunPlan(BaseModel):
    """The stages of a run, in order; ``refused`` is the reason if the budget of the recipe is too small."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stages: tuple[PlannedStage, ...]
    refused: str = ""
    warnings: tuple[str, ...] = ()
    total: dict[str, Any] = {}
    """Estimated cost of the stages that would run: figures in seconds, kWh, dollars and grams of CO2e."""
    held_back: dict[str, Any] = {}
    """Facts about held-out rows, as far as they are known before the run."""

    @property
    def missing(self) -> tuple[PlannedStage, ...]:
        """The stages that would run."""
        return tuple(stage for stage in self.stages if not stage.is_cached)
