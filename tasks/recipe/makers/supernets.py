"""Candidates that are parts of a supernet: one training after which every shape of a space can be taken out.

Paper: Hou et al. 2020, DynaBERT, arXiv:2004.04037.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.distillation import Prediction
from tasks.recipe.knobs import Choices, Knobs, added_knob, require_distinct
from tasks.recipe.makers.candidate_knobs import PRETRAINED, CutKnobs
from tasks.recipe.students import STRATEGY_NAMES
from tasks.recipe.training import TaskTraining

Share = Annotated[float, Field(gt=0, le=1)]
Draw = Literal["shapes", "flops"]
WHOLE = 1.0
SANDWICH_STEPS = 1500
SEARCHED = ("greedy",)
"""Strategies of layer dropping whose layers are found by trainings, which a supernet does not make."""


class SandwichTraining(Prediction):
    """The training of a supernet."""

    steps: int | None = Field(SANDWICH_STEPS, ge=1, description="Training steps; empty: as many as epochs need.")


class SupernetTraining(Knobs):
    """How a supernet learns: in every step its largest and its smallest shape and two others, all from the frozen
    model that it is made from."""

    hidden_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of the difference of hidden states to those of the same layers and dimensions of the "
        "frozen model, beside its predictions.",
    )
    rows: int = Field(512, ge=1, le=100_000, description="Training rows on which taylor and activation are measured.")
    draw: Draw = added_knob(
        "shapes",
        "How the two other shapes of a step are drawn: shapes, all equally likely; flops, uniformly in FLOPs, which "
        "trains large shapes more often, since most shapes of a space are small.",
    )
    prediction: SandwichTraining = Field(
        SandwichTraining(), description="Its training; the weights of the last step are used."
    )

    @model_validator(mode="after")
    def has_no_patience(self) -> Self:
        """Reject patience: hidden states are compared already."""
        if self.prediction.patience is not None:
            raise ValueError(
                "a supernet compares all hidden states already, so it has no patience; leave "
                "supernet.prediction.patience out, or set supernet.hidden_weight"
            )
        return self


class SpaceOfShapes(Knobs):
    """The shapes that a supernet contains."""

    layers: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, min_length=1, description="Numbers of layers; empty: from 1 to those of the model that it is made from."
    )
    width: tuple[Share, ...] = Field(
        (1.0,), min_length=1, description="Shares of the width, rounded to whole heads of its size."
    )
    neurons: tuple[Share, ...] = Field(
        (0.25, 0.5, 0.75, 1.0),
        min_length=1,
        description="Shares of the neurons of each feed-forward block, rounded to multiples of 32.",
    )
    strategy: Annotated[str, Choices(*STRATEGY_NAMES)] = Field(
        "contribution", description="Which layers a shape of fewer layers has: a strategy of layer_dropping."
    )
    importance: Literal["taylor", "activation", "magnitude", "random"] = Field(
        "taylor", description="By what neurons, dimensions and heads are put in order; random is the control."
    )

    @model_validator(mode="after")
    def can_be_trained(self) -> Self:
        """Reject repeated sizes, and a strategy that needs trainings of its own."""
        for what in ("layers", "width", "neurons"):
            require_distinct(getattr(self, what), what)
        if self.strategy in SEARCHED or self.strategy not in STRATEGY_NAMES:
            legal = ", ".join(name for name in STRATEGY_NAMES if name not in SEARCHED)
            raise ValueError(f"strategy is {self.strategy!r}; of a supernet legal are {legal}")
        return self


class SupernetKnobs(SpaceOfShapes, SupernetTraining):
    """A supernet: its shapes, and how they learn. Candidates with the same section share one training."""


class SubNetworkCandidate(CutKnobs):
    """One shape of a supernet, as a plain folder; not trained alone. A distillation from it is the next entry of a
    chain."""

    by: Literal["supernet"] = Field(description="The maker.")
    layers: int | None = Field(None, ge=1, description="Its layers; empty: those of the model that it is made from.")
    width: Share = Field(1.0, description="Its share of the width, one that the supernet contains.")
    neurons: Share = Field(1.0, description="Its share of the neurons, one that the supernet contains.")
    supernet: SupernetKnobs = Field(SupernetKnobs(), description="The supernet that contains it.")

    @model_validator(mode="after")
    def is_contained(self) -> Self:
        """Reject a shape for which the supernet is not trained, and an origin without a trained head."""
        if self.made_from == PRETRAINED:
            raise ValueError(
                f"candidate {self.name} learns from the model that it is made from, and the pretrained model knows no "
                f"answers; set from: teacher"
            )
        for what in ("layers", "width", "neurons"):
            own, sizes = getattr(self, what), getattr(self.supernet, what)
            if own is not None and sizes is not None and own not in (*sizes, *([WHOLE] if what != "layers" else [])):
                raise ValueError(
                    f"candidate {self.name} has {what}: {own}, and its supernet contains "
                    f"{', '.join(f'{one:g}' for one in sizes)}; add it to supernet.{what}, or choose one of them"
                )
        return self

    @property
    def role_by_maker(self) -> str:
        """A part of a supernet."""
        return "sub-network"

    @property
    def changes_each_layer(self) -> bool:
        """Layer by layer."""
        return True

    @property
    def signal_of_training(self) -> str:
        """The model that it is made from."""
        return "teacher"

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """The training of its supernet."""
        return {"supernet.prediction": self.supernet.prediction}

    def width_and_heads(self, width: int, heads: int) -> tuple[int, int]:
        """Return its share of the heads, each as large as before."""
        kept = max(1, round(heads * self.width))
        return width // heads * kept, kept

    def depth(self, layers: int) -> int:
        """Return its layers."""
        return layers if self.layers is None else self.layers
