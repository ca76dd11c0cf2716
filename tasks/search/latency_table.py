"""The latency of every shape of a space, from a few that are measured on this very machine with random weights.

Layers of a model are alike, so its latency is a part for embeddings and head plus the same part for each layer. Both
are found from the least and the most layers of each width, number of neurons and format. As everywhere, models are
timed in turn with a reference, the largest shape, so that a busy moment affects both (``timing.py`` reads the clock).
Shapes that are no part of the table check it.
Source: sums of measured parts instead of a learned network, Cai et al. 2019 (ProxylessNAS), arXiv:1812.00332.
Shape letters: B batch, T tokens.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tasks.architectures.known_architectures import shape_of
from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.exports.graph import tidy
from tasks.exports.quantizing import quantize_by
from tasks.exports.tracing import trace
from tasks.methods.pruning.neurons import feed_forward_maps, neurons_to_keep
from tasks.methods.pruning.widths import heads_to_keep, narrowed
from tasks.recipe.makers.search import LatencySlice
from tasks.results.search import LatencyCell, LatencyCheck, LatencyTable, PerLayer
from tasks.scoring.onnx_models import open_session
from tasks.scoring.speed.flops import flops_of, weight_bytes
from tasks.scoring.speed.matmul_libraries import ONEDNN, by_onednn, libraries
from tasks.scoring.speed.speed import ENGINE, TRIAL_REPEATS, TRIAL_WARMUP, Inputs, require_length
from tasks.scoring.speed.timing import median_of, quotient_of
from tasks.search.ranking import rank_correlation
from tasks.search.space import bytes_of_row
from tasks.search.timing import milliseconds_in_turn
from tasks.task_types.common_head import state_tokenizer
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.heads import HEADS
from tasks.training.models.students import copied, shares_modules, smaller, tied

OPSET = 20
TIMED_WAYS = {"int8": "dynamic", "int8-table4": "dynamic-table4"}
"""The mode of a quantized format that is timed: the one that needs no rows."""
TRACED_TEXTS = ("a text that is traced", "another one")


@dataclass(frozen=True)
class ShapeSize:
    """The sizes of a shape."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int


@dataclass(frozen=True)
class TimedShape:
    """A shape in one format, ready to be timed, with what is counted of it."""

    call: Callable[[], Any]
    engine: str
    parameters: int
    bytes: int
    flops: int


