"""Recipe sections on scores, speed, exports and the criteria of the gate."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.knobs import HEADLINE, Knobs, Name, added_knob, require_distinct, runtime_knob
from tasks.task_types.types import ERROR_METRICS

OF_TEXTS = ("fertility", "fertility_elsewhere", "ms_per_text")
"""Figures of real texts: pieces per word, and latency. They are measured if a candidate has a tokenizer of its own."""
OF_ZEROS = ("packed_bytes", "nonzero_share")
"""Figures of models with zeros: the bytes of the packed weights, and the share of the parameters that are not 0. They
are measured for all models of a run of which one has zeros."""
OF_TOKENS = ("token_ms", "token_bytes")
"""Of a language model: milliseconds of one further token, and the bytes of memory that each token of a text takes."""
OF_GRIDS = ("bits",)
"""Bits of a weight of the matrices, known of all models of a run of which one is trained for few bits."""
FIGURES = (
    "retained",
    "parameters",
    "bytes",
    "flops",
    "latency_ms",
    "speedup",
    "memory_bytes",
    *OF_TOKENS,
    *OF_TEXTS,
    *OF_ZEROS,
    *OF_GRIDS,
)

COSTS = ("kwh", "co2e_kg", "dollars", "dollars_spot", "joules")
"""Figures that the gate can use besides the task's metrics: ``FIGURES`` of every row, and ``COSTS`` if a ledger knows
them; joules are per inference."""


class ScoreKnobs(Knobs):
    """Knobs that determine the scores of a candidate, besides the metrics of its task."""

    resamples: int = Field(1000, ge=100, le=100_000, description="Bootstrap resamples behind every interval.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Confidence of the intervals.")
    max_length: int = Field(128, ge=8, le=8192, description="Longest input in tokens.")
    flops_length: int = Field(128, ge=1, description="Input length at which FLOPs are stated.")


OWN_METRIC = re.compile(r"own/([a-z][a-z0-9_]{0,39})")
"""The name of a registered metric in a recipe."""


class Scoring(ScoreKnobs):
    """How candidates are scored."""

    metrics: tuple[str, ...] = Field(
        (),
        description="Further metrics beside the task's: auroc (two classes), another metric of the task's type, or "
        "own/NAME of limbeck metrics. They are reported, and the gate can use them; none chooses checkpoints.",
    )

    @model_validator(mode="after")
    def metrics_differ(self) -> Self:
        """Reject repeated metrics."""
        require_distinct(self.metrics, "metrics")
        return self


def score_knobs(scoring: Scoring) -> dict[str, object]:
    """Return the knobs that a scorecard takes."""
    return {name: getattr(scoring, name) for name in ScoreKnobs.model_fields}


def own_metrics_of(scoring: Scoring) -> tuple[str, ...]:
    """Return the names of the registered metrics, without ``own/``."""
    return tuple(found[1] for name in scoring.metrics if (found := OWN_METRIC.fullmatch(name)))


class Speed(Knobs):
    """How latency and memory are measured: alternately with the teacher's, on the same machine."""

    batch: int = Field(1, ge=1, description="Sentences at once.")
    length: int = Field(32, ge=1, description="Tokens in a sentence.")
    threads: int = Field(1, ge=1, description="CPU threads.")
    repeats: int = Field(
        30,
        ge=5,
        description="Minimum number of timed calls of each model; more follow until its median is known within 5 %.",
    )
    warmup: int = Field(5, ge=0, description="Untimed warm-up calls.")
    seconds: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="Time limit of timed calls: figures not known by then are unsteady and not used for decisions. "
        "At least a tenth of the limit is used.",
    )


class Exporting(Knobs):
    """Knobs that determine an fp32 graph."""

    opset: int = Field(
        20, ge=18, le=22, description="Version of ONNX's operations; ONNX Runtime 1.17 and newer read 20."
    )
    parity_rows: int = Field(
        128, ge=1, description="Real rows on which a graph and its checkpoint are compared, padded together."
    )


class Quantizing(Knobs):
    """Knobs that determine a quantized graph."""

    calibration_rows: int = Field(200, ge=1, le=10_000, description="Training rows from which static takes its ranges.")
    clip_percentile: float | None = added_knob(
        None,
        "Percent of the states that static keeps within its ranges, for example 99.9; empty: all.",
        ge=90,
        lt=100,
    )
    seed: int = Field(0, ge=0, description="Seed of the sample.")


