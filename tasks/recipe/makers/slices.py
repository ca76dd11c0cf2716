"""The knobs that stages of the makers receive: only the part of a candidate's knobs that determines its result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.recipe.knobs import Knobs, added_knob
from tasks.recipe.makers.bits import GridKnobs, Ranges
from tasks.recipe.makers.supernets import Draw, SpaceOfShapes
from tasks.recipe.makers.weights import MaskKnobs, TicketKnobs
from tasks.recipe.slices import OfTask, PredictionSlice


class VocabularySlice(OfTask):
    """Knobs that determine a smaller vocabulary."""

    keep: Literal["used"] | int = Field(description="All pieces that are found, or the number of pieces.")
    floor: int = Field(1, description="Minimum number of times that a piece must be found.")
    train: bool = Field(True, description="Count the pieces of the training rows.")
    max_length: int = Field(128, description="Longest input in tokens, for the score on the selection rows.")


class NeuronSlice(OfTask):
    """Knobs that determine which neurons stay."""

    keep: float = Field(description="Share of the neurons of each feed-forward block.")
    importance: str = Field(description="Measure of a neuron's importance.")
    rows: int = Field(512, description="Training rows on which it is measured.")
    seed: int = Field(0, ge=0, description="Seed of the sample of rows, and of random.")
    max_length: int = Field(128, description="Longest input in tokens.")


class WidthSlice(NeuronSlice):
    """Knobs that determine which dimensions and heads stay; ``keep`` is their share."""


class HeadSlice(NeuronSlice):
    """Knobs that determine which heads stay; ``keep`` is their share."""

    scope: Literal["global", "layer"] = Field("global", description="Where heads are compared.")


class PruneRoundSlice(NeuronSlice):
    """Knobs that determine one round of iterative pruning; ``keep`` is the share after the last one."""

    part: Literal["neurons", "heads"] = Field(description="What it removes: neurons, or heads with their width.")
    round: int = Field(ge=1, description="Number of the round, the first is 1.")
    rounds: int = Field(ge=2, description="Number of all rounds.")


class WeightSlice(MaskKnobs, PredictionSlice):
    """Knobs that determine which single weights stay, and the training in which the others go."""


class TicketSlice(TicketKnobs, PredictionSlice):
    """Knobs that determine one training of a lottery."""

    left: float = Field(1.0, gt=0, le=1, description="Share of the weights; 1: the first training, without a mask.")


class QuantizationSlice(GridKnobs, PredictionSlice):
    """Knobs that determine a grid, and the training on it."""

    hidden_weight: float = Field(1.0, description="Weight of the difference of hidden states.")
    seven_bits: bool = Field(False, description="Seven bits for weights of int8.")


class StaticQuantizationSlice(QuantizationSlice):
    """Knobs that determine a grid with static ranges, and the training on it."""

    ranges: Ranges = Field(description="Whether ranges are trained, or calibrated.")


class SupernetSlice(SpaceOfShapes, PredictionSlice):
    """Knobs that determine a supernet."""

    hidden_weight: float = Field(1.0, description="Weight of the difference of hidden states.")
    rows: int = Field(512, description="Training rows on which importance is measured.")
    draw: Draw = added_knob("shapes", "How the two other shapes of a step are drawn.")


class ShapeSlice(Knobs):
    """One shape of a supernet."""

    layers: int | None = Field(None, description="Its layers; empty: all.")
    width: float = Field(1.0, description="Its share of the width.")
    neurons: float = Field(1.0, description="Its share of the neurons.")


class SubNetworkSlice(ShapeSlice, OfTask):
    """Knobs that determine which shape is taken out of a supernet."""

    max_length: int = Field(128, description="Longest input in tokens, for the score on the selection rows.")


class JudgedShapesSlice(OfTask):
    """Knobs that determine which shapes of a supernet are scored."""

    shapes: tuple[ShapeSlice, ...] = Field(description="The shapes.")
    max_length: int = Field(128, description="Longest input in tokens.")
