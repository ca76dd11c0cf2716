"""Quantization from 32 to 8 bits with ONNX Runtime: weights per output channel, embeddings included, activations in one
of two modes; and to four bits, of the embeddings alone or of all weights (``blockwise.py``).

Integer arithmetic of a trained network as in Jacob et al. 2017, arXiv:1712.05877; of BERT as in Zafrir et al. 2019,
arXiv:1910.06188. Matrix products, the head and embedding tables are quantized; norms, softmax and GELU stay in float32.
Weights are signed and activations unsigned, the operands that VNNI multiplies. A processor without VNNI adds pairs of
products in 16 bits, which overflows unless weights are limited to seven bits (``reduce_range``).
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np
import onnx

from tasks.exports.blockwise import write_four_bit_tables, write_four_bits
from tasks.exports.graph import forget, save, untie
from tasks.exports.trained_bits import write_trained_bits

QUANTIZED = ["MatMul", "Gemm", "Gather"]

Feeds = Callable[[], Iterator[Mapping[str, np.ndarray]]]
"""Yields the calibration rows one at a time, as inputs of a graph."""


def dynamic(source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None) -> None:
    """Compute the range of activations in every call, without calibration."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source,
        target,
        op_types_to_quantize=QUANTIZED,
        per_channel=True,
        reduce_range=reduce_range,
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True},
    )


def static(source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None) -> None:
    """Fix the range of activations once, from rows of the training data: their smallest and largest value, or with a
    ``percentile`` such as 99.9 those between which as many lie. Few outliers take most of the 256 codes where nothing
    bounds a model's states, as in MobileBERT."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Rows(CalibrationDataReader):
        """Provides the calibration rows: one after another, or those of a range, so that the outputs of one row at a
        time are in memory."""

        def __init__(self) -> None:
            self.rows = [] if percentile is None else [*feeds()]
            self.left = feeds() if percentile is None else iter(self.rows)

        def __len__(self) -> int:
            return len(self.rows)

        def set_range(self, start_index: int, end_index: int) -> None:
            """Begin with one row, and end before another."""
            self.left = iter(self.rows[start_index:end_index])

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            """Return the next row, or None after the last."""
            return next(self.left, None)

    clipped = {} if percentile is None else {"CalibPercentile": percentile, "CalibStridedMinMax": 1}
    quantize_static(
        source,
        target,
        Rows(),
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize=QUANTIZED,
        per_channel=True,
        reduce_range=reduce_range,
        weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8,
        calibrate_method=CalibrationMethod.MinMax if percentile is None else CalibrationMethod.Percentile,
        extra_options={"MatMulConstBOnly": True, **clipped},
    )


def dynamic_table4(
    source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None
) -> None:
    """Quantize like dynamic, but the embedding tables to four bits."""
    with four_bit_tables(source, target) as part:
        dynamic(part, target, reduce_range=reduce_range, feeds=feeds)


def static_table4(
    source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None
) -> None:
    """Quantize like static, but the embedding tables to four bits."""
    with four_bit_tables(source, target) as part:
        static(part, target, reduce_range=reduce_range, feeds=feeds, percentile=percentile)


def four_bit(source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None) -> None:
    """Quantize products and tables to four bits in blocks, without calibration; seven of eight bits do not arise."""
    write_four_bits(source, target)


def four_bit_trained(
    source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None
) -> None:
    """Write the codes for which a model was trained, of four bits or fewer, without calibration."""
    write_trained_bits(source, target)


@contextlib.contextmanager
def four_bit_tables(source: Path, target: Path) -> Iterator[Path]:
    """Yield the path of a graph whose tables alone are in four bits, a file that lives as long as the context."""
    part = target.with_suffix(".tables.onnx")
    write_four_bit_tables(source, part)
    try:
        yield part
    finally:
        part.unlink()


@contextlib.contextmanager
def constant_weights(source: Path, target: Path) -> Iterator[Path]:
    """Yield the path of a graph each of whose products reads a constant: the source, or a file that lives as long as
    the context."""
    model = onnx.load(str(source))
    if not untie(model.graph):
        yield source
        return
    part = target.with_suffix(".untied.onnx")
    save(model, part)
    try:
        yield part
    finally:
        part.unlink()


WAYS: dict[str, Callable[..., None]] = {
    "dynamic": dynamic,
    "static": static,
    "dynamic-table4": dynamic_table4,
    "static-table4": static_table4,
    "four-bit": four_bit,
    "four-bit-trained": four_bit_trained,
}


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence the root logger and what is printed: the library logs advice on preprocessing that the trace has already
    done, and prints each histogram that it makes."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.setLevel(before)


def quantize_by(
    way: str, source: Path, target: Path, *, reduce_range: bool, feeds: Feeds, percentile: float | None = None
) -> None:
    """Write a quantized graph in one mode; ``percentile`` clips the ranges of the static ones."""
    with quietly(), constant_weights(source, target) as prepared:
        WAYS[way](prepared, target, reduce_range=reduce_range, feeds=feeds, percentile=percentile)
    model = onnx.load(str(target))
    forget(model)
    save(model, target)


def draw(count: int, wanted: int, seed: int) -> Sequence[int]:
    """Return the indices of up to ``wanted`` of ``count`` training rows for calibration, drawn with the seed and
    sorted."""
    chosen = np.random.default_rng(seed).permutation(count)[:wanted]
    return [int(row) for row in sorted(chosen)]


class WayFacts(TypedDict, total=False):
    """The figures of a graph that was quantized in one mode, or the reason why there is none."""

    because: str
    score: float
    loss: float
    bytes: int
    largest_difference: float
    """Of outputs, to the fp32 graph's."""
    equal_answers: float


def best(found: Mapping[str, WayFacts]) -> str | None:
    """Return the mode with the smallest loss, None if all failed; of equal ones the first that was named, which is
    dynamic unless a recipe says otherwise."""
    made = [way for way, facts in found.items() if "loss" in facts]
    return min(made, key=lambda way: found[way]["loss"]) if made else None
