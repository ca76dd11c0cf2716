"""Predictions and figures of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.interfaces import Answers

ANSWERS: dict[str, Answers] = {}
