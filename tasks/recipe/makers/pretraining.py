"""Candidates that are pretrained on the corpus themselves, before they learn the task."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.distillation import Prediction
from tasks.recipe.knobs import LARGEST_LAYERS, LARGEST_WIDTH
from tasks.recipe.makers.candidate_knobs import PRETRAINED, TEACHER, CandidateKnobs
from tasks.recipe.training import Pretraining, TaskTraining, sharing_of

OF_SHAPE = ("family", "layers", "embedding", "share")
"""Knobs of a new model."""
OF_LEARNING = ("order", "ngrams", "steps")
"""Knobs of a pretraining that a candidate may state for itself, beside those of its shape."""


class PretrainedCandidate(CandidateKnobs):
    """A model that is pretrained on the corpus, a new one or the pretrained model, and then fine-tuned (Lan et al.
    2019, ALBERT, arXiv:1909.11942). Where it states nothing itself, it is pretrained as the section ``pretraining``
    says."""

    by: Literal["pretraining"] = Field(description="The maker.")
    role: Literal["student", "baseline"] = Field(
        "student", description="A baseline is scored beside the others and never becomes champion."
    )
    start: Literal["random", "pretrained"] = Field(
        "random", description="random: a new model; pretrained: the pretrained model learns on, and keeps its shape."
    )
    family: Literal["bert", "albert"] | None = Field(None, description="Architecture of a new model.")
    layers: int | None = Field(None, ge=1, le=LARGEST_LAYERS, description="Layers of a new model.")
    embedding: int | None = Field(
        None, ge=8, le=LARGEST_WIDTH, description="Width of the embeddings of a new model of family: albert."
    )
    share: str | None = Field(
        None,
        description="Which layers of a new model of family: albert share their weights: all, none, groups:K, attention "
        "or ffn.",
    )
    order: Literal["none", "sop", "nsp"] | None = Field(None, description="What is learned beside words.")
    ngrams: int | None = Field(
        None, ge=0, le=8, description="Longest run of whole words that are predicted together; 0: single tokens."
    )
    steps: int | None = Field(None, ge=1, description="Steps of its pretraining.")
    signal: Literal["teacher", "labels"] = Field("labels", description="Training signal after pretraining.")
    prediction: Prediction | None = Field(
        None, description="Its training on the task, instead of the recipe's second phase."
    )

    @model_validator(mode="after")
    def is_made_anew(self) -> Self:
        """Reject a start from a model that knows the task, and a shape for a model that is there."""
        if self.made_from != PRETRAINED:
            raise ValueError(
                f"candidate {self.name} is pretrained, and {self.made_from} has learned the task, where it lost its "
                f"head for words; set from: pretrained"
            )
        own = [knob for knob in OF_SHAPE if getattr(self, knob) is not None]
        if own and self.start == PRETRAINED:
            raise ValueError(
                f"candidate {self.name} goes on from the pretrained model, whose shape it keeps; remove {own[0]}, or "
                f"set start: random"
            )
        return self

    def pretraining_of(self, section: Pretraining, seed: int) -> Pretraining:
        """Return how one seed is pretrained. Raises ValueError for values that do not go together."""
        own = {knob: getattr(self, knob) for knob in (*OF_SHAPE, *OF_LEARNING) if getattr(self, knob) is not None}
        common = dict(section)
        if own.get("family", section.family) != section.family:
            common = {**common, "embedding": None, "share": None}
        return Pretraining.model_validate({**common, **own, "seed": seed})

    @property
    def planned_role(self) -> str:
        """A student, or a baseline."""
        return self.role

    @property
    def signal_of_training(self) -> str:
        """What it learns from after pretraining."""
        return self.signal

    def sharing(self, section: Pretraining | None) -> str:
        """What it says itself, or else the section."""
        return "" if section is None else sharing_of(self.pretraining_of(section, self.planned_seeds[0]))

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its training on the task, where it has one of its own."""
        return {"prediction": self.prediction} if self.prediction is not None else {}

    def depth(self, layers: int) -> int:
        """Return its number of layers, where the section ``pretraining`` says so many."""
        return self.layers or layers


def require_depth_of_base(candidates: Any, layers: int) -> None:
    """Raise ValueError for a student with more layers than the model that is pretrained first, and for more layers to
    drop than it can spare: the run would find out after that."""
    for one in candidates:
        shape, drop = getattr(one, "shape", None), getattr(one, "drop", None)
        if shape is not None and shape.layers > layers:
            raise ValueError(
                f"{one.name} has {shape.layers} layers, and the model of section pretraining has {layers}; give it at "
                f"most {layers}, or set pretraining.layers"
            )
        if isinstance(drop, int) and one.made_from == TEACHER and drop >= layers:
            raise ValueError(
                f"{one.name} drops {drop} layers, and the model of section pretraining has {layers}; drop at most "
                f"{layers - 1}, or set pretraining.layers"
            )


def check_pretrained(candidates: Any, section: Pretraining | None) -> None:
    """Reject candidates by pretraining without the section that they follow, or with values that do not fit it, and
    others that need more layers than the section's model has. Raises ValueError."""
    if section is not None:
        require_depth_of_base(candidates, section.layers)
    for one in candidates:
        if not isinstance(one, PretrainedCandidate):
            continue
        if section is None:
            raise ValueError(
                f"candidate {one.name} is made by pretraining, and the recipe has no section pretraining, whose "
                f"vocabulary and settings it takes; add one"
            )
        for seed in one.planned_seeds:
            one.pretraining_of(section, seed)
