"""The error analysis of one model beside its teacher, as the report reads it.

A task type states its own figures (``alone`` and ``apart`` in ``tasks/task_types``), which a run's result keeps as they
are; the report reads the parts that it draws by these models. A part that a task type does not state is empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from tasks.results.row import Stated


class Bin(Stated):
    """The rows of one bin of a reliability diagram."""

    low: float
    high: float
    rows: int
    certainty: float
    """Their mean confidence."""
    accuracy: float


class ExampleAnswer(Stated):
    """The prediction of one model for an example row."""

    answer: JsonValue
    probability: float | None = None
    """None for a task type without probabilities."""


class ExampleRow(Stated):
    """One row on which student and teacher disagree."""

    id: int
    label: JsonValue
    student: ExampleAnswer
    teacher: ExampleAnswer


class Disagreements(Stated):
    """The comparison of a student with its teacher: rows by case, and example rows by the name of their list."""

    counts: dict[str, int]
    examples: dict[str, tuple[ExampleRow, ...]] = {}


class ErrorAnalysis(Stated):
    """The parts of an error analysis that the report draws."""

    bins: tuple[Bin, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    """Label and prediction of a sample of rows."""
    apart: Disagreements | None = None

    @classmethod
    def of(cls, stored: Mapping[str, object] | None) -> ErrorAnalysis:
        """Return a stored analysis; that of a model without one is empty."""
        return cls.model_validate(stored or {})

    def figure(self, name: str) -> object:
        """Return a further figure of the task type by its name; None if there is none."""
        return (self.model_extra or {}).get(name)

    def matrix(self, name: str) -> list[list[int]]:
        """Return the counts by true class and prediction, stated under this name; empty if there are none."""
        found = self.figure(name)
        return [[int(count) for count in row] for row in found] if isinstance(found, (list, tuple)) else []
