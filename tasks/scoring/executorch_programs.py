"""Inference with a program of ExecuTorch, the runtime of PyTorch for phones, behind the interface of a session of ONNX
Runtime that exports are run by.

A program has one method of a single text of any length, so rows of a batch are run one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import ModelError
from tasks.scoring.onnx_models import OnnxModel, graph_of

PROGRAM_SUFFIX = ".pte"
NOT_INSTALLED = (
    "programs of ExecuTorch need the package executorch, which is not installed; install Limbeck with its extra phone "
    "(pip install 'limbeck[phone]'), or remove the format"
)


@dataclass(frozen=True)
class ProgramOutput:
    """One output of a program."""

    name: str


class LoadedProgram:
    """A loaded program; ``inputs`` and ``outputs`` are the names of its tensors in their order."""

    def __init__(self, path: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int) -> None:
        require_executorch()
        from executorch.extension.pybindings import portable_lib
        from executorch.runtime import Runtime

        portable_lib._unsafe_reset_threadpool(threads)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.program = Runtime.get().load_program(path)  # a method lives as long as its program
        self.method: Any = self.program.load_method("forward")

    def get_outputs(self) -> list[ProgramOutput]:
        """Return the outputs, which have names."""
        return [ProgramOutput(name) for name in self.outputs]

    def run(self, names: Sequence[str] | None, given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return outputs by their names, or all of them, rows first."""
        import torch

        rows = range(len(given[self.inputs[0]]))
        found = [
            [
                output.numpy().copy()  # the next call writes over it
                for output in self.method.execute(
                    [torch.from_numpy(given[name][row : row + 1]) for name in self.inputs]
                )
            ]
            for row in rows
        ]
        every = dict(zip(self.outputs, (np.concatenate(one) for one in zip(*found, strict=True)), strict=True))
        return [every[name] for name in names or self.outputs]


class ProgramModel(OnnxModel):
    """A program, its tokenizer and its card."""

    def start(self, graph: Path, threads: int) -> Any:
        """Return the loaded program."""
        return LoadedProgram(graph, self.card["inputs"], self.card["program_outputs"], threads)


def exported_model(folder: Path, *, threads: int = 1, graph: Path | None = None) -> OnnxModel:
    """Return the model of a folder's graph or program, or of the one that is named."""
    file = graph or graph_of(folder)
    kind = ProgramModel if file.suffix == PROGRAM_SUFFIX else OnnxModel
    return kind(folder, threads=threads, graph=file)


def is_installed() -> bool:
    """Return whether programs can be written and run here."""
    return find_spec("executorch") is not None


def require_executorch() -> None:
    """Raise ModelError where the package is missing."""
    if not is_installed():
        raise ModelError(NOT_INSTALLED)
