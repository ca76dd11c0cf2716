"""The result of a sweep as its ``--json`` file and MLflow have it: a cell for every strategy and number of dropped
layers, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict, cast

from pydantic import JsonValue

from tasks.results.row import Bounds, Number


class SweepCell(TypedDict):
    """One strategy at one number of dropped layers; only a cell that was scored has figures."""

    strategy: str
    drop: int
    layers: int
    """Layers that are left."""
    state: Literal["scored", "dropped out", "undefined"]
    kept: NotRequired[list[int]]
    """The layers that the first seed's model has, counted from 0."""
    seeds: NotRequired[list[int]]
    score: NotRequired[Bounds]
    """The mean over seeds."""
    per_seed: NotRequired[list[Number | None]]
    deviation: NotRequired[float | None]
    difference: NotRequired[Bounds | None]
    """The paired difference to the teacher."""
    selection_score: NotRequired[float | None]
    """The score on the selection rows, by which the strategy of a number of layers is chosen."""
    parameters: NotRequired[Number | None]
    bytes: NotRequired[Number | None]
    flops: NotRequired[Number | None]
    train_seconds: NotRequired[list[Number | None]]
    checkpoints: NotRequired[list[str]]
    rung_score: NotRequired[float | None]
    """The score after the first rung of successive halving; None without halving."""
    chosen: NotRequired[bool]
    """Whether it is the best of its number of layers on the selection rows."""
    cost: NotRequired[dict[str, JsonValue]]


class DroppedLayers(TypedDict):
    """A number of layers that can be dropped, with its strategy and its difference to the teacher."""

    drop: int
    strategy: str
    difference: Bounds
    seeds: list[int]


class LayersAnswer(TypedDict):
    """The largest number of layers that can be dropped within ``points`` of the teacher."""

    points: float
    mean: DroppedLayers | None
    """By the mean over seeds."""
    holds: DroppedLayers | None
    """By the interval."""
    alone: list[int]
    """Numbers whose own interval is near enough although that of a smaller number is not."""


class SweepTeacher(TypedDict):
    """The teacher of a sweep."""

    score: Bounds
    parameters: NotRequired[Number | None]
    bytes: NotRequired[Number | None]
    flops: NotRequired[Number | None]


class LayerSimilarity(TypedDict):
    """The similarity of one layer before and after fine-tuning; ``layer`` is "embeddings" or a number from 0 on."""

    layer: str | int
    cka: float
    cosine: float


class SweptStage(TypedDict):
    """One stage of a sweep, as ``StageLine`` writes it."""

    name: str
    label: str
    state: str
    cache: str
    seconds: Number
    key: str


class SweepResult(TypedDict):
    """A finished sweep; the parts that are not required are added when it is published."""

    recipe: str
    task: str
    headline: str
    split: str
    rows: int
    """Rows of the split."""
    confidence: float
    layers: int
    """Layers of the teacher."""
    strategies: list[str]
    drop: list[int]
    seeds: list[int]
    halving: bool
    after_finetuning: bool
    teacher: SweepTeacher
    cells: list[SweepCell]
    answer: list[LayersAnswer]
    similarity: list[LayerSimilarity]
    stages: NotRequired[list[SweptStage]]
    links: NotRequired[dict[str, str]]
    ledger: NotRequired[dict[str, JsonValue]]
    held_back: NotRequired[dict[str, JsonValue]]
    run: NotRequired[str]
    made: NotRequired[dict[str, JsonValue]]
    lineage: NotRequired[dict[str, JsonValue]]
    licences: NotRequired[list[dict[str, str]]]
    texts: NotRequired[str | None]
    manifest: NotRequired[dict[str, JsonValue]]
    report: NotRequired[dict[str, JsonValue]]


def read_sweep(stored: Mapping[str, object]) -> SweepResult:
    """Return a stored result as its type; results of older releases may lack parts."""
    return cast(SweepResult, stored)
