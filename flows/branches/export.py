"""Export of finished models for ONNX Runtime, in fp32, in int8 and in four bits, after the branches.

Exports that fail the parity check, or whose quantized graph is slower than the recipe requires, are reported but not
published.

For a model of several seeds the chosen seed is exported, which is also the registered one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, cast

from flows.branches.candidate import Candidate
from tasks.contracts import Artifact
from tasks.export_model import (
    export_executorch,
    export_onnx,
    quantize_as_trained,
    quantize_onnx,
    quantize_to_four_bits,
    quantize_to_trained_ranges,
)
from tasks.exports.package import PublishedExport
from tasks.exports.parity import against_fp32, against_full
from tasks.gate.speed_check import too_slow
from tasks.ports.store.artifacts import Store
from tasks.recipe.judging import Exporting, Exports, Quantizing
from tasks.recipe.knobs import Knobs
from tasks.recipe.makers.writing import generation_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ExportSlice, ProgramSlice, QuantizeSlice, RangesSlice, SpeedSlice
from tasks.results.export_formats import EXPORT_FORMATS, IN_FULL, is_program, ways_of
from tasks.results.facts import GraphFacts, SpeedFacts
from tasks.results.roles import role_of
from tasks.results.row import ExportFacts, ResultRow
from tasks.results.unscored import figures_without_scores
from tasks.score_model import measure_speed

NO_VERSION = "its model is not registered and has no folder"

TRAINED = "four-bit-trained"
"""The mode in which a graph has the codes for which its model was trained."""


@dataclass(frozen=True)
class Export:
    """One graph of one candidate, or the reason why there is none."""

    of: Candidate
    format: str
    artifact: Artifact | None
    because: str = ""
    """The reason why it is not published; empty if it may be."""
    full: Artifact | None = None
    """The fp32 graph from which a quantized one was computed."""
    speedup: float | None = None
    """Speed-up of a quantized graph over its fp32 graph; None if it was not measured."""
    unsteady: str = ""
    """The reason why the speed-up is too unsteady to decide; empty if it is steady."""

    @property
    def name(self) -> str:
        """The name of its row."""
        return f"{self.of.name}-{self.format}"


async def make_exports(recipe: Recipe, candidates: Sequence[Candidate], rows: Artifact) -> list[Export]:
    """Export the candidates that the recipe names, concurrently; by default those whose role is exported."""
    if recipe.exports is None:
        return []
    wanted = recipe.exports.of or tuple(candidate.name for candidate in candidates if role_of(candidate.role).exported)
    chosen = [candidate for candidate in candidates if candidate.name in wanted]
    return [
        export
        for found in await asyncio.gather(*(export_one(recipe, recipe.exports, one, rows) for one in chosen))
        for export in found
    ]


async def export_one(recipe: Recipe, knobs: Exports, candidate: Candidate, rows: Artifact) -> list[Export]:
    """Export one candidate. The fp32 graph is always built, because the others are computed from it; if fp32 fails its
    check, they are not tried."""
    judged = {"task_type": recipe.spec.kind, "max_length": recipe.scoring.max_length}
    slice_ = ExportSlice.model_validate({**stage_knobs(knobs, Exporting), **judged})
    full = await export_onnx(slice_, model=candidate.model, rows=rows, label=candidate.name)
    because = against_full(full.read(GraphFacts), knobs.parity) if full.facts else ""  # a plan has no figures

    async def in_format(name: str) -> Export:
        if name == "onnx":
            return Export(candidate, name, graph(full), because)
        if is_program(name):
            return await export_as_program(recipe, knobs, candidate, name, rows)
        if because:
            return Export(candidate, name, None, f"there is no valid fp32 graph to quantize: {because}")
        small = await quantized(recipe, knobs, candidate, name, full, rows)
        lost = against_fp32(small.read(GraphFacts), knobs.tolerance, name) if small.facts else ""
        return Export(candidate, name, graph(small), lost, full)

    return list(await asyncio.gather(*(in_format(name) for name in knobs.formats)))


async def export_as_program(recipe: Recipe, knobs: Exports, candidate: Candidate, name: str, rows: Artifact) -> Export:
    """Write one candidate's program for phones; it is made from the checkpoint, and compared with it."""
    slice_ = ProgramSlice(
        task_type=recipe.spec.kind,
        eight_bits=name not in IN_FULL,
        metric=recipe.spec.headline,
        parity_rows=knobs.parity_rows,
        max_length=recipe.scoring.max_length,
    )
    made = await export_executorch(slice_, model=candidate.model, rows=rows, label=f"{candidate.name}-{name}")
    if not made.facts:  # a plan has no figures
        return Export(candidate, name, graph(made))
    facts = made.read(GraphFacts)
    full = name in IN_FULL
    return Export(
        candidate,
        name,
        graph(made),
        against_full(facts, knobs.parity) if full else against_fp32(facts, knobs.tolerance, name),
    )


