"""The entries of ``evaluation.json``: the description of a registered version, and the rows on which it was
evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict


class ModelDescription(TypedDict):
    """The description of a model in its evaluation."""

    candidate: str
    role: str
    recipe: str
    task: str
    kind: str
    headline: str
    checkpoint: str | None
    figures: Mapping[str, object]
    labels: NotRequired[Sequence[str]]
    """The names of the classes, in the order of their numbers."""
    sealed: NotRequired[bool]
    """Whether numbers stand for written texts."""


class EvaluationFacts(ModelDescription):
    """The same with the split and the rows on which it was evaluated."""

    schema: int
    split: str
    rows: int
    rows_sha256: str
