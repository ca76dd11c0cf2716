"""The readers of rows of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.classification.rows import READER as CLASSIFICATION
from tasks.task_types.interfaces import Reader
from tasks.task_types.regression.rows import READER as REGRESSION

READERS: dict[str, Reader] = {"classification": CLASSIFICATION, "regression": REGRESSION}
