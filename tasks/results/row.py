"""One row of a run's results: everything that a run states about one model, as ``results.json`` has it.

A row grows while a run ends: scores first, then latency, judging sets, exports, cost and the gate's decision. A field
that was never set is not written, so the file of a run has the keys that it always had; rows of older releases lack
fields, and may have others, which are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

Number = int | float
"""A figure as the file has it: a count stays a whole number."""


class Stated(BaseModel):
    """A frozen part of a result; names that are not known here are kept and written again."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="constants", protected_namespaces=())

    def replaced(self, **changes: object) -> Self:
        """Return a copy with other values; they are checked, and a name that is no field is a TypeError."""
        unknown = sorted(changes.keys() - type(self).model_fields.keys())
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self).model_validate({**own, **changes})

    def as_json(self) -> dict[str, Any]:
        """Return the plain values that are written to files; fields that were never set are left out."""
        return self.model_dump(mode="json", exclude_unset=True)


class Estimate(Stated):
    """A figure with the bounds of its interval; all are None where it is undefined."""

    value: Number | None = None
    low: Number | None = None
    high: Number | None = None


UNDEFINED = Estimate()


class Means(Stated):
    """Figures over all seeds on one set of rows, for comparing methods."""

    metrics: dict[str, Estimate] = {}
    retained: Estimate | None = None
    difference: Estimate | None = None
    agreement: Number | None = None
    drop: Number | None = None


class Comparison(Estimate):
    """A paired difference to a plain baseline, its p-value corrected for the number of comparisons, and the verdict."""

    p: Number = 1.0
    seeds: tuple[int, int]
    """Seeds of the candidate and of the baseline."""
    verdict: str


class SetScores(Stated):
    """The scores of one model on one judging set."""

    metrics: dict[str, Estimate]
    rows: int
    means: Means | None = None
    per_seed: dict[str, tuple[Number | None, ...]] = {}
    deviation: dict[str, Number | None] = {}
    retained: Estimate | None = None
    difference: Estimate | None = None
    agreement: Number | None = None
    drop: Number | None = None
    """How far the headline score lies below that on the task's own rows; None where classes are merged."""
    merges: tuple[str, ...] = ()


class Conditions(Stated):
    """The conditions under which latency was measured."""

    batch: int | None = None
    length: int | None = None
    threads: int | None = None
    repeats: int | None = None
    engine: str = ""


class Timing(Stated):
    """Medians of one timing in turn with the teacher, in ms, and the number of calls."""

    measured_ms: Number
    teacher_ms: Number
    calls: int


class Amount(Stated):
    """One figure of a ledger, with its method; of a sum with unknown parts, ``at_least`` is the sum of the others."""

    value: Number | None = None
    how: str = ""
    by: str = ""
    at_least: Number | None = None


class Cost(Stated):
    """The cost of a candidate's own training stages, and the energy of one inference (``joules``)."""

    seconds: Amount | None = None
    gpu_seconds: Amount | None = None
    kwh: Amount | None = None
    co2e_kg: Amount | None = None
    co2e_lb: Amount | None = None
    dollars_on_demand: Amount | None = None
    dollars_spot: Amount | None = None
    joules: Amount | None = None

    def amounts(self) -> dict[str, Amount]:
        """Return the figures that are stated, by name."""
        found = {name: getattr(self, name) for name in Cost.model_fields}
        return {name: amount for name, amount in found.items() if amount is not None}


class Fp32Score(Stated):
    """The score of the fp32 graph that an int8 one was made of."""

    score: Number | None = None


class ExportFacts(Stated):
    """Facts of one exported graph: parity with the model that it was made of, and whether it is published."""

    format: str = ""
    published: bool = False
    because: str = ""
    speedup: Number | None = None
    """Speed-up over its own fp32 graph; None where it was not timed."""
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
    """Return the word of a verdict; older releases wrote a mapping around it."""
    return verdict.get("verdict") or verdict.get("word") if isinstance(verdict, Mapping) else verdict


Verdict = Annotated[str | None, BeforeValidator(word_of)]


class ResultRow(Stated):
    """Everything that a run states about one model; figures are those of the registered seed, ``means`` are over all.

    Bytes are those of the weights, ``flops`` those of one input of ``flops_length`` tokens, latencies milliseconds.
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
    """The reason why its speed decides nothing; None where it is steady."""
    timed: Timing | None = None
    judged: dict[str, SetScores] | None = None
    """By judging set."""
    against: dict[str, dict[str, Comparison]] | None = None
    """By plain baseline and split."""
    plain: bool = False
    """Whether it learned from labels alone."""
    inspection: dict[str, Any] | None = None
    """Facts of its error analysis."""
    of: str | None = None
    """The model that an export was made of."""
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

    def score(self, split: str, metric: str | None = None) -> Estimate:
        """Return a score on a split, the headline's unless another metric is named."""
        return self.metrics.get(split, {}).get(metric or self.headline, UNDEFINED)

    def share(self, split: str) -> Estimate:
        """Return the share of the teacher's headline score on a split."""
        return (self.retained or {}).get(split, UNDEFINED)

    def gap(self, split: str) -> Estimate:
        """Return the paired difference to the teacher on a split."""
        return (self.difference or {}).get(split, UNDEFINED)

    def spread(self, split: str, metric: str | None = None) -> float | None:
        """Return the standard deviation of a score over seeds; None where there is one seed."""
        value = (self.deviation or {}).get(split, {}).get(metric or self.headline)
        return None if value is None else float(value)

    def mean(self, split: str, metric: str | None = None) -> Estimate | None:
        """Return the mean of a score over seeds; None where there is one seed, and in results of older releases."""
        if self.spread(split, metric) is None:
            return None
        found = (self.means or {}).get(split)
        return found.metrics.get(metric or self.headline) if found else None

    def compared(self, split: str) -> list[tuple[str, Comparison]]:
        """Return the comparisons with plain baselines on a split, by the baseline's name."""
        return [(name, splits[split]) for name, splits in (self.against or {}).items() if split in splits]

    def on_sets(self) -> Self:
        """Return the row in which judging sets stand for splits."""
        sets = self.judged or {}
        return self.replaced(
            metrics={name: found.metrics for name, found in sets.items()},
            retained={name: found.retained or UNDEFINED for name, found in sets.items()},
            agreement={name: found.agreement for name, found in sets.items()},
            means={name: found.means for name, found in sets.items() if found.means},
            per_seed={name: found.per_seed for name, found in sets.items()},
            deviation={name: found.deviation for name, found in sets.items()},
            difference={name: found.difference or UNDEFINED for name, found in sets.items()},
        )

    def unscored(self) -> dict[str, Any]:
        """Return the figures of a row in which nothing was scored, with the splits and metrics of this one."""
        metrics = {split: dict.fromkeys(found, UNKNOWN) for split, found in self.metrics.items()}
        return {
            "metrics": metrics,
            "per_seed": {split: dict.fromkeys(found, ()) for split, found in self.metrics.items()},
            "deviation": {split: dict.fromkeys(found) for split, found in self.metrics.items()},
            "means": {},
            "retained": dict.fromkeys(self.retained or {}, UNKNOWN),
            "difference": dict.fromkeys(self.difference or {}, UNKNOWN),
            "agreement": dict.fromkeys(self.agreement or {}),
        }


UNKNOWN = Estimate(value=None, low=None, high=None)
"""An estimate that is written as three unknown figures."""
