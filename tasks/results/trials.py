"""The answer of a search over recipes: the ways to train one shape that were tried, by round."""

from __future__ import annotations

from tasks.results.row import Number, Stated


class TriedRecipe(Stated):
    """One way to train the shape."""

    name: str
    start: str
    method: str
    learning_rate: Number
    augmented: bool = False
    """Whether words of its training rows were replaced."""
    scores: tuple[Number | None, ...] = ()
    """On the selection rows, one a round, and that of the whole training of a candidate; fewer where it was left
    out."""
    seconds: Number = 0.0
    """Its training in all rounds but the last."""
    state: str = "not tried"
    """candidate, left out (of a later round), or not tried (the minutes were spent)."""


class TrialsResult(Stated):
    """The answer of a search over recipes."""

    scored_by: str = ""
    """The metric by which ways are compared; of one of which less is better, scores are the negative. Empty in results
    of an older release."""
    minutes: Number
    """Minutes of training that trials might take."""
    spent: Number = 0.0
    """Minutes that they took."""
    steps: tuple[int, ...] = ()
    """Steps of a training by round."""
    trials: tuple[TriedRecipe, ...] = ()
    tau: Number | None = None
    """Kendall's rank correlation of the candidates' scores in the round before and after their whole training; None
    where there were fewer than three."""
    notes: tuple[str, ...] = ()
