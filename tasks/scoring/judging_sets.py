"""What a run's models answered to a judging set: what the gate reads intervals from, of bounds and of tests, on these
rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks.errors import DataError
from tasks.scoring.evaluation import Evaluation, read_evaluation, read_judged_rows, write_evaluation


@dataclass
class SetAnswers:
    """One judging set of one run: where its rows and everybody's answers are; they are fetched when a criterion asks
    for them."""

    rows_folder: Callable[[], Path]
    rows_sha256: str
    rows: int
    scorecards: Mapping[str, Callable[[], Path]]
    """By the model's name."""
    overlaps: Mapping[str, int]
    """How many of its rows overlap with what students learn from, by where."""
    workspace: Path
    known: dict[str, Evaluation] = field(default_factory=dict)

    def evaluation(self, name: str) -> Evaluation:
        """Return a model's own answers. Raises DataError where it has none, or to other rows."""
        if name not in self.known:
            if name not in self.scorecards:
                raise DataError(f"{name} has no answers to this set")
            rows = read_judged_rows(self.rows_folder(), "validation", self.rows_sha256)
            self.known[name] = read_evaluation(
                write_evaluation(self.workspace / name, self.scorecards[name](), rows, {})
            )
        return self.known[name]
