"""Candidates that are trained for a few bits: their weights lie on the grid of a quantized graph."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.architectures.requirements import SERVED, require_served
from tasks.recipe.distillation import Prediction
from tasks.recipe.knobs import Knobs, added_knob
from tasks.recipe.makers.candidate_knobs import PRETRAINED, CandidateKnobs
from tasks.recipe.students import takes_layers
from tasks.recipe.training import TaskTraining

BITS_OF = {"int8": ("8",), "int8-table4": ("8",), "four-bit": ("4", "3", "2", "ternary")}
"""The weights that each format holds."""


def require_served_start(name: str, start: str, family: str) -> None:
    """Raise ModelError for a candidate whose chain begins with such a ``start``, of a teacher of a ``family``; a start
    that is a checkpoint of its own is known when it is loaded."""
    if start in SERVED:
        family = start
    if start in SERVED or takes_layers(start):
        require_served(family, name)


Ranges = Literal["dynamic", "calibrated", "trained"]
"""Where the ranges of states come from."""


class GridKnobs(Knobs):
    """The grid for which a model is trained."""

    format: Literal["int8", "int8-table4", "four-bit"] = Field(
        "int8", description="The format of exports on whose grid it is trained, and in which it is served."
    )
    bits: Literal[8, 4, 3, 2, "ternary"] | None = Field(
        None,
        description="Bits of a weight of the matrices: 8 in int8 and int8-table4; 4, 3, 2, or ternary (three values) "
        "in four-bit, whose embeddings have 4. Empty: 8 or 4. Steps of 4, 3 and 2 bits are learned (Esser et al. 2019, "
        "arXiv:1902.08153); ternary is TernaryBERT's (Zhang et al. 2020, arXiv:2009.12812).",
    )
    rounding: Literal["while-training", "after-training"] = Field(
        "while-training",
        description="after-training: the control, which is trained as long in full precision, and rounded at the end.",
    )

    @property
    def codes(self) -> str:
        """The weights of its matrices, always stated."""
        return BITS_OF[self.format][0] if self.bits is None else str(self.bits)

    @property
    def weight_bits(self) -> float:
        """The bits that a weight of its matrices takes; of three values, the logarithm of three."""
        return round(math.log2(3), 3) if self.codes == "ternary" else float(self.codes)


class QuantizedCandidate(GridKnobs, CandidateKnobs):
    """A model that is trained for a few bits (Zafrir et al. 2019, Q8BERT, arXiv:1910.06188): in every pass, weights,
    embeddings and what the matrices read are rounded as in the graph that serves it, and its teacher is the model that
    it is made from. Its folder holds the rounded weights as floats; an export makes them small."""

    by: Literal["quantization"] = Field(description="The maker.")
    signal: Literal["teacher", "labels"] = Field(
        "teacher",
        description="What it learns from: teacher, the model that it is made from, in full precision; or labels.",
    )
    ranges: Ranges = added_knob(
        "dynamic",
        "Ranges of what the matrices read, in int8 and int8-table4. dynamic: found for each text. trained: one for "
        "each matrix, whose step learns (Esser et al. 2019); the graph has them as static ranges. calibrated: the "
        "control, which keeps those that were measured on 16 batches of training rows.",
    )
    hidden_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of the difference of all hidden states to those of that teacher, beside its predictions; "
        "0: predictions alone.",
    )
    prediction: Prediction | None = Field(
        None,
        description="Its training, instead of the recipe's second phase; 2e-5 to 5e-5 is a usual learning rate for 8 "
        "bits, 1e-4 for 2. The weights of the last step are used.",
    )

    @property
    def as_control(self) -> tuple[str, str]:
        """Rounded at the end; where ranges are fixed, those that were measured."""
        return ("rounding", "after-training") if self.ranges == "dynamic" else ("ranges", "calibrated")

    @model_validator(mode="after")
    def grid_is_served(self) -> Self:
        """Reject weights that the format does not hold, and a teacher without a trained head."""
        legal = BITS_OF[self.format]
        if self.codes not in legal:
            other = next(name for name, held in BITS_OF.items() if self.codes in held)
            raise ValueError(
                f"candidate {self.name} has bits: {self.codes}, and a graph in {self.format} holds {', '.join(legal)}; "
                f"set format: {other}, or leave bits out"
            )
        self.check_ranges()
        if self.signal == "teacher" and self.made_from == PRETRAINED:
            raise ValueError(
                f"candidate {self.name} learns from the model that it is made from, and the pretrained model knows no "
                f"answers; set from: teacher, or signal: labels"
            )
        if self.prediction is not None and self.prediction.patience is not None:
            raise ValueError(
                f"candidate {self.name} compares all hidden states already, so it has no patience; leave "
                f"prediction.patience out, or set hidden_weight"
            )
        return self

    def check_ranges(self) -> None:
        """Reject fixed ranges of a format without any, and ranges that would learn in no training."""
        if self.ranges != "dynamic" and self.format == "four-bit":
            raise ValueError(
                f"candidate {self.name} has ranges: {self.ranges}, and a graph in four-bit has a range for 32 "
                f"states of each token; set format: int8 or int8-table4, or leave ranges out"
            )
        if self.ranges == "trained" and self.rounding == "after-training":
            raise ValueError(
                f"candidate {self.name} has ranges: trained and is rounded after its training, in which no range "
                f"learns; set ranges: calibrated, or leave rounding out"
            )

    @property
    def planned_role(self) -> str:
        """A model of few bits, or the control."""
        return "quantized" if self.rounding == "while-training" and self.ranges != "calibrated" else "baseline"

    @property
    def signal_of_training(self) -> str:
        """The signal of its training: a teacher, or labels."""
        return self.signal

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its training, where it has one of its own."""
        return {"prediction": self.prediction} if self.prediction is not None else {}

    @property
    def grid(self) -> str:
        """The format on whose grid its weights lie."""
        return self.format

    @property
    def has_static_ranges(self) -> bool:
        """Whether its config states the ranges of states."""
        return self.ranges != "dynamic"
