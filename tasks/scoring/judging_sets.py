"""The predictions of a run's models on a judging set, from which the gate computes the intervals of its bounds and
tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks.errors import DataError
from tasks.scoring.evaluation import Evaluation, read_evaluation, read_judged_rows, write_evaluation
from tasks.scoring.further.resamples import FurtherMetric

SET_SPLIT = "validation"
"""The split that holds the rows of a judging set."""


@dataclass
class SetAnswers:
    """One judging set of one run: access to its rows and to all models' predictions, which are fetched only when a
    criterion needs them."""

    rows_folder: Callable[[], Path]
    rows_sha256: str
    rows: int
    scorecards: Mapping[str, Callable[[], Path]]
    """Functions that return the folder of each model's scorecard, by its name."""
    overlaps: Mapping[str, int]
    """The number of its rows that overlap with the students' training data, by source."""
    workspace: Path
    further: Mapping[str, FurtherMetric] = field(default_factory=dict)
    """The metrics beside the task's on this set, by name."""
    known: dict[str, Evaluation] = field(default_factory=dict)

    def evaluation(self, name: str) -> Evaluation:
        """Return a model's predictions. Raises DataError where it has none, or where they are of other rows."""
        if name not in self.known:
            if name not in self.scorecards:
                raise DataError(f"{name} has no predictions for this set")
            rows = read_judged_rows(self.rows_folder(), SET_SPLIT, self.rows_sha256)
            self.known[name] = read_evaluation(
                write_evaluation(self.workspace / name, self.scorecards[name](), rows, {})
            )
        return self.known[name]
