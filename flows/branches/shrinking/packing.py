"""The packed size of all models of a run of which one has zeros: elsewhere, files are as large as their contents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flows.branches.candidate import Candidate
from tasks.contracts import Artifact
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import PackSlice
from tasks.results.facts import PackedFacts
from tasks.results.row import ResultRow
from tasks.score_model import pack_model


async def pack_all(recipe: Recipe, candidates: Sequence[Candidate]) -> list[Artifact]:
    """Pack all models; nothing if none has zeros."""
    if not recipe.has_zeros:
        return []
    return list(await asyncio.gather(*(pack_model(PackSlice(), model=one.model, label=one.name) for one in candidates)))


def with_packed(rows: Sequence[ResultRow], found: Sequence[PackedFacts]) -> list[ResultRow]:
    """Return the rows with their packed sizes, none if they were not packed."""
    if not found:
        return list(rows)
    return [
        row.replaced(packed_bytes=one.packed_bytes, nonzero_share=one.nonzero_share)
        for row, one in zip(rows, found, strict=True)
    ]
