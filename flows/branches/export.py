"""After the branches: finished models packed for ONNX Runtime, in fp32 and in int8.

What is no more the same model, or is slower in int8 than the recipe asks, stays in the table, and out of the folder.

Of a model of several seeds the chosen one is exported, which is the one that is registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from flows.branches.candidate import Candidate
from tasks.contracts import Parcel
from tasks.export_model import export_onnx, quantize_onnx
from tasks.exports.package import PublishedExport
from tasks.exports.parity import against_fp32, against_full
from tasks.exports.speed_check import too_slow
from tasks.ports.store.artifacts import Store
from tasks.recipe.judging import Exporting, Exports, Quantizing
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ExportSlice, QuantizeSlice
from tasks.results.row import ExportFacts, ResultRow
from tasks.score_model import measure_speed

NO_VERSION = "its model is not registered, so there is no folder for it"
ENGINES = {"onnx": "onnxruntime fp32", "int8": "onnxruntime int8"}
"""What the row says of a graph that could not be made."""


@dataclass(frozen=True)
class Export:
    """One graph of one candidate, as its stage left it."""

    of: Candidate
    format: str
    parcel: Parcel | None
    because: str = ""
    """Why it is not published; empty where it may be."""
    full: Parcel | None = None
    """The fp32 graph that an int8 one was made of."""
    speedup: float | None = None
    """How many times as fast as that it is; None where nobody asked."""
    unsteady: str = ""
    """Why that figure decides nothing; empty where it does."""

    @property
    def name(self) -> str:
        """Return the name of its row."""
        return f"{self.of.name}-{self.format}"


async def make_exports(recipe: Recipe, candidates: Sequence[Candidate], rows: Parcel) -> list[Export]:
    """Export whom the recipe names, side by side."""
    if recipe.exports is None:
        return []
    wanted = recipe.exports.of or tuple(
        candidate.name for candidate in candidates if candidate.role in ("student", "dropped")
    )
    chosen = [candidate for candidate in candidates if candidate.name in wanted]
    return [
        export
        for found in await asyncio.gather(*(export_one(recipe, recipe.exports, one, rows) for one in chosen))
        for export in found
    ]


async def export_one(recipe: Recipe, knobs: Exports, candidate: Candidate, rows: Parcel) -> list[Export]:
    """Export one candidate: fp32 always, because int8 is made of it; what fp32 fails in, int8 need not try."""
    judged = {"kind": recipe.spec.kind, "max_length": recipe.scoring.max_length}
    slice_ = ExportSlice(**part(knobs, Exporting), **judged)
    full = await export_onnx(slice_, model=candidate.model, rows=rows, label=candidate.name)
    because = against_full(full.facts, knobs.parity) if full.facts else ""  # a plan has no figures
    found = {"onnx": Export(candidate, "onnx", graph(full), because)}
    if "int8" in knobs.formats and because:
        found["int8"] = Export(candidate, "int8", None, f"there is no sound fp32 graph to make it of: {because}")
    elif "int8" in knobs.formats:
        slice_2 = QuantizeSlice(
            **part(knobs, Quantizing), **judged, metric=recipe.spec.headline, reduce_range=narrow(knobs)
        )
        small = await quantize_onnx(slice_2, export=full, rows=rows, label=candidate.name)
        found["int8"] = Export(
            candidate, "int8", graph(small), against_fp32(small.facts, knobs.tolerance) if small.facts else "", full
        )
    return [found[one] for one in knobs.formats]


async def check_speed(recipe: Recipe, exports: Sequence[Export]) -> list[Export]:
    """Time every int8 graph that may be published beside its own fp32; to be asked last, so that no other work of this
    run is on the machine."""
    return list(await asyncio.gather(*(timed(recipe, one) for one in exports)))


async def timed(recipe: Recipe, export: Export) -> Export:
    """Hold one graph against ``exports.min_speedup``. The two are timed in turn: figures from two moments would compare
    the moments."""
    least = recipe.exports.min_speedup if recipe.exports else 0.0
    if export.full is None or export.parcel is None or export.because or not least:
        return export
    pace = await measure_speed(
        recipe.speed, model=export.parcel, teacher=export.full, label=f"{export.name} beside its fp32"
    )
    if not pace.facts:
        return export  # a plan has no figures
    return replace(
        export, because=too_slow(pace.facts, least), speedup=pace.facts["speedup"], unsteady=pace.facts["unsteady"]
    )


def part(knobs: Exports, kind: type[Any]) -> dict[str, Any]:
    """Return the knobs that one stage reads."""
    return {name: getattr(knobs, name) for name in kind.model_fields}


def graph(parcel: Parcel) -> Parcel | None:
    """Return a parcel that holds a graph; None where its stage could only say why there is none."""
    return parcel if parcel.facts.get("made", True) else None


def narrow(knobs: Exports) -> bool:
    """Tell whether weights keep to seven bits: where an Intel-like processor would add pairs of products in 16 bits."""
    from tasks.ports.machine import cpuinfo

    flags = cpuinfo().split()
    return knobs.reduce_range == "yes" or (
        knobs.reduce_range == "auto" and "avx2" in flags and not {"avx512_vnni", "avx_vnni"} & set(flags)
    )


# --- rows of the results ----------------------------------------------------------------------------------------------


def beside_models(candidates: Sequence[Candidate], exports: Sequence[Export]) -> list[Candidate]:
    """Return whom the scales can ask: candidates, each with the graphs that were made of it behind it."""
    found = []
    for candidate in candidates:
        found.append(candidate)
        seed = (candidate.seeds[candidate.chosen],)
        found += [
            replace(candidate, name=one.name, role="export", models=[one.parcel], seeds=seed)
            for one in exports
            if one.of is candidate and one.parcel is not None
        ]
    return found


def with_exports(rows: Sequence[ResultRow], exports: Sequence[Export]) -> list[ResultRow]:
    """Add to the rows of exports what they are of, what asks them and whether they may be published; make rows for
    those that could not be made."""
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
    """Return what an export's row has beside the figures of every row."""
    facts = dict(export.parcel.facts) if export.parcel else {}
    because = export.because or ("" if model.role in ("student", "dropped") else NO_VERSION)
    engine = " ".join(filter(None, [ENGINES[export.format], facts.get("way")]))
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
        "note": f"{export.name} is not published: {because}" if because else model.note,
    }