class Exports(Exporting, Quantizing):
    """Export finished models for ONNX Runtime. Every export has its own row in the table; exports that pass their
    checks are published in the folder of their model."""

    formats: tuple[Literal["onnx", "int8", "int8-table4", "four-bit", "executorch", "executorch-int8"], ...] = Field(
        ("onnx", "int8"),
        min_length=1,
        description="onnx: fp32; quantized from it are int8, a quarter of its size; int8-table4: int8 with the "
        "embeddings in four bits; four-bit: all weights in four bits, a sixth of its size, slower than int8; "
        "executorch, executorch-int8: programs for phones (extra phone).",
    )
    ways: tuple[Literal["dynamic", "static"], ...] = Field(
        ("dynamic", "static"),
        min_length=1,
        description="Ranges of activations in int8: dynamic finds them in every call, static in rows of train. The "
        "better one is used.",
    )
    of: tuple[Name, ...] = Field(
        (),
        description="Models to export, for example teacher; empty: every student and dropped model, not the baselines.",
    )
    parity: float = Field(
        1e-3, gt=0, description="Maximum difference of any logit between the fp32 graph and the checkpoint."
    )
    tolerance: float = Field(
        0.01,
        ge=0,
        description="Maximum loss of the headline metric of a quantized graph against its own fp32 graph on the "
        "selection rows; of an error, such as a perplexity, as a share of the fp32 graph's.",
    )
    min_speedup: float = Field(
        1.0,
        ge=0,
        description="Minimum speed-up of a quantized graph over its own fp32 graph, timed alternately as in section "
        "speed; 1: not slower, with a tolerance of 5 %; 0: any.",
    )
    reduce_range: Literal["auto", "yes", "no"] = Field(
        "auto", description="Seven bits for weights. auto: if the processor has no int8 multiplication (VNNI)."
    )

    @property
    def quantized(self) -> tuple[str, ...]:
        """The formats of less than 32 bits."""
        return tuple(name for name in self.formats if name not in ("onnx", "executorch"))

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """Reject repeated values: they would be computed once and counted twice."""
        for what in ("formats", "of", "ways"):
            require_distinct(getattr(self, what), what)
        return self


LARGEST_SHARE = 2.0
"""A candidate with more than twice its reference's score is not asked for: a larger bound is a percentage."""


class Criterion(Knobs):
    """One condition that a candidate must meet: a bound on a figure, or a test against the teacher or the current
    champion."""

    metric: str = Field(
        description=f"A metric of the task, {HEADLINE} for its headline metric, or one of "
        f"{', '.join((*FIGURES, *COSTS))}. retained is the share of the teacher's headline score; of an error, such as "
        f"a perplexity, the teacher's over the model's."
    )
    at_least: float | None = Field(None, description="Lowest acceptable value.")
    at_most: float | None = Field(None, description="Highest acceptable value.")
    reading: Literal["interval", "mean"] = Field(
        "interval",
        description="Value compared with a bound on quality: the worse end of the interval, or the mean, which "
        "ignores noise.",
    )
    of_teacher: bool = Field(
        False, description="The bound is a share of the teacher's value; short for relative_to: teacher."
    )
    relative_to: Literal["teacher", "champion"] | None = Field(
        None, description="Model of the reference value of the bound or the test; met if there is no champion yet."
    )
    by: Literal["share", "difference"] = Field(
        "share", description="A relative bound is a share of the reference value, or a difference to it."
    )
    tolerance: float = Field(
        0.0, ge=0, description="Tolerance beyond the bound, in the metric's own unit; the margin of a test."
    )
    test: Literal["non-inferiority", "superiority"] | None = Field(
        None,
        description="Instead of a bound, for a metric of the task: the paired difference's interval must clear the "
        "margin, below or above zero.",
    )
    confidence: float = Field(
        0.95,
        gt=0.5,
        lt=1,
        description="Confidence of the two-sided interval; corrected for several candidates (Holm).",
    )
    worst_of: tuple[str, ...] = Field(
        (), description="Judging sets, and the gate's split; the worst result counts. Empty: the gate's split."
    )

    @model_validator(mode="after")
    def is_known_on_every_set(self) -> Self:
        """Reject ``worst_of`` for anything but a model's quality: judging sets have no other figures, and no champion's
        predictions."""
        if self.worst_of and (not self.is_quality or self.reference == "champion"):
            raise ValueError(
                f"criterion {self.metric!r}: worst_of compares a metric of the task, or retained, with a bound or "
                f"the teacher; remove worst_of"
            )
        require_distinct(self.worst_of, "worst_of")
        return self

    @model_validator(mode="after")
    def has_one_bound(self) -> Self:
        """Reject a criterion without exactly one bound or one valid test: without a bound it would accept
        everything."""
        bounds = (self.at_least is not None) + (self.at_most is not None)
        if self.test is None and bounds != 1:
            raise ValueError(f"criterion {self.metric!r} needs exactly one of at_least and at_most")
        if self.test is not None and (bounds or self.reference is None or self.metric in (*FIGURES, *COSTS)):
            legal = "a test compares a metric of the task with relative_to: teacher or champion"
            raise ValueError(f"criterion {self.metric!r}: {legal}; remove at_least and at_most")
        if self.of_teacher and self.relative_to == "champion":
            raise ValueError(
                f"criterion {self.metric!r} is relative to the teacher and to the champion; write it as two criteria"
            )
        if self.metric == "retained" and self.relative_to is not None:
            raise ValueError(
                "criterion 'retained' is a share of the teacher's score already; remove relative_to, or compare the "
                "task's metric with the champion's"
            )
        if self.by == "difference" and self.reference is None:
            raise ValueError(
                f"criterion {self.metric!r} is a difference and needs a reference; set relative_to: teacher or champion"
            )
        if self.reading == "mean" and (self.test is not None or not self.is_quality):
            raise ValueError(
                f"criterion {self.metric!r}: reading: mean is for bounds on quality; tests use intervals, and a cost "
                f"has none; remove it"
            )
        return self

    @property
    def is_quality(self) -> bool:
        """Tell whether the criterion is about a model's quality, which varies with the sample of rows, and not about
        its cost."""
        return self.metric == "retained" or self.metric not in (*FIGURES, *COSTS)

    @property
    def reads_interval(self) -> bool:
        """Tell whether the verdict reads an interval: of a test, or of a bound on quality that is not read by the
        mean."""
        return self.test is not None or (self.is_quality and self.reading == "interval")

    @property
    def reference(self) -> Literal["teacher", "champion"] | None:
        """The model whose value the criterion is relative to, if any."""
        return "teacher" if self.of_teacher else self.relative_to


