"""A sentence on classifiers that give all rows one class, beside their scores."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.report.format.numbers import plural
from tasks.results.one_class import rows_of_one_class
from tasks.results.row import ResultRow


def one_class_lines(models: Sequence[ResultRow]) -> list[str]:
    """Return a sentence on the models that give all rows of their error analysis the same class; none if there is no
    such model."""
    found = {model.name: rows for model in models if (rows := rows_of_one_class(model))}
    if not found:
        return []
    them = "it tells" if len(found) == 1 else "they tell"
    return [
        f"All {plural(max(found.values()), 'row')} get one class from {', '.join(found)}: {them} nothing apart, a "
        f"score is the share of rows of that class, and a share of the teacher means nothing."
    ]
