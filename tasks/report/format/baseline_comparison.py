"""What may be said of a candidate beside its plain baseline: the difference, its interval, and the word that stands for
all comparisons at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasks.results.row import Comparison, Number, ResultRow


def baseline_lines(models: Sequence[ResultRow], split: str) -> list[str]:
    """Return a line for every comparison on a split, and one that says how far the words carry; nothing where nothing
    was compared."""
    said = [(model.name, baseline, one) for model in models for baseline, one in model.compared(split)]
    if not said:
        return []
    return [
        *(f"{name} against {baseline}: {gap(one)}, {one.verdict}" for name, baseline, one in said),
        caveat([one for _, _, one in said]),
    ]


class Bounded(Protocol):
    """A figure with the bounds of its interval."""

    @property
    def value(self) -> Number | None:
        """The figure."""

    @property
    def low(self) -> Number | None:
        """Its lower bound."""

    @property
    def high(self) -> Number | None:
        """Its upper bound."""


def gap(one: Bounded) -> str:
    """Return a difference and its interval, with signs."""
    return f"{one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"


def caveat(said: Sequence[Comparison]) -> str:
    """Say what the intervals hold and what the words are corrected for."""
    together = "Paired over rows and the seeds of both" + (
        f"; words hold for all {len(said)} comparisons together (Holm)." if len(said) > 1 else "."
    )
    return together + (
        " Where a side has one seed, the noise of training is not in it."
        if any(min(one.seeds) < 2 for one in said)
        else ""
    )


def baseline_sentence(model: ResultRow, split: str) -> str:
    """Say in one sentence how a model stands to the same shape trained on labels alone; nothing where there is none."""
    found = model.compared(split)
    if not found:
        return ""
    parts = [f"{WORDS[one.verdict]} `{baseline}` ({gap(one)}, {seeds_of(one)})" for baseline, one in found]
    return (
        f"Over seeds, its {model.headline} on {split} is {', and '.join(parts)}, a model of the same size "
        f"that learned from the labels alone."
    )


def seeds_of(one: Comparison) -> str:
    """Say how many seeds stand on either side."""
    ours, theirs = one.seeds
    return f"{ours} seed{'s' if ours > 1 else ''} against {theirs}"


WORDS = {
    "better": "better than that of",
    "worse": "worse than that of",
    "inside the noise": "not distinguishable from that of",
    "not known by one seed": "apart, by one seed that proves nothing, from that of",
}
