"""One row of a run's results: all figures and decisions about one model, as stored in ``results.json``.

A row is completed step by step at the end of a run: scores first, then latency, judging sets, exports, cost and the
gate's decision. Fields that were never set are not written, so the keys of a run's file are stable; rows of older
releases lack fields, and may have others, which are preserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self, TypedDict, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue

Number = int | float
"""A figure as stored in the file: counts stay integers."""


class Stated(BaseModel):
    """A frozen part of a result; unknown names are preserved and written again."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="constants", protected_namespaces=())

    def replaced(self, **changes: object) -> Self:
        """Return a copy with other values, which are validated; an unknown field name is a TypeError."""
        unknown = sorted(changes.keys() - type(self).model_fields.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**own, **changes})

    def as_json(self) -> dict[str, JsonValue]:
        """Return the values to write to JSON files, without fields that were never set."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)


class Bounds(TypedDict):
    """A defined figure with the bounds of its interval, as JSON files have it."""

    value: float
    low: float
    high: float


class Estimate(Stated):
    """A figure with the bounds of its interval; all are None where it is undefined."""

    value: Number | None = None
    low: Number | None = None
    high: Number | None = None

    def as_bounds(self) -> Bounds:
        """Return a defined figure as JSON files have it."""
        return cast(Bounds, self.as_json())


UNDEFINED = Estimate()


class Means(Stated):
    """Figures over all seeds on one set of rows, for comparing methods."""

    metrics: dict[str, Estimate] = {}
    retained: Estimate | None = None
    difference: Estimate | None = None
    agreement: Number | None = None
    drop: Number | None = None


class Comparison(Estimate):
    """A paired difference to a baseline or a control, its p-value corrected for all comparisons, and the verdict."""

    p: Number = 1.0
    seeds: tuple[int, int]
    """Seeds of the candidate and of the baseline."""
    verdict: str
    control: bool = False
    """Whether the other model is a control: made in the same way, without the choice that is judged."""
    differs: tuple[str, ...] = ()  # knobs in which both differ, where the recipe names the other in ``compared_to``


class SetScores(Stated):
    """The scores of one model on one judging set, or on both held-out splits together."""

    metrics: dict[str, Estimate]
    rows: int
    headline: str = ""
    """The metric of ``retained`` and ``difference``; of a set of another type than the task, its own one."""
    chance: Number | None = None  # the score of guessing, where rows are of another type than the task
    means: Means | None = None
    per_seed: dict[str, tuple[Number | None, ...]] = {}
    deviation: dict[str, Number | None] = {}
    retained: Estimate | None = None
    difference: Estimate | None = None
    agreement: Number | None = None
    drop: Number | None = None
    """How far the headline score is below that on the task's own rows; None if classes are merged, or another leads."""
    merges: tuple[str, ...] = ()
    against: dict[str, Comparison] = {}
    """By the model that it is compared to, as on the task's own rows."""


class Conditions(Stated):
    """The conditions under which latency was measured."""

    batch: int | None = None
    length: int | None = None
    threads: int | None = None
    repeats: int | None = None
    engine: str = ""


class Timing(Stated):
    """Median latencies, in ms, of one measurement that alternates with the teacher, and the number of calls."""

    measured_ms: Number
    teacher_ms: Number
    calls: int


def with_value(amount: object) -> object:
    """Return an amount with its value by name; older releases wrote the number alone."""
    return {"value": amount} if isinstance(amount, (int, float)) else amount


class Amount(Stated):
    """One figure of a ledger, with its method; for a sum with unknown parts, ``at_least`` is the sum of the known
    parts."""

    value: Number | None = None
    how: str = ""
    by: str = ""
    at_least: Number | None = None


Part = Annotated[Amount | None, BeforeValidator(with_value)]


