"""The heads of all task types, by the name of the type in a recipe."""

from __future__ import annotations

from tasks.task_types.interfaces import Head

HEADS: dict[str, Head] = {}
