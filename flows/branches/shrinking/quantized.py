"""The maker of models that are trained for a few bits, and the bits of all models of a run that has one."""

from __future__ import annotations

from collections.abc import Sequence

from flows.branches.candidate import Candidate, SharedArtifacts, candidate_of_seeds, label, origin_of_seed
from flows.branches.export import fits_seven_bits
from flows.branches.shrinking.sparse import training_of
from tasks.contracts import Artifact
from tasks.recipe.judging import Exports
from tasks.recipe.makers.bits import GridKnobs, QuantizedCandidate
from tasks.recipe.makers.slices import QuantizationSlice, StaticQuantizationSlice
from tasks.recipe.recipe import Recipe
from tasks.results.export_formats import EXPORT_FORMATS, IN_FULL
from tasks.results.row import ResultRow
from tasks.shrink_model import train_quantized, train_with_static_ranges

UNREAD = ("patience", "sampling")
"""Knobs of a second phase that this training does not have: all states are compared, and no text is augmented."""

FULL = 32
"""The bits of a weight in full precision."""


async def make_quantized(recipe: Recipe, planned: QuantizedCandidate, shared: SharedArtifacts) -> Candidate:
    """Return a candidate that is trained from its origin on the grid of a format; the origin is its teacher."""
    grid = {name: getattr(planned, name) for name in GridKnobs.model_fields}
    if planned.format != "four-bit":
        grid["seven_bits"] = fits_seven_bits(recipe.exports or Exports())
    if planned.signal == "teacher":
        grid["hidden_weight"] = planned.hidden_weight
    text = {} if shared.transfer is None or planned.signal == "labels" else {"transfer": shared.transfer}

    async def one(seed: int) -> Artifact:
        base = await origin_of_seed(planned, seed, shared)
        training = training_of(recipe, planned, shared, base, seed)
        read = {name: value for name, value in training.items() if name not in UNREAD}
        named = label(planned.name, seed, planned.planned_seeds)
        inputs = {"start": base, "rows": shared.rows, **text}
        if planned.has_static_ranges:
            fixed = StaticQuantizationSlice.model_validate({**read, **grid, "ranges": planned.ranges})
            return await train_with_static_ranges(fixed, label=named, **inputs)
        return await train_quantized(QuantizationSlice.model_validate({**read, **grid}), label=named, **inputs)

    return await candidate_of_seeds(planned, one)


def with_bits(recipe: Recipe, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows with the bits of a weight of their matrices; unchanged where none has few."""
    grids = {one.name: one for one in recipe.planned if isinstance(one, QuantizedCandidate)}
    if not grids and not (recipe.exports and recipe.exports.quantized):
        return list(rows)
    known: dict[str, float] = {name: one.weight_bits for name, one in grids.items()}
    for row in rows:
        for name in EXPORT_FORMATS:
            known[f"{row.name}-{name}"] = stored_bits(name, grids.get(row.name))
    return [row.replaced(bits=known.get(row.name, FULL)) for row in rows]


def stored_bits(format_: str, trained: QuantizedCandidate | None) -> float:
    """Return the bits that a graph stores for a weight of a matrix: three take four, and ternary weights take two."""
    if format_ != "four-bit":
        return FULL if format_ in IN_FULL else 8
    return 2 if trained is not None and trained.codes in ("2", "ternary") else 4