class Cost(Stated):
    """The cost of stages; for a candidate, that of its own training, and the energy of one inference (``joules``)."""

    seconds: Part = None
    gpu_seconds: Part = None
    kwh: Part = None
    co2e_kg: Part = None
    co2e_lb: Part = None
    dollars_on_demand: Part = None
    dollars_spot: Part = None
    joules: Part = None
    ancestors: Cost | None = None
    """The cost of the candidates that this one is made from; None if it is made from none."""
    shared: Cost | None = None
    """The cost of the other stages that it depends on, undivided."""

    def amounts(self) -> dict[str, Amount]:
        """Return the known figures by name."""
        found = {name: getattr(self, name) for name in Cost.model_fields if name not in ("ancestors", "shared")}
        return {name: amount for name, amount in found.items() if amount is not None}


class Fp32Score(Stated):
    """The score of the fp32 graph from which an int8 graph was quantized."""

    score: Number | None = None


class ExportFacts(Stated):
    """Facts about one exported graph: parity with its original model, and whether it is published."""

    format: str = ""
    published: bool = False
    because: str = ""
    speedup: Number | None = None
    """Speed-up over its own fp32 graph; None if it was not timed."""
    unsteady: str | None = None
    rows: int = 0
    equal_answers: Number | None = None
    """Share of rows with equal answers."""
    largest_difference: Number | None = None
    metric: str = ""
    score: Number | None = None
    fp32: Fp32Score | None = None
    sha256: str | None = None
    """Digest of the graph's file."""


def word_of(verdict: object) -> object:
    """Return the word of a verdict; older releases wrote a mapping that contains it."""
    return verdict.get("verdict") or verdict.get("word") if isinstance(verdict, Mapping) else verdict


Verdict = Annotated[str | None, BeforeValidator(word_of)]


