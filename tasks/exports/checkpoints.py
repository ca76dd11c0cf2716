"""What the jobs about a checkpoint share: the rows on which an export is compared with it, the outputs of both, and the
card. Outputs are arrays by name, rows first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.exports.package import describe, digest_of, write_card
from tasks.ports.rows.row_files import StoredRows, has_split, read_split
from tasks.recipe.slices import ExportSlice, ProgramSlice
from tasks.scoring.executorch_programs import exported_model
from tasks.scoring.onnx_models import ExportCard
from tasks.scoring.speed.flops import parameters_of
from tasks.scoring.windows import outputs_of_checkpoint_units, outputs_of_parts
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.texts.truncation import batch_of
from tasks.task_types.units import Parts, Units

TOGETHER = 8
"""Rows per batch in the parity check, so that it covers padding."""


def card_of_checkpoint(
    folder: Path, model: Any, tokenizer: Any, knobs: ExportSlice | ProgramSlice, *, opset: int, pairs: bool
) -> ExportCard:
    """Leave silent heads out of a model that was loaded from a folder, in place; return the card of its export;
    ``pairs`` tells whether rows have a second text."""
    from tasks.architectures.known_architectures import longest
    from tasks.methods.pruning.silent_heads import leave_out_silent_heads

    positions, left_out = longest(model.config, 2**30), leave_out_silent_heads(model)
    return describe(
        GRAPHS[knobs.task_type].card(model.config),
        tokenizer,
        max_length=knobs.max_length,
        positions=positions if positions < 2**30 else None,
        pairs=pairs,
        parameters=parameters_of(folder) - left_out,
        opset=opset,
    )


def part_of(rows: StoredRows, chosen: Sequence[int]) -> tuple[list[str], list[str] | None]:
    """Return the texts and second texts of the chosen rows."""
    pairs = None if rows.pairs is None else [rows.pairs[row] for row in chosen]
    return [rows.texts[row] for row in chosen], pairs


def facts_of(path: Path, card: ExportCard) -> dict[str, object]:
    """Return the facts that are common to all graphs."""
    return {
        "made": True,
        "bytes": path.stat().st_size,
        "sha256": digest_of(path),
        "opset": card["opset"],
        "versions": card["made_with"],
    }


def unmade(job: Job, card: ExportCard, because: str) -> dict[str, object]:
    """Report why there is no graph; the run continues."""
    job.log(f"no export: {because}")
    write_card(job.output, {**card, "because": because})
    return {"made": False, "because": because}


def rows_to_compare(job: Job, knobs: ExportSlice | ProgramSlice) -> tuple[list[str], list[str] | None]:
    """Return rows of the selection split, or of train if none were held back."""
    for split in ("selection", "train"):
        rows = read_split(job.inputs["rows"], split) if has_split(job.inputs["rows"], split) else None
        if rows:
            return part_of(rows, range(min(knobs.parity_rows, len(rows))))
    raise DataError("there are no rows on which to compare an export; add a train split to the data")


def ask_torch(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    names: Sequence[str],
    units: Units | Parts | None = None,
) -> dict[str, np.ndarray]:
    """Return a checkpoint's outputs, computed one row at a time: without padding, so that padding cannot affect
    them."""
    import torch

    if isinstance(units, Parts):

        def ask_apart(own: Sequence[str], second: Sequence[str], told: object) -> dict[str, np.ndarray]:
            return ask_torch(model, tokenizer, own, second, max_length, names)

        return outputs_of_parts(units, texts, pairs, ask_apart)
    if units is not None:
        return outputs_of_checkpoint_units(model, tokenizer, texts, names, max_length, units, together=1, pairs=pairs)
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for row, text in enumerate(texts):
        second = [pairs[row]] if pairs else None
        batch = batch_of(tokenizer, [text], second, max_length=max_length, tensors="pt")
        with torch.inference_mode():
            outputs = model(**batch)
        for name in names:
            found[name].append(outputs[name].numpy()[0])
    return {name: np.stack(rows) for name, rows in found.items()}


def ask_together(
    job: Job, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, units: Units | Parts | None = None
) -> dict[str, np.ndarray]:
    """Return the export's outputs, computed in padded batches."""
    if isinstance(units, Parts):
        return outputs_of_parts(
            units, texts, pairs, lambda own, second, told: ask_together(job, own, second, max_length)
        )
    model, found = exported_model(job.output, threads=job.threads), []
    if units is not None:
        return model.outputs(texts, pairs, max_length, units=units, together=TOGETHER)
    for start in range(0, len(texts), TOGETHER):
        part = slice(start, start + TOGETHER)
        found.append(model.ask(model.encode(texts[part], pairs[part] if pairs else None, max_length)))
    return {name: np.concatenate([part[name] for part in found]) for name in model.names}
