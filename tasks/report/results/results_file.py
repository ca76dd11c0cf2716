"""The small file that stays of a finished run: what its table needs, and how it was made. Nothing in it names a
machine's folders.

``trimmed`` makes one of what ``limbeck run --json`` or ``limbeck sweep --json`` wrote; ``Run`` and ``Sweep`` are what
may be in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MARKUP = re.compile(r"[\x00-\x1f\x7f`<]|\]\(")


class Strict(BaseModel):
    """Frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def is_shown_as_it_is(cls, values: Any) -> Any:
        """Refuse words that would become markup on the page: it shows names and commands as they are. Notes are
        escaped."""
        for name, value in values.items() if isinstance(values, Mapping) else ():
            for words in (name, value if name != "note" else ""):
                if isinstance(words, str) and MARKUP.search(words):
                    raise ValueError(
                        f"{words[:40]!r} holds a line break, a backtick or HTML, which has no place on the page"
                    )
        return values


class Figure(Strict):
    """A figure and its interval; all are empty where it is undefined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class Score(Figure):
    """A mean over seeds, its deviation (empty for one seed), the score of every seed, and that of the registered one
    (empty in older files)."""

    deviation: float | None = None
    per_seed: tuple[float, ...] = ()
    own: Figure | None = None


class Against(Figure):
    """A paired difference to a plain baseline, its corrected p-value, the seeds on both sides, and the word for it."""

    p: float
    seeds: tuple[int, int]
    verdict: Literal["better", "worse", "inside the noise", "not known by one seed"]


class Judged(Strict):
    """A model's scores on one judging set: means over seeds, and the registered model's own within each score."""

    rows: int
    scores: dict[str, Score]
    retained: Figure = Figure()
    difference: Figure = Figure()
    drop: float | None = None
    """How far the headline score lies below that on the task's own rows; None where classes are merged."""
    merges: tuple[str, ...] = ()


class Entry(Strict):
    """One model of a run."""

    name: str
    role: str
    plain: bool = False
    seeds: tuple[int, ...] = ()
    selected_seed: int | None = None
    scores: dict[str, dict[str, Score]]
    retained: dict[str, Figure] = {}
    difference: dict[str, Figure] = {}
    against: dict[str, dict[str, Against]] = {}
    parameters: int
    bytes: int | None
    latency_ms: float | None
    latency_low_ms: float | None = None
    latency_high_ms: float | None = None
    speedup: float | None = None
    unsteady: str | None = None
    """Why its speed decides nothing; None where it is steady, and in files that were made before anybody asked."""
    steps: tuple[int, ...] = ()
    train_seconds: tuple[float, ...] = ()
    judged: dict[str, Judged] = {}


class Hardware(Strict):
    """The machine."""

    cpu: str
    cores: int
    gpu: str | None = None


class Minutes(Strict):
    """How long the run took, and how long its cached stages took when they were made (stage by stage, not side by
    side)."""

    run: float
    cached: float = 0.0


class Made(Strict):
    """How a result was made."""

    teacher: str
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    command: str = ""
    commit: str | None = None
    versions: dict[str, str]
    hardware: Hardware
    minutes: Minutes


class Purged(Strict):
    """How many rows of how many were taken out of train because they overlap with held-back ones, and by which way."""

    rows: int
    of: int
    way: Literal["text", "group", "none"]


class Kept(Strict):
    """What runs and sweeps have in common."""

    recipe: str
    task: str
    headline: str
    split: str
    made: Made
    note: str = ""
    purged: Purged | None = None
    """None in files that were made before splits were purged."""

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes two files files of the same run."""
        return type(self).__name__, self.recipe, self.task, self.made.teacher


class Run(Kept):
    """A run of a recipe: its models, and on how many rows they were judged."""

    kind: Literal["run"] = "run"
    rows: dict[str, int]
    synthetic: bool = False
    measured_at: dict[str, Any]
    models: tuple[Entry, ...] = Field(min_length=2)


class Cell(Strict):
    """One strategy at one number of dropped layers; a cell without a score was not trained to the end."""

    strategy: str
    drop: int
    score: Score | None = None
    chosen: bool = False


class Within(Strict):
    """The most layers that can go within so many points of the teacher: with the interval, and by the mean alone."""

    points: float
    holds: int | None = None
    mean: int | None = None


class Sweep(Kept):
    """A sweep of one teacher: a cell for every strategy and number of layers, and the answer."""

    kind: Literal["sweep"] = "sweep"
    rows: int
    layers: int
    seeds: tuple[int, ...]
    teacher: Score
    cells: tuple[Cell, ...] = Field(min_length=1)
    answer: tuple[Within, ...] = ()


KINDS: dict[str, type[Run] | type[Sweep]] = {"run": Run, "sweep": Sweep}