class ResultRow(Stated):
    """All figures and decisions about one model; figures are those of the registered seed, ``means`` are over all
    seeds.

    ``bytes`` is the size of the weights, ``flops`` is for one input of ``flops_length`` tokens, latencies are in
    milliseconds.
    """

    name: str
    role: str
    parameters: Number | None = None
    bytes: Number | None = None
    flops: Number | None = None
    flops_length: int | None = None
    metrics: dict[str, dict[str, Estimate]]
    """By split and metric."""
    retained: dict[str, Estimate] | None = None
    """Share of the teacher's headline score, by split."""
    agreement: dict[str, Number | None] | None = None
    """Share of answers equal to the teacher's, by split."""
    means: dict[str, Means] | None = None
    per_seed: dict[str, dict[str, tuple[Number | None, ...]]] = {}
    """By split and metric, in the order of the recipe's seeds."""
    deviation: dict[str, dict[str, Number | None]] | None = None
    """Standard deviation over seeds, by split and metric; None for one seed."""
    difference: dict[str, Estimate] | None = None
    """Paired difference of the headline score to the teacher's, by split."""
    headline: str
    truncated: Number | None = None
    memory_bytes: Number | None = None
    token_ms: Number | None = None
    """Of a language model: milliseconds of one further token."""
    token_speedup: Number | None = None
    token_bytes: Number | None = None
    """Bytes of memory that each token of a text takes."""
    fertility: Number | None = None
    """Pieces per word of the validation split; only in runs with models of different vocabularies."""
    fertility_elsewhere: Number | None = None
    """Pieces per word of the judging sets."""
    ms_per_text: Number | None = None
    """Milliseconds for one text of the validation split."""
    packed_bytes: Number | None = None
    """Bytes of the packed weights; only in runs with models that have zeros."""
    nonzero_share: Number | None = None
    """Share of the parameters that are not 0; unknown of exports."""
    bits: Number | None = None
    """Bits of a weight of its matrices; of a model that is trained for few, those of its grid. Only in runs with such
    models."""
    pretraining: dict[str, Number] = {}
    """Accuracies on held-back documents of a model that was pretrained in this run, means over its seeds: of ``words``,
    of ``sop``, whether segments are swapped, and of ``nsp``, whether they are of two documents."""
    measured_at: Conditions | None = None
    train_seconds: tuple[Number | None, ...] | None = None
    checkpoint: str | None = None
    selected_seed: int | None = None
    selection_score: Number | None = None
    selection_scores: tuple[Number | None, ...] | None = None
    note: str | None = None
    provenance: dict[str, str] | None = None
    latency_ms: Number | None = None
    latency_low_ms: Number | None = None
    latency_high_ms: Number | None = None
    latency_p95_ms: Number | None = None
    speedup: Number | None = None
    unsteady: str | None = None
    """The reason why its speed is too unstable to be used in decisions; None if it is stable."""
    timed: Timing | None = None
    judged: dict[str, SetScores] | None = None
    """By judging set."""
    pooled: SetScores | None = None
    """On the rows of both held-out splits together; None where a run has one split alone, and in older results."""
    against: dict[str, dict[str, Comparison]] | None = None
    """By labels-only baseline and split."""
    plain: bool = False
    """Whether the model was trained with labels alone."""
    inspection: dict[str, JsonValue] | None = None
    """Results of its error analysis."""
    made_from: str | None = None
    """The model that an entry of ``candidates`` is made from; None for other models."""
    made_by: str | None = None
    """Its maker."""
    of: str | None = None
    """The original model of an export."""
    engine: str | None = None
    export: ExportFacts | None = None
    cost: Cost | None = None
    gate: str | None = None
    verdict: Verdict = None
    reasons: tuple[str, ...] = ()
    closest: bool = False
    shortfall: Number | None = None
    seeds: tuple[int, ...] | None = None
    steps: tuple[Number, ...] | None = None
    teacher_rows_read: tuple[int, ...] | None = None
    """Rows, for each seed, for which a training read the teacher's layers from the store; None without such a phase."""
    teacher_rows_computed: tuple[int, ...] | None = None
    """Rows, for each seed, for which a training ran the teacher to get its layers."""

    def score(self, split: str, metric: str | None = None) -> Estimate:
        """Return a score on a split, by the headline metric unless another is named."""
        return self.metrics.get(split, {}).get(metric or self.headline, UNDEFINED)

    def share(self, split: str) -> Estimate:
        """Return the share of the teacher's headline score on a split."""
        return (self.retained or {}).get(split, UNDEFINED)

    def gap(self, split: str) -> Estimate:
        """Return the paired difference to the teacher on a split."""
        return (self.difference or {}).get(split, UNDEFINED)

    def spread(self, split: str, metric: str | None = None) -> float | None:
        """Return the standard deviation of a score over seeds; None for one seed."""
        value = (self.deviation or {}).get(split, {}).get(metric or self.headline)
        return None if value is None else float(value)

    def mean(self, split: str, metric: str | None = None) -> Estimate | None:
        """Return the mean of a score over seeds; None for one seed, and in results of older releases."""
        if self.spread(split, metric) is None:
            return None
        found = (self.means or {}).get(split)
        return found.metrics.get(metric or self.headline) if found else None

    def compared(self, split: str) -> list[tuple[str, Comparison]]:
        """Return the comparisons with labels-only baselines on a split, by the baseline's name."""
        return [(name, splits[split]) for name, splits in (self.against or {}).items() if split in splits]

    @property
    def making(self) -> str:
        """How an entry of ``candidates`` is made, in words; empty for other models."""
        return f"made from {self.made_from} by {self.made_by}" if self.made_from and self.made_by else ""

    def on_sets(self) -> Self:
        """Return the row with judging sets in place of splits."""
        sets = self.judged or {}
        return self.replaced(
            metrics={name: found.metrics for name, found in sets.items()},
            retained={name: found.retained or UNDEFINED for name, found in sets.items()},
            agreement={name: found.agreement for name, found in sets.items()},
            means={name: found.means for name, found in sets.items() if found.means},
            per_seed={name: found.per_seed for name, found in sets.items()},
            deviation={name: found.deviation for name, found in sets.items()},
            difference={name: found.difference or UNDEFINED for name, found in sets.items()},
            against={
                other: {name: found.against[other] for name, found in sets.items() if other in found.against}
                for other in dict.fromkeys(other for found in sets.values() for other in found.against)
            },
        )
