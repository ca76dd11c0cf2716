"""The floor of a teacher: nothing is distilled from a teacher whose score is not clearly better than guessing."""

from __future__ import annotations

from tasks.errors import GateError
from tasks.recipe.slices import TeacherSlice
from tasks.results.facts import ModelFacts
from tasks.task_types.answers import ANSWERS
from tasks.task_types.types import ERROR_METRICS, TASK_TYPES, TaskType

ENOUGH = (
    200  # rows from which on the score itself is compared with the default floor: half its interval is at most 7 points
)


def require_floor(knobs: TeacherSlice, facts: ModelFacts, headline: str) -> str:
    """Raise GateError for a teacher below its floor; return a warning if its rows are too few to tell, else "".

    A floor that the recipe sets is compared with the score itself by the ``headline`` of the task, of which the floor
    is the largest value where it is an error. So is the default floor on ``ENOUGH`` rows or more; on fewer, it refuses
    a teacher only if the whole interval of its score lies below the floor.
    """
    rows, floor, source = facts.selection_count, knobs.floor, "teacher.floor"
    if floor is not None and headline in ERROR_METRICS:
        return require_ceiling(headline, -facts.score, floor, f"{rows:,} {where_scored(facts)}")
    if floor is not None:
        score = low = high = facts.score
    else:
        usual = ANSWERS[knobs.task_type].floor
        score, floor, source = facts.figures[usual.fact], usual.least(facts.figures), usual.description
        low, high = usual.interval(score, rows)
    where = where_scored(facts)
    if score < floor and (rows >= ENOUGH or high < floor):
        raise GateError(
            f"the teacher scores {score:.3f} on {rows:,} {where} and the floor is {floor:.3f} ({source}); "
            f"{advice_on_labels(TASK_TYPES[knobs.task_type])}train it longer, or set teacher.floor"
        )
    if rows >= ENOUGH or low >= floor:
        return ""
    return (
        f"the teacher scores {score:.3f} on {rows:,} {where}, with an interval from {low:.3f} to {high:.3f}: so few "
        f"rows cannot decide on the floor of {floor:.3f} ({source}); raise data.selection_rows (at most a tenth of "
        f"train is used), or add rows"
    )


def require_ceiling(headline: str, error: float, most: float, rows: str) -> str:
    """Raise GateError for a teacher whose error is larger than the recipe allows; else return no warning."""
    if error > most:
        raise GateError(
            f"the teacher has a {headline} of {error:.3f} on {rows}, and at most {most:.3f} is allowed "
            f"(teacher.floor); train it longer, or raise teacher.floor"
        )
    return ""


def where_scored(facts: ModelFacts) -> str:
    """Return the kind of rows on which a teacher was scored."""
    alone = "training rows, since there are no selection rows"
    return "selection rows" if facts.selection_split == "selection" else alone


def advice_on_labels(kind: TaskType) -> str:
    """Return what to check of the labels of a task type; nothing of one that learns from its texts alone."""
    if kind.writes:
        return "check the columns of sources and targets, "
    return "" if kind.keeps_words else "check the label column and label order, "