class Gate(Knobs):
    """Conditions under which a candidate may become champion."""

    criteria: tuple[Criterion, ...] = Field(
        (Criterion(metric=HEADLINE, test="non-inferiority", relative_to="teacher", tolerance=0.02),),
        description="All must be met; the default: not more than two points (0.02) below the teacher, by the interval.",
    )
    prefer: Literal["smallest", "fastest", "best"] = Field(
        "smallest", description="Preference among accepted candidates for the champion."
    )
    split: Literal["validation", "holdout"] = Field(
        "holdout",
        description="Split on which the gate decides: holdout; or validation, which earlier experiments have already "
        "used.",
    )
    too_good: float = Field(
        0.05,
        ge=0,
        description="A headline score whose interval lies more than this above the teacher's is investigated, not "
        "accepted; of an error, such as a perplexity: more than this share of the teacher's below it.",
    )
    perfect_rows: int = Field(
        100, ge=1, description="A perfect headline score on at least this many rows is investigated, not accepted."
    )
    leakage: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Maximum share of the split's rows that overlap with the students' training data; a larger share "
        "is investigated.",
    )
    promote: Literal["auto", "manual", "never"] = runtime_knob(
        "auto", "The best accepted candidate becomes champion, or challenger (manual), or nothing (never)."
    )
    margin: float = runtime_knob(
        0.0,
        "Maximum loss of the headline score (0.01 is one point) of a new champion against the old one, by the "
        "interval.",
        ge=0,
    )
    register_as: str | None = runtime_knob(
        None, "Name of the registered model; empty: task and teacher.", pattern=r"^\w[\w .-]*$"
    )

    def for_headline(self, metric: str) -> Gate:
        """Return the gate with the placeholder ``headline`` replaced by a task's headline metric."""
        criteria = tuple(
            one.model_copy(update={"metric": metric}) if one.metric == HEADLINE else one for one in self.criteria
        )
        return self.model_copy(update={"criteria": criteria})

    def require_shares(self) -> None:
        """Reject bounds on quality that are percentages: nothing reaches them, or everything passes. Raises
        ValueError."""
        for one in self.criteria:
            if not one.is_quality or one.metric in ERROR_METRICS or OWN_METRIC.fullmatch(one.metric):
                continue
            relative = one.metric == "retained" or (one.reference is not None and one.by == "share")
            most = {"at_least": LARGEST_SHARE, "at_most": LARGEST_SHARE} if relative else {}
            for knob in ("at_least", "at_most", "tolerance"):
                given = getattr(one, knob)
                if given is not None and abs(given) > most.get(knob, 1.0):
                    raise ValueError(
                        f"gate.criteria: {knob} of {one.metric} is {given:g}, and scores are shares of 1; write "
                        f"{given / 100:g} for {given:g} %"
                    )
