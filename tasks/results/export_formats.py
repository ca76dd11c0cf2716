"""The formats of exports: the file of each in a model's folder, and how it is quantized.

A recipe names them in ``exports.formats``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExportFormat:
    """One format: its file in the folder of the graphs, its engine in tables, and the mode in which it is quantized
    for each mode of int8; none for a graph in fp32."""

    file: str
    engine: str
    ways: dict[str, str]


EXPORT_FORMATS: dict[str, ExportFormat] = {
    "onnx": ExportFormat("model.onnx", "onnxruntime fp32", {}),
    "int8": ExportFormat("model_int8.onnx", "onnxruntime int8", {"dynamic": "dynamic", "static": "static"}),
    "int8-table4": ExportFormat(
        "model_int8_table4.onnx", "onnxruntime int8", {"dynamic": "dynamic-table4", "static": "static-table4"}
    ),
    "four-bit": ExportFormat("model_four_bit.onnx", "onnxruntime", {"dynamic": "four-bit", "static": "four-bit"}),
    "executorch": ExportFormat("model.pte", "executorch fp32", {}),
    "executorch-int8": ExportFormat("model_int8.pte", "executorch int8", {}),
}
BY_DEFAULT = ("int8", "int8-table4", "four-bit", "onnx", "executorch-int8", "executorch")
"""The order in which a graph is chosen for predictions: the fastest first, and programs for phones last."""
IN_FULL = ("onnx", "executorch")
"""Formats in 32 bits, of which nothing is lost but the last digits."""


def is_program(name: str) -> bool:
    """Return whether a format is a program of ExecuTorch, which is made from a checkpoint and not from a graph."""
    return EXPORT_FORMATS[name].file.endswith(".pte")


def ways_of(name: str, ways: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modes in which a format is tried for the modes of int8 that a recipe names, each once."""
    return tuple(dict.fromkeys(EXPORT_FORMATS[name].ways[way] for way in ways))