async def quantized(
    recipe: Recipe, knobs: Exports, candidate: Candidate, name: str, full: Artifact, rows: Artifact
) -> Artifact:
    """Quantize a candidate's fp32 graph to one format. Four bits need no calibration, and no seven-bit weights."""
    judged = {
        "task_type": recipe.spec.kind,
        "max_length": recipe.scoring.max_length,
        "metric": recipe.spec.headline,
        **generation_of(recipe),
    }
    if name == "four-bit" and name in grids_of(recipe, candidate):
        slice_ = QuantizeSlice(ways=(TRAINED,), **judged)
        return await quantize_as_trained(slice_, export=full, rows=rows, label=f"{candidate.name}-{name}")
    if name in grids_of(recipe, candidate) and has_static_ranges(recipe, candidate):
        of_model = RangesSlice(
            task_type=recipe.spec.kind,
            format=cast(Literal["int8", "int8-table4"], name),
            metric=recipe.spec.headline,
            max_length=recipe.scoring.max_length,
            reduce_range=fits_seven_bits(knobs),
        )
        named = f"{candidate.name}-{name}"
        return await quantize_to_trained_ranges(of_model, export=full, model=candidate.model, rows=rows, label=named)
    # What was trained for a grid is served on it: in training, what the matrices read had the range of each text.
    ways = ("dynamic",) if name in grids_of(recipe, candidate) else knobs.ways
    if name == "four-bit":
        slice_ = QuantizeSlice(ways=ways_of(name, ways), **judged)
    else:
        own = {"ways": ways_of(name, ways), "reduce_range": fits_seven_bits(knobs)}
        slice_ = QuantizeSlice.model_validate({**stage_knobs(knobs, Quantizing), **own, **judged})
    if name == "int8":
        return await quantize_onnx(slice_, export=full, rows=rows, label=candidate.name)
    return await quantize_to_four_bits(slice_, export=full, rows=rows, label=f"{candidate.name}-{name}")


def grids_of(recipe: Recipe, candidate: Candidate) -> set[str]:
    """Return the formats for whose grid a candidate was trained."""
    return {one.grid for one in recipe.planned if one.name == candidate.name} - {""}


def has_static_ranges(recipe: Recipe, candidate: Candidate) -> bool:
    """Return whether a candidate's folder states the ranges with which its graph is served."""
    return any(one.has_static_ranges for one in recipe.planned if one.name == candidate.name)


async def check_speed(recipe: Recipe, exports: Sequence[Export]) -> list[Export]:
    """Time every publishable quantized graph in turn with its own fp32 graph. Call this last, so that no other work of
    this run is on the machine."""
    return list(await asyncio.gather(*(timed(recipe, one) for one in exports)))


async def timed(recipe: Recipe, export: Export) -> Export:
    """Compare one graph's speed-up with ``exports.min_speedup``. The two graphs are timed in turn, because the load of
    the machine differs between separate measurements."""
    least = recipe.exports.min_speedup if recipe.exports else 0.0
    if export.full is None or export.artifact is None or export.because or not least:
        return export
    pace = await measure_speed(
        SpeedSlice(**dict(recipe.speed), task_type=recipe.spec.kind),
        model=export.artifact,
        teacher=export.full,
        label=f"{export.name} against its fp32",
    )
    if not pace.facts:
        return export  # a plan has no figures
    found = pace.read(SpeedFacts)
    return replace(
        export,
        because=too_slow(found, least, export.format),
        speedup=float(found.speedup),
        unsteady=found.unsteady or "",
    )


def stage_knobs(knobs: Exports, kind: type[Knobs]) -> dict[str, object]:
    """Return the knobs that one stage reads."""
    return {name: getattr(knobs, name) for name in kind.model_fields}


def graph(artifact: Artifact) -> Artifact | None:
    """Return the artifact if it holds a graph; None if it holds only the reason why there is none."""
    return artifact if artifact.read(GraphFacts).made else None


