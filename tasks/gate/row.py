"""One model in the form that criteria read: its figures on the rows that the gate judges by."""

from __future__ import annotations

from tasks.results.row import Conditions, Cost, Number, Stated


class Lead(Stated):
    """The bounds of the gain of the headline score over the teacher."""

    low: Number | None = None
    high: Number | None = None


class GateRow(Stated):
    """The figures of one model; None is unknown. A registered version has those that were written with it."""

    name: str = ""
    role: str = "student"
    checkpoint: str | None = None
    metrics: dict[str, Number | None] = {}
    retained: Number | None = None
    parameters: Number | None = None
    bytes: Number | None = None
    flops: Number | None = None
    latency_ms: Number | None = None
    speedup: Number | None = None
    unsteady: str | bool | None = None
    """The reason why its speed decides nothing; empty, or None, if it is steady."""
    measured_at: Conditions | None = None
    """The conditions of its speed; None of versions that were registered without them."""
    memory_bytes: Number | None = None
    token_ms: Number | None = None
    token_bytes: Number | None = None
    fertility: Number | None = None
    fertility_elsewhere: Number | None = None
    ms_per_text: Number | None = None
    packed_bytes: Number | None = None
    nonzero_share: Number | None = None
    bits: Number | None = None
    cost: Cost | None = None
    headline: Number | None = None
    quality: Number | None = None
    """The headline score, with a sign so that more is better."""
    selection: Number | None = None
    """The score on the selection rows, where more is always better."""
    of_error: bool = False
    """The headline score is an error: less is better, and nothing bounds it from above."""
    perfect: bool = False
    """It makes no error on the gate's rows."""
    rows_of_one_class: int = 0
    """The number of the gate's rows if it gives all of them one class although they have several; else 0."""
    on: dict[str, GateRow] = {}
    """The same by judging set."""
    lead: Lead | None = None

    @property
    def figures(self) -> dict[str, Number | None]:
        """The figures of every model, by the metric of a criterion."""
        return {
            "retained": self.retained,
            "parameters": self.parameters,
            "bytes": self.bytes,
            "flops": self.flops,
            "latency_ms": self.latency_ms,
            "speedup": self.speedup,
            "memory_bytes": self.memory_bytes,
            "token_ms": self.token_ms,
            "token_bytes": self.token_bytes,
            "fertility": self.fertility,
            "fertility_elsewhere": self.fertility_elsewhere,
            "ms_per_text": self.ms_per_text,
            "packed_bytes": self.packed_bytes,
            "nonzero_share": self.nonzero_share,
            "bits": self.bits,
        }

    def worth(self, measure: str) -> Number | None:
        """Return the score by ``measure``, ``selection`` or ``quality``; the headline score of a version that was
        registered without it."""
        stated = {"selection": self.selection, "quality": self.quality}[measure]
        return stated if measure in self.model_fields_set else self.headline


def timed_otherwise(ours: GateRow, theirs: GateRow) -> str:
    """Return a phrase with the conditions of two speeds, ours first, if they are not the same; empty if they are, or if
    one of them is unknown."""
    told = [conditions_of(row.measured_at) for row in (ours, theirs) if row.measured_at is not None]
    return f"at {told[0]} and at {told[1]}" if len(told) == 2 and told[0] != told[1] else ""


def conditions_of(found: Conditions) -> str:
    """Return in words what the time of a text depends on besides the model and the machine."""
    return f"batch {found.batch}, length {found.length}, {found.threads} thread{'' if found.threads == 1 else 's'}"