class ShapeBuilder:
    """Builds shapes of the teacher's architecture with random weights."""

    def __init__(self, job: Job, knobs: LatencySlice, scratch: Path) -> None:
        from transformers import AutoConfig, AutoTokenizer

        self.job, self.knobs, self.scratch = job, knobs, scratch
        short: dict[str, object] = {"repeats": TRIAL_REPEATS, "warmup": TRIAL_WARMUP, "seconds": 1e-9}
        self.trial = knobs.model_copy(update=short)
        self.config = AutoConfig.from_pretrained(job.inputs["base"], local_files_only=True)
        self.tokenizer = AutoTokenizer.from_pretrained(job.inputs["base"], local_files_only=True)
        require_length(self.config, knobs.length)
        self.config.dtype = torch.float32  # as all models here are loaded, whatever the weights of this one are
        state_tokenizer(HEADS[knobs.task_type].auto_class(), self.config, self.tokenizer)
        self.whole = {name: int(value or 0) for name, value in shape_of(self.config.to_dict()).items()}
        # GPT-2 states no neurons where they are four times its width
        self.whole["feed_forward"] = self.whole["feed_forward"] or 4 * self.whole["hidden"]
        smallest = self.config.vocab_size
        ids_BT = torch.randint(
            min(1000, smallest // 2),
            smallest,
            (knobs.batch, knobs.length),
            generator=torch.Generator().manual_seed(0),
        ).numpy()
        self.inputs: Inputs = GRAPHS[knobs.task_type].timed_inputs(ids_BT)

    def size_of(self, width: float, neurons: float, layers: int) -> ShapeSize:
        """Return the sizes of a shape, rounded as the makers of candidates round them."""
        heads, inner = self.whole["heads"], self.whole["feed_forward"]
        kept = heads if width == 1 else heads_to_keep(heads, width)
        left = inner if neurons == 1 else neurons_to_keep(inner, neurons)
        return ShapeSize(layers, self.whole["hidden"] // heads * kept, kept, left)

    def config_of(self, size: ShapeSize) -> Any:
        """Return the config of a shape; raises ModelError for one that the architecture cannot have."""
        given = SimpleNamespace(
            layers=size.layers, hidden=size.hidden, heads=size.heads, feed_forward=size.feed_forward
        )
        config = smaller(self.config, given)
        if getattr(config, "embedding_size", None) == self.whole["hidden"]:
            config.embedding_size = size.hidden
        return config

    def model_of(self, size: ShapeSize) -> Any:
        """Return a model of a shape with random weights, which share what the config says."""
        torch.manual_seed(0)
        model = tied(HEADS[self.knobs.task_type].auto_class().from_config(self.config_of(size))).eval()
        return model.requires_grad_(False)

    def require_cuts(self) -> None:
        """Raise ModelError where the architecture cannot be made narrower, or has no neurons to remove, or shares its
        layers so that fewer of them are not proportionally smaller: the search would find out after its first
        training."""
        sets = getattr(self.config, "num_hidden_groups", 1)
        if 1 < sets < self.whole["layers"]:
            raise ModelError(
                f"the {self.whole['layers']} layers of this teacher share {sets} sets of weights, and the size of a "
                f"model with fewer layers is not predicted; name a teacher with one set, or with one for each layer"
            )
        model = self.model_of(self.size_of(1.0, 1.0, layers := self.knobs.depths[0]))
        for width in sorted({*self.knobs.widths} - {1.0}):  # a width of the embeddings' own has no map between the two
            size = self.size_of(width, 1.0, layers)
            narrowed(model, range(size.hidden), [range(size.heads)] * layers)
        if set(self.knobs.neurons) != {1.0}:
            feed_forward_maps(model)

    def timed(self, size: ShapeSize, way: str) -> TimedShape:
        """Return a shape in one format."""
        model = self.model_of(size)
        parameters = sum(value.numel() for value in model.parameters())
        folder = self.scratch / "model"
        model.save_pretrained(folder, state_dict=copied(model) if shares_modules(model) else None)
        flops = flops_of(folder, self.knobs.flops_length, self.knobs.task_type)
        if way == "torch":
            engine, call = self.faster_of_torch(model)
            return TimedShape(call, engine, parameters, weight_bytes(folder), flops)
        path = self.graph_of(model, size, way)
        session, given = open_session(path, self.knobs.threads), self.inputs
        feeds = {one.name: np.asarray(given[one.name], dtype=np.int64) for one in session.get_inputs()}
        return TimedShape(
            lambda: session.run(None, feeds), f"onnxruntime {way}", parameters, path.stat().st_size, flops
        )

    def faster_of_torch(self, model: Any) -> tuple[str, Callable[[], Any]]:
        """Return the faster library for products of this shape, and the call with it, as for a checkpoint."""
        names = self.tokenizer.model_input_names
        given = {name: torch.from_numpy(self.inputs[name]) for name in names if name in self.inputs}
        first, *others = libraries()
        calls: dict[str, Callable[[], Any]] = {first: lambda: model(**given)}
        if ONEDNN in others:
            packed = by_onednn(copy.deepcopy(model), int(self.inputs["input_ids"].size))
            calls[ONEDNN] = lambda: packed(**given)
        if len(calls) == 1:
            return f"{ENGINE}, {first}", calls[first]
        times = milliseconds_in_turn(calls, self.trial)
        best = min(times, key=lambda library: float(np.median(times[library])))
        return f"{ENGINE}, {best}", calls[best]

    def graph_of(self, model: Any, size: ShapeSize, way: str) -> Path:
        """Write the graph of a model in a format, and return its path; a shape is traced once for all formats,
        until its graphs are removed."""
        named = f"{size.layers}-{size.hidden}-{size.heads}-{size.feed_forward}"
        full, small = self.scratch / f"{named}.onnx", self.scratch / f"{named}.{way}.onnx"
        if not full.exists():
            names = [output.name for output in GRAPHS[self.knobs.task_type].outputs]
            trace(model, self.tokenizer, TRACED_TEXTS, None, full, outputs=names, opset=OPSET)
            tidy(full)
        if way != "onnx":
            quantize_by(TIMED_WAYS[way], full, small, reduce_range=False, feeds=lambda: iter(()))
        return full if way == "onnx" else small

    def remove_graphs(self) -> None:
        """Remove the graphs of shapes that were measured: those of a whole space would be as large as all its models
        together, several times over."""
        for path in self.scratch.glob("*.onnx*"):
            path.unlink()


def measure_latency_table(job: Job) -> dict[str, object]:
    """Time shapes of the architecture of ``base`` in turn with the largest one; return the table and its error."""
    knobs = job.read(LatencySlice)
    torch.set_num_threads(knobs.threads)
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        builder = ShapeBuilder(job, knobs, Path(scratch))
        builder.require_cuts()
        facts: dict[str, object] = {**measured_table(job, knobs, builder).as_json()}
    (job.output / "latency.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def measured_table(job: Job, knobs: LatencySlice, builder: ShapeBuilder) -> LatencyTable:
    """Measure the cells of a table, then the shapes that check it."""
    deepest = knobs.depths[-1]
    largest = builder.size_of(1.0, 1.0, deepest)
    reference = builder.timed(largest, knobs.formats[0])
    alone = milliseconds_in_turn({"it": reference.call}, knobs)["it"]
    reference_ms = median_of(alone).value
    rest = [(width, neurons, way) for width in knobs.widths for neurons in knobs.neurons for way in knobs.formats]
    checked, ways = chosen_checks(knobs, rest), len(knobs.formats)
    cells: list[LatencyCell] = []
    for number, (width, neurons, way) in enumerate(rest):
        job.progress(number, len(rest) + len(checked), unit="shapes")
        cells.append(measured_cell(builder, reference, reference_ms, width, neurons, way))
        if way == knobs.formats[-1]:
            builder.remove_graphs()
    checks: list[LatencyCheck] = []
    for _, alike in groupby(checked, key=lambda one: (one[0] // ways, one[1])):
        for place, layers in alike:
            job.progress(len(rest) + len(checks), len(rest) + len(checked), unit="shapes")
            checks.append(check_of(builder, reference, reference_ms, cells[place], layers))
        builder.remove_graphs()
    return LatencyTable(
        layers=deepest,
        vocabulary=builder.config.vocab_size,
        reference_ms=reference_ms,
        cells=tuple(cells),
        checks=tuple(checks),
        **errors_of(checks),
    )


def chosen_checks(knobs: LatencySlice, rest: Sequence[tuple[float, float, str]]) -> list[tuple[int, int]]:
    """Draw shapes that are no part of the table: the number of a cell, and a number of layers that was not measured. A
    shape's formats are side by side."""
    legal = [(place, layers) for place in range(len(rest)) for layers in knobs.between]
    drawn = np.random.default_rng(knobs.seed).permutation(len(legal))[: knobs.checks]
    ways = len(knobs.formats)
    return sorted((legal[number] for number in drawn), key=lambda one: (one[0] // ways, one[1], one[0]))


def measured_cell(
    builder: ShapeBuilder, reference: TimedShape, reference_ms: float, width: float, neurons: float, way: str
) -> LatencyCell:
    """Measure one cell at the least and at the most layers, in turn with the reference."""
    depths = builder.knobs.depths
    sizes = [builder.size_of(width, neurons, layers) for layers in depths]
    made = [builder.timed(size, way) for size in sizes]
    calls = {"reference": reference.call, **{str(number): one.call for number, one in enumerate(made)}}
    times = milliseconds_in_turn(calls, builder.knobs)
    ms = [relative_milliseconds(times, str(number), reference_ms) for number in range(len(made))]
    spreads = [quotient_of(times["reference"], times[str(number)]) for number in range(len(made))]
    wide = [one for one in spreads if not one.known]
    return LatencyCell(
        width=width,
        neurons=neurons,
        hidden=sizes[0].hidden,
        heads=sizes[0].heads,
        feed_forward=sizes[0].feed_forward,
        format=way,
        engine=made[-1].engine,
        ms=per_layer(depths, ms),
        parameters=per_layer(depths, [one.parameters for one in made]),
        flops=per_layer(depths, [one.flops for one in made]),
        bytes=per_layer(depths, [one.bytes for one in made]),
        row_width=row_width(builder, sizes[0]),
        row_bytes=bytes_of_row(way, row_width(builder, sizes[0])),
        unsteady=f"its speed-up ± {100 * max(one.spread for one in wide):.1f} %" if wide else "",
    )


def row_width(builder: ShapeBuilder, size: ShapeSize) -> int:
    """Return the width of a row of the embedding of words."""
    config = builder.config_of(size)
    return int(getattr(config, "embedding_size", None) or size.hidden)


def relative_milliseconds(times: Mapping[str, Sequence[float]], name: str, reference_ms: float) -> float:
    """Return the latency of one call relative to that of the reference beside it, in milliseconds of the reference
    alone."""
    return reference_ms / quotient_of(times["reference"], times[name]).value


def per_layer(depths: Sequence[int], values: Sequence[float]) -> PerLayer:
    """Return a figure as a fixed part and the part of each layer, from its values at the least and the most layers; of
    one depth, all of it is per layer."""
    if len(depths) == 1:
        return PerLayer(fixed=0.0, layer=float(values[0]) / depths[0])
    layer = (values[-1] - values[0]) / (depths[-1] - depths[0])
    return PerLayer(fixed=float(values[0] - depths[0] * layer), layer=float(layer))


def check_of(
    builder: ShapeBuilder, reference: TimedShape, reference_ms: float, cell: LatencyCell, layers: int
) -> LatencyCheck:
    """Measure a shape that is no part of the table."""
    size = ShapeSize(layers, cell.hidden, cell.heads, cell.feed_forward)
    calls = {"reference": reference.call, "it": builder.timed(size, cell.format).call}
    times = milliseconds_in_turn(calls, builder.knobs)
    apart = quotient_of(times["reference"], times["it"])
    return LatencyCheck(
        layers=layers,
        hidden=cell.hidden,
        feed_forward=cell.feed_forward,
        format=cell.format,
        predicted_ms=cell.ms.of(layers),
        measured_ms=relative_milliseconds(times, "it", reference_ms),
        unsteady="" if apart.known else f"its speed-up ± {100 * apart.spread:.1f} %",
    )


def errors_of(checks: Sequence[LatencyCheck]) -> dict[str, float | None]:
    """Return the mean and the largest error of the checked shapes, and the correlation of their ranks."""
    if not checks:
        return {}
    errors = [one.error for one in checks]
    ranks = rank_correlation([one.predicted_ms for one in checks], [one.measured_ms for one in checks])
    return {"error": float(np.mean(errors)), "largest_error": max(errors), "rank_correlation": ranks}
