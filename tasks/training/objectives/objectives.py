"""The inner objectives by name: ways for a student to copy more of its teacher than the answers."""

from __future__ import annotations

from collections.abc import Callable

from tasks.errors import RecipeError
from tasks.training.objectives.attention_outputs import attention_outputs
from tasks.training.objectives.context import DistillationContext, Objective
from tasks.training.objectives.distilbert import distilbert
from tasks.training.objectives.feature_maps import feature_maps
from tasks.training.objectives.layers import layers
from tasks.training.objectives.relations import relations
from tasks.training.objectives.self_attention import self_attention
from tasks.training.objectives.theseus import replacing

OBJECTIVES: dict[str, Callable[[DistillationContext], Objective]] = {
    "attention-outputs": attention_outputs,
    "feature-maps": feature_maps,
    "layers": layers,
    "relations": relations,
    "replacing": replacing,
    "self-attention": self_attention,
    "triple": distilbert,
}


def objective_of(context: DistillationContext) -> Objective:
    """Return the objective that a distillation context's knobs name."""
    if context.knobs.method not in OBJECTIVES:
        raise RecipeError(f"unknown method {context.knobs.method!r}; choose one of {', '.join(sorted(OBJECTIVES))}")
    return OBJECTIVES[context.knobs.method](context)