def fits_seven_bits(knobs: Exports) -> bool:
    """Return whether weights are limited to seven bits: by the knob, or for ``auto`` on an x86 processor with AVX2 but
    without VNNI, which adds pairs of products in 16 bits."""
    from tasks.ports.machine import cpuinfo

    flags = cpuinfo().split()
    return knobs.reduce_range == "yes" or (
        knobs.reduce_range == "auto" and "avx2" in flags and not {"avx512_vnni", "avx_vnni"} & set(flags)
    )


# --- rows of the results ----------------------------------------------------------------------------------------------


def beside_models(candidates: Sequence[Candidate], exports: Sequence[Export]) -> list[Candidate]:
    """Return all models to be scored: each candidate, followed by its exported graphs."""
    found = []
    for candidate in candidates:
        found.append(candidate)
        seed = (candidate.seeds[candidate.chosen],)
        found += [
            replace(candidate, name=one.name, role="export", models=[one.artifact], seeds=seed)
            for one in exports
            if one.of is candidate and one.artifact is not None
        ]
    return found


def with_exports(rows: Sequence[ResultRow], exports: Sequence[Export]) -> list[ResultRow]:
    """Return the rows of the results with each model's exports after it: their source model, engine and publication
    status are added, and exports without a graph get a row without figures."""
    by_name = {row.name: row for row in rows}
    finished: list[ResultRow] = []
    for row in rows:
        if row.role != "export":
            own = [one for one in exports if one.of.name == row.name]
            finished += [
                row,
                *(by_name.get(one.name, unmade_row(row, one.name)).replaced(**columns(one, row)) for one in own),
            ]
    return finished


def columns(export: Export, model: ResultRow) -> dict[str, object]:
    """Return the fields that only an export's row has, or that differ from the model's."""
    facts = dict(export.artifact.facts) if export.artifact else {}
    facts.pop("architecture", None)  # of its checkpoint: said for keys, and no figure of an export
    graph = export.artifact.read(GraphFacts) if export.artifact else GraphFacts()
    because = export.because or ("" if role_of(model.role).registered else NO_VERSION)
    engine = " ".join(filter(None, [EXPORT_FORMATS[export.format].engine, graph.way]))
    return {
        "of": export.of.name,
        "engine": engine,
        "plain": False,
        "against": {},
        "seeds": [],
        "steps": [],
        "train_seconds": [],
        "export": ExportFacts.model_validate(facts).replaced(
            format=export.format,
            speedup=export.speedup,
            unsteady=export.unsteady,
            published=not because,
            because=because,
        ),
        "note": f"{export.name} is not published: {because}" if because else graph.note or model.note,
    }


def unmade_row(model: ResultRow, name: str) -> ResultRow:
    """Return the row of an export without a graph: the model's row with all measured figures unknown."""
    return model.replaced(
        **figures_without_scores(model),
        **dict.fromkeys(MEASURED),
        name=name,
        role="export",
        **({"judged": {}} if model.judged is not None else {}),
    )


MEASURED = (
    "bytes",
    "packed_bytes",
    "nonzero_share",
    "bits",
    "latency_ms",
    "latency_low_ms",
    "latency_high_ms",
    "latency_p95_ms",
    "speedup",
    "unsteady",
    "timed",
    "memory_bytes",
    "token_ms",
    "token_speedup",
    "token_bytes",
    "ms_per_text",
    "truncated",
    "checkpoint",
    "pooled",
)
"""Fields of a row that are known of a model that was made."""


def for_the_folders(
    rows: Sequence[ResultRow], candidates: Sequence[Candidate], store: Store
) -> dict[str, dict[str, PublishedExport]]:
    """Return the published exports by candidate and format: a function that fetches the folder of the files, and the
    row."""
    artifacts = {candidate.name: candidate.model for candidate in candidates if candidate.role == "export"}
    found: dict[str, dict[str, PublishedExport]] = {}
    for row in rows:
        if row.of is not None and row.export is not None and row.export.published:
            folder = partial(folder_of, store, artifacts[row.name])
            found.setdefault(row.of, {})[row.export.format] = PublishedExport(folder, row)
    return found


def folder_of(store: Store, artifact: Artifact) -> Path:
    """Fetch an artifact's files and return their folder."""
    return Path(store.folder(artifact))


def gate_word(export: ExportFacts) -> str:
    """Return the text of an export in the gate's column: whether it is published with its model."""
    return "published" if export.published else "not published"
