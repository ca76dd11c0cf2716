"""The results file of a finished run: the figures of its table, and how it was produced. It contains no paths of a
machine.

``trimmed`` creates one from the output of ``limbeck run --json`` or ``limbeck sweep --json``; ``Run`` and ``Sweep`` are
its schemas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.results.row import Number

MARKUP = re.compile(r"[\x00-\x1f\x7f`<]|\]\(")


class Strict(BaseModel):
    """A frozen model that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def is_shown_as_it_is(cls, values: Any) -> Any:
        """Refuse texts that would become markup on the page, because names and commands are not escaped there. Notes
        are escaped."""
        for name, value in values.items() if isinstance(values, Mapping) else ():
            for words in (name, value if name != "note" else ""):
                if isinstance(words, str) and MARKUP.search(words):
                    raise ValueError(
                        f"{words[:40]!r} holds a line break, a backtick or HTML, which the page cannot contain"
                    )
        return values


class Figure(Strict):
    """A figure and its interval; all are None if the figure is undefined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class Score(Figure):
    """A mean over seeds, their standard deviation (None for one seed), the score of every seed, and the registered
    model's own score (None in older files)."""

    deviation: float | None = None
    per_seed: tuple[float, ...] = ()
    own: Figure | None = None


class MeanFigure(Figure):
    """A figure of the mean over seeds, and the registered model's own one (None in older files)."""

    own: Figure | None = None


class BaselineComparison(Figure):
    """A paired difference to a labels-only baseline or a control, its corrected p-value, the number of seeds on both
    sides, and the verdict."""

    p: float
    seeds: tuple[int, int]
    verdict: Literal["better", "worse", "inside the noise", "not known by one seed", "not known by so few groups"]
    control: bool = False
    differs: tuple[str, ...] = ()


class Judged(Strict):
    """A model's scores on one judging set, or on both held-out splits together: means over seeds, each with the
    registered model's own score."""

    rows: int
    scores: dict[str, Score]
    retained: MeanFigure = MeanFigure()
    difference: MeanFigure = MeanFigure()
    drop: float | None = None
    """The headline score on the task's own rows minus that on the set; None if classes are merged, and for rows of
    another type than the task's."""
    merges: tuple[str, ...] = ()
    headline: str = ""
    """The metric of a set of another type; empty: that of the run."""
    chance: float | None = None
    """The score of guessing on such a set."""
    against: dict[str, BaselineComparison] = {}
    """By the model that it is compared to; empty in files of releases that compared on the task's own rows alone."""


class Entry(Strict):
    """One model of a run."""

    name: str
    role: str
    plain: bool = False
    seeds: tuple[int, ...] = ()
    selected_seed: int | None = None
    scores: dict[str, dict[str, Score]]
    retained: dict[str, MeanFigure] = {}
    difference: dict[str, MeanFigure] = {}
    against: dict[str, dict[str, BaselineComparison]] = {}
    parameters: int
    bytes: int | None
    flops: float | None = None
    """FLOPs for one input of ``flops_length`` tokens; both None in files of releases that did not keep them."""
    flops_length: int | None = None
    packed_bytes: float | None = None
    """Bytes of its weights in an archive, where zeros take no room; None if the recipe packs nothing."""
    nonzero_share: float | None = None
    bits: float | None = None
    """Bits of a weight of its matrices, where a candidate of the recipe is trained for few."""
    fertility: float | None = None
    """Pieces a word, of the validation rows and of judging sets; None where all tokenizers are the same."""
    fertility_elsewhere: float | None = None
    ms_per_text: float | None = None
    latency_ms: float | None
    latency_low_ms: float | None = None
    latency_high_ms: float | None = None
    speedup: float | None = None
    unsteady: str | None = None
    """The reason why its speed is unsteady; None if it is steady, and in files of releases that did not check it."""
    steps: tuple[int, ...] = ()
    train_seconds: tuple[float, ...] = ()
    kwh: float | None = None
    """Energy of its own stages, of all seeds; None if the run does not know it, and in older files. So is ``dollars``,
    their price on demand."""
    dollars: float | None = None
    teacher_rows_read: tuple[int, ...] | None = None
    teacher_rows_computed: tuple[int, ...] | None = None
    """Rows, for each seed, whose teacher's layers were read from the store, and computed; None in older files, and for
    models that do not learn from them."""
    pooled: Judged | None = None
    """On the rows of both held-out splits together; None of a run with one alone, and in older files."""
    judged: dict[str, Judged] = {}


class Hardware(Strict):
    """The machine."""

    cpu: str
    cores: int
    gpu: str | None = None


class Minutes(Strict):
    """Duration of the run in minutes, and that of its cached stages when they were computed (the sum over stages, not
    the time of a parallel run)."""

    run: float
    cached: float = 0.0


class Made(Strict):
    """How a result was produced."""

    teacher: str
    date: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    command: str = ""
    commit: str | None = None
    versions: dict[str, str]
    hardware: Hardware
    minutes: Minutes


class Purged(Strict):
    """Training rows removed because they overlap with held-back rows: their number, the number of rows before, and the
    way of splitting."""

    rows: int
    of: int
    way: Literal["text", "group", "none"]


class KeptSearch(Strict):
    """The search that chose the candidates of a run: its points, the shapes that fit, and how far its predictions and
    its ranking are right."""

    points: int
    fitting: int
    checks: int = 0
    """Shapes that are no part of the latency table, on which it was checked."""
    error: float | None = None
    """Mean error of their latencies, as a share; None if none was checked."""
    rank_correlation: float | None = None
    """Spearman's correlation of their predicted and measured latencies."""
    supernet_tau: float | None = None
    """Kendall's correlation of a supernet's scores and those of the same shapes trained alone."""
    tau: float | None = None
    """Kendall's correlation of the candidates' scores before and after their whole training."""


class Kept(Strict):
    """The common fields of runs and sweeps."""

    recipe: str
    task: str
    headline: str
    split: str
    made: Made
    note: str = ""
    purged: Purged | None = None
    """None in files of releases that did not purge splits."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The values by which two files belong to the same run."""
        return type(self).__name__, self.recipe, self.task, self.made.teacher


class Run(Kept):
    """A run of a recipe: its models, and the number of rows by split."""

    kind: Literal["run"] = "run"
    rows: dict[str, int]
    synthetic: bool = False
    measured_at: dict[str, Number | str | None]
    """The conditions of latencies; see ``Conditions``."""
    search: KeptSearch | None = None
    """None without a search over shapes, and in files of releases that did not keep it."""
    models: tuple[Entry, ...] = Field(min_length=2)


class Cell(Strict):
    """One strategy at one number of dropped layers; a cell without a score was not trained to the end."""

    strategy: str
    drop: int
    score: Score | None = None
    chosen: bool = False


class Within(Strict):
    """The largest number of layers that can be dropped within a distance (in points) from the teacher: by the interval,
    and by the mean alone."""

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
