"""The messages between a run and its engines: the order of a job, and the events that an engine sends while it works.

Both are JSON: the order is a file in the engine's folder, an event is one line of its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict


class EngineOrder(TypedDict, total=False):
    """What one job of an engine computes, and where. ``job`` and ``output`` are always there."""

    job: str
    """The job's name in the ``JOBS`` of its module."""
    knobs: Mapping[str, object]
    """The slice of the recipe that the stage sent."""
    inputs: Mapping[str, str]
    """Folders of inputs by name."""
    lists: Mapping[str, list[str]]
    """Folders of inputs of which there are several."""
    output: str
    checkpoints: str
    threads: int
    processes: int
    device: str
    """``cpu`` or ``cuda``."""
    gpus: list[str]
    """The GPUs to compute on, as in CUDA_VISIBLE_DEVICES; empty: the first ones that are visible."""
    libraries: Mapping[str, str]
    """Versions in the stage's key, which the engine's must equal."""


class LogEvent(TypedDict):
    """One sentence to the user."""

    event: Literal["log"]
    message: str


class ProgressEvent(TypedDict):
    """How much of a job is done."""

    event: Literal["progress"]
    done: int
    total: int
    unit: str
    figures: dict[str, float]


class CurveEvent(TypedDict):
    """One step of training curves, by the name of the figure."""

    event: Literal["curve"]
    step: int
    figures: dict[str, float]


class UsedEvent(TypedDict):
    """The resources that one process of the engine has used."""

    event: Literal["used"]
    cpu_seconds: float
    peak_bytes: int
    gpus: int


class ResultEvent(TypedDict):
    """The facts of a finished job."""

    event: Literal["result"]
    facts: dict[str, object]


class ErrorEvent(TypedDict):
    """The error that ended a job: the name of its class, and its sentence."""

    event: Literal["error"]
    kind: str
    message: str


Event = LogEvent | ProgressEvent | CurveEvent | UsedEvent | ResultEvent | ErrorEvent


class Letter(TypedDict, total=False):
    """A message to the server: a job to fork an engine for, a signal for one, or a module whose libraries to import."""

    number: int
    """Of the engine."""
    module: str
    folder: str
    environment: dict[str, str | None]
    signal: int
    load: str
