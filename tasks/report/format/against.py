"""What may be said of a candidate beside its plain baseline: the difference, its interval, and the word that stands for
all comparisons at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def against_lines(models: Sequence[Mapping[str, Any]], split: str) -> list[str]:
    """Return a line for every comparison on a split, and one that says how far the words carry; nothing where nothing
    was compared."""
    said = [
        (model["name"], baseline, splits[split])
        for model in models
        for baseline, splits in against_of(model).items()
        if split in splits
    ]
    if not said:
        return []
    return [
        *(f"{name} against {baseline}: {gap(one)}, {one['verdict']}" for name, baseline, one in said),
        caveat([one for _, _, one in said]),
    ]


def against_of(model: Mapping[str, Any]) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return a candidate's comparisons by baseline and split."""
    return model.get("against") or {}


def gap(one: Mapping[str, Any]) -> str:
    """Return a difference and its interval, with signs."""
    return f"{one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"


def caveat(said: Sequence[Mapping[str, Any]]) -> str:
    """Say what the intervals hold and what the words are corrected for."""
    together = "Paired over rows and the seeds of both" + (
        f"; words hold for all {len(said)} comparisons together (Holm)." if len(said) > 1 else "."
    )
    return together + (
        " Where a side has one seed, the noise of training is not in it."
        if any(min(one["seeds"]) < 2 for one in said)
        else ""
    )


def against_sentence(model: Mapping[str, Any], split: str) -> str:
    """Say in one sentence how a model stands to the same shape trained on labels alone; nothing where there is none."""
    found = [(baseline, splits[split]) for baseline, splits in against_of(model).items() if split in splits]
    if not found:
        return ""
    parts = [f"{WORDS[one['verdict']]} `{baseline}` ({gap(one)}, {seeds_of(one)})" for baseline, one in found]
    return (
        f"Over seeds, its {model['headline']} on {split} is {', and '.join(parts)}, a model of the same size "
        f"that learned from the labels alone."
    )


def seeds_of(one: Mapping[str, Any]) -> str:
    """Say how many seeds stand on either side."""
    ours, theirs = one["seeds"]
    return f"{ours} seed{'s' if ours > 1 else ''} against {theirs}"


WORDS = {
    "better": "better than that of",
    "worse": "worse than that of",
    "inside the noise": "not distinguishable from that of",
    "not known by one seed": "apart, by one seed that proves nothing, from that of",
}
