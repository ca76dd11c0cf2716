"""The inner objectives by name: what a student copies of its teacher beside the answers."""

from __future__ import annotations

from collections.abc import Callable

from tasks.errors import RecipeError
from tasks.training.objectives.lesson import Lesson, Objective
from tasks.training.objectives.matching import layers
from tasks.training.objectives.relating import relations
from tasks.training.objectives.replacing import replacing
from tasks.training.objectives.self_attention import self_attention
from tasks.training.objectives.triple import triple

OBJECTIVES: dict[str, Callable[[Lesson], Objective]] = {
    "layers": layers,
    "relations": relations,
    "replacing": replacing,
    "self-attention": self_attention,
    "triple": triple,
}


def objective_of(lesson: Lesson) -> Objective:
    """Return what a lesson's knobs ask for."""
    if lesson.knobs.method not in OBJECTIVES:
        raise RecipeError(f"unknown method {lesson.knobs.method!r}; choose one of {', '.join(sorted(OBJECTIVES))}")
    return OBJECTIVES[lesson.knobs.method](lesson)
