"""The comparison of a candidate with its labels-only baseline, in words: the difference, its interval, and the
verdict, which is corrected for all comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasks.results.row import Comparison, Number, ResultRow


def baseline_lines(models: Sequence[ResultRow], split: str) -> list[str]:
    """Return a line for every comparison on a split, and one on the validity of the verdicts; empty if nothing was
    compared."""
    said = [(model.name, baseline, one) for model in models for baseline, one in model.compared(split)]
    if not said:
        return []
    return [*(comparison_line(*each) for each in said), caveat([one for _, _, one in said])]


def comparison_line(name: str, other: str, one: Comparison) -> str:
    """Return one comparison in words."""
    return f"{name} against {other}{unlike(one.differs)}: {gap(one)}, {one.verdict}"


def lines_on_further_rows(models: Sequence[ResultRow], places: Sequence[str]) -> list[str]:
    """Return a line for every comparison on each of several splits, or judging sets that stand for splits, with the
    name of the rows, and one on the validity of the verdicts; empty if nothing was compared."""
    said = [
        (place, model.name, other, one) for place in places for model in models for other, one in model.compared(place)
    ]
    if not said:
        return []
    lines = [f"On {place}, {comparison_line(name, other, one)}" for place, name, other, one in said]
    return [*lines, caveat([one for *_, one in said], "all comparisons on the same rows")]


def unlike(knobs: Sequence[str]) -> str:
    """Return in brackets the knobs in which two models differ; empty if none are known."""
    return f" (other {', '.join(knobs)})" if knobs else ""


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


def caveat(said: Sequence[Comparison], corrected: str = "") -> str:
    """Return a sentence on the noise covered by the intervals and on the comparisons for which verdicts are corrected:
    all of them, or those that are named."""
    together = "Paired over rows and the seeds of both" + (
        f"; verdicts are corrected for {corrected or f'all {len(said)} comparisons'} (Holm)." if len(said) > 1 else "."
    )
    return together + (
        " Where a side has one seed, the interval does not include the noise of training."
        if any(min(one.seeds) < 2 for one in said)
        else ""
    )


def baseline_sentence(model: ResultRow, split: str) -> str:
    """Return a sentence that compares a model with those of the same shape trained on labels alone, and with its
    controls; empty if there are none."""
    found = model.compared(split)
    if not found:
        return ""
    parts = [
        f"{WORDS[one.verdict]} `{baseline}` ({gap(one)}, {seeds_of(one)}), {what_it_is(one)}" for baseline, one in found
    ]
    return f"Over seeds, its {model.headline} on {split} is {', and '.join(parts)}."


def what_it_is(one: Comparison) -> str:
    """Return in words what the other model of a comparison is."""
    if one.differs:
        return f"which differs in {', '.join(one.differs)}"
    return "its control" if one.control else "a model of the same size trained on labels alone"


def seeds_of(one: Comparison) -> str:
    """Return the number of seeds on either side, in words."""
    ours, theirs = one.seeds
    return f"{ours} seed{'s' if ours > 1 else ''} against {theirs}"


WORDS = {
    "better": "better than that of",
    "worse": "worse than that of",
    "inside the noise": "indistinguishable from that of",
    "not known by one seed": "different, on the evidence of one seed only, from that of",
    "not known by so few groups": "different, on rows of few groups only, from that of",
}
