"""Scores on a second held-out split beside those on the split that a run reports, how far the two disagree, and the
score on the rows of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.report.format.numbers import plural
from tasks.report.results.results_file import Entry, Run, Score
from tasks.report.results.score_cells import scored

MUCH = 0.015
"""Share of the score of which a model may lose more on the second split than on the first before it is counted."""


def further_splits(runs: Sequence[Run]) -> list[str]:
    """Return the splits on which models are scored besides the one that runs report."""
    found = {split for run in runs for entry in run.models for split in entry.scores}
    return sorted(found - {run.split for run in runs})


def disagreement(runs: Sequence[Run], split: str) -> str:
    """Return a sentence on how much more the models lose to their teachers on a second split than on the reported one,
    on the mean; empty if none has a score on both. A model of several runs counts once."""
    known = {(entry.name, str(entry.scores)): found for run in runs for entry, found in further_losses(run, split)}
    if not known:
        return ""
    losses, first = list(known.values()), runs[0]
    mean, many = sum(losses) / len(losses), sum(one > MUCH for one in losses)
    word, others = "less" if mean < 0 else "more", plural(len(losses), "model")
    return (
        f"On {split} rows the {others} of this table but the teacher lose to it {100 * abs(mean):.1f} points {word} "
        f"than on {first.split} rows, on the mean; {many} of them more than {100 * MUCH:g}."
    )


def further_losses(run: Run, split: str) -> Iterator[tuple[Entry, float]]:
    """Yield each model but the teacher with what it loses more to the teacher on a second split."""
    teacher = teacher_of(run)
    for entry in run.models if teacher is not None else ():
        first, second = (loss_to(teacher, entry, place, run.headline) for place in (run.split, split))
        if entry is not teacher and first is not None and second is not None:
            yield entry, second - first


def teacher_of(run: Run) -> Entry | None:
    """Return the teacher of a run; None if it is not among its models."""
    return next((one for one in run.models if one.role == "teacher"), None)


def loss_to(teacher: Entry | None, entry: Entry, split: str, metric: str) -> float | None:
    """Return how much a model is below its teacher on a split; None if either has no score there."""
    ours, theirs = (one and one.scores.get(split, {}).get(metric) for one in (entry, teacher))
    if not ours or not theirs or ours.value is None or theirs.value is None:
        return None
    return theirs.value - ours.value


def pooled_heads(runs: Sequence[Run]) -> list[str]:
    """Return the head of the column of pooled scores; empty if no run has any."""
    return ["on both together"] if any(entry.pooled for run in runs for entry in run.models) else []


def pooled_cells(run: Run, entry: Entry) -> list[str]:
    """Return a model's cell in that column: the score on the rows of both held-out splits together."""
    return [scored(entry.pooled.scores.get(run.headline, Score()) if entry.pooled else Score())]