def unmade_row(model: ResultRow, name: str) -> ResultRow:
    """Return a row without figures: the model's own shape, and unknown where something would have been measured."""
    return model.replaced(
        **model.unscored(),
        **dict.fromkeys(MEASURED),
        name=name,
        role="export",
        **({"judged": {}} if model.judged is not None else {}),
    )


MEASURED = (
    "bytes",
    "latency_ms",
    "latency_low_ms",
    "latency_high_ms",
    "latency_p95_ms",
    "speedup",
    "unsteady",
    "timed",
    "memory_bytes",
    "truncated",
    "checkpoint",
)
"""Fields of a row that are known of a model that was made."""


def for_the_folders(
    rows: Sequence[ResultRow], candidates: Sequence[Candidate], store: Store
) -> dict[str, dict[str, PublishedExport]]:
    """Return by candidate and format the exports that go into its folder."""
    parcels = {candidate.name: candidate.model for candidate in candidates if candidate.role == "export"}
    found: dict[str, dict[str, PublishedExport]] = {}
    for row in rows:
        if row.of is not None and row.export is not None and row.export.published:
            folder = partial(folder_of, store, parcels[row.name])
            found.setdefault(row.of, {})[row.export.format] = PublishedExport(folder, row)
    return found


def folder_of(store: Store, parcel: Parcel) -> Path:
    """Fetch a parcel's files."""
    return Path(store.folder(parcel))


def gate_word(export: ExportFacts) -> str:
    """Return what stands in the gate's column of an export: it travels with its model, or it does not."""
    return "published" if export.published else "not published"
