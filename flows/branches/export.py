"""After the branches: finished models packed for ONNX Runtime, in fp32 and in int8.

What is no more the same model, or is slower in int8 than the recipe asks, stays in the table, and out of the folder.

Of a model of several seeds the chosen one is exported, which is the one that is registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from flows.branches.candidate import Candidate
from tasks.contracts import Parcel
from tasks.export_model import export_onnx, quantize_onnx
from tasks.exports.parity import against_fp32, against_full
from tasks.exports.speed_check import too_slow
from tasks.recipe.judging import Exporting, Exports, Quantizing
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ExportSlice, QuantizeSlice
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


def with_exports(rows: Sequence[Mapping[str, Any]], exports: Sequence[Export]) -> list[dict[str, Any]]:
    """Add to the rows of exports what they are of, what asks them and whether they may be published; make rows for
    those that could not be made."""
    by_name = {row["name"]: row for row in rows}
    finished: list[dict[str, Any]] = []
    for row in rows:
        if row["role"] != "export":
            own = [one for one in exports if one.of.name == row["name"]]
            finished += [
                dict(row),
                *({**by_name.get(one.name, unmade_row(row, one.name)), **columns(one, row)} for one in own),
            ]
    return finished


def columns(export: Export, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an export's row has beside the figures of every row."""
    facts = dict(export.parcel.facts) if export.parcel else {}
    facts.pop("architecture", None)  # of its checkpoint: said for keys, and no figure of an export
    because = export.because or ("" if model["role"] in ("student", "dropped") else NO_VERSION)
    engine = " ".join(filter(None, [ENGINES[export.format], facts.get("way")]))
    return {
        "of": export.of.name,
        "engine": engine,
        "plain": False,
        "against": {},
        "seeds": [],
        "steps": [],
        "train_seconds": [],
        "export": {
            **facts,
            "format": export.format,
            "speedup": export.speedup,
            "unsteady": export.unsteady,
            "published": not because,
            "because": because,
        },
        "note": f"{export.name} is not published: {because}" if because else model.get("note"),
    }


def unmade_row(model: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a row without figures: the model's own shape, and unknown where something would have been measured."""
    unknown = {"value": None, "low": None, "high": None}
    return {
        **model,
        "name": name,
        "role": "export",
        "bytes": None,
        "latency_ms": None,
        "latency_low_ms": None,
        "latency_high_ms": None,
        "latency_p95_ms": None,
        "speedup": None,
        "unsteady": None,
        "timed": None,
        "memory_bytes": None,
        "metrics": {split: dict.fromkeys(found, unknown) for split, found in model["metrics"].items()},
        "per_seed": {split: {metric: [] for metric in found} for split, found in model["metrics"].items()},
        "deviation": {split: dict.fromkeys(found) for split, found in model["metrics"].items()},
        "means": {},
        "retained": dict.fromkeys(model["retained"] or {}, unknown),
        "difference": dict.fromkeys(model["difference"] or {}, unknown),
        "agreement": dict.fromkeys(model["agreement"] or {}),
        "truncated": None,
        "checkpoint": None,
        **({"judged": {}} if "judged" in model else {}),
    }


def for_the_folders(
    rows: Sequence[Mapping[str, Any]], candidates: Sequence[Candidate], store: Any
) -> dict[str, dict[str, Any]]:
    """Return by candidate what travels in its folder: by format where its files are, fetched when asked for, and its
    row."""
    parcels = {candidate.name: candidate.model for candidate in candidates if candidate.role == "export"}
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["role"] == "export" and row["export"]["published"]:
            folder = partial(folder_of, store, parcels[row["name"]])
            found.setdefault(row["of"], {})[row["export"]["format"]] = {"folder": folder, "row": row}
    return found


def folder_of(store: Any, parcel: Parcel) -> Path:
    """Fetch a parcel's files."""
    return Path(store.folder(parcel))


def gate_word(row: Mapping[str, Any]) -> str:
    """Return what stands in the gate's column of an export: it travels with its model, or it does not."""
    return "published" if row["export"]["published"] else "not published"
