"""Conversion of a checkpoint to an ONNX graph: torch traces the model on a few real rows, with dynamic batch size and
length.

Shape letters: B batch, T tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of, longest, model_type_of
from tasks.exports.remembering import (
    READ_BEFORE,
    Remembering,
    heads_by_input,
    memory_of,
    outputs_with_memory,
    sizes_to_leave_open,
    traced_inputs,
)

EXAMPLES, EXAMPLE_LENGTH = 2, 24
UNLIMITED = 8192


class Answering(torch.nn.Module):
    """A model that returns the outputs of its task type alone."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        architecture = architecture_of(model.config)
        self.model, self.masked = architecture.for_export(model), architecture.export_mask

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the outputs, each with the rows of the batch first."""
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        outputs = self.model(input_ids=input_ids, **self.masked(attention_mask), **segments)
        return tuple(outputs[name] for name in self.names)


def trace(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    path: Path,
    *,
    outputs: Sequence[str],
    opset: int,
) -> list[str]:
    """Write a model's graph with the outputs of these names; return the names of its inputs. Raise torch's
    OnnxExporterError for a model that ONNX cannot express."""
    # matrix products and a softmax: fewer operations in the graph than torch's fused kernel
    model.set_attn_implementation("eager")
    given = example(model, tokenizer, texts, pairs)
    names = list(given)
    most = longest(model.config, UNLIMITED)
    both = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=2, max=most)}
    write_graph(
        Answering(model, outputs),
        given,
        path,
        inputs=names,
        outputs=outputs,
        opset=opset,
        open_sizes={name: dict(both) for name in names},
    )
    return names


def trace_with_memory(
    model: Any, tokenizer: Any, texts: Sequence[str], path: Path, *, outputs: Sequence[str], opset: int
) -> tuple[list[str], dict[str, list[int]]]:
    """Write the graph of a decoder that continues texts; return the names of its inputs beside the memory, and the
    memory's heads and sizes by input. Raises what ``trace`` does, and ModelError for a memory that is not built."""
    model.set_attn_implementation("eager")
    given = example(model, tokenizer, texts, None)
    memory = memory_of(model, given["input_ids"][:, :READ_BEFORE])
    names, sizes = ["input_ids", "attention_mask"], heads_by_input(memory)
    write_graph(
        Remembering(model, outputs),
        traced_inputs(given, memory),
        path,
        inputs=[*names, *memory],
        outputs=outputs_with_memory(outputs, sizes),
        opset=opset,
        open_sizes=sizes_to_leave_open(memory),
    )
    return names, sizes


def write_graph(
    model: torch.nn.Module,
    given: Mapping[str, object],
    path: Path,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int,
    open_sizes: Mapping[str, object],
) -> None:
    """Trace a model with an example of its inputs, of which some sizes are open."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            (),
            str(path),
            kwargs=dict(given),
            dynamo=True,
            external_data=False,
            verbose=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=dict(open_sizes),
        )


def example(model: Any, tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None) -> Mapping[str, Tensor]:
    """Return real rows as inputs of this model, padded, and shorter than the longest input."""
    length = min(EXAMPLE_LENGTH, longest(model.config, EXAMPLE_LENGTH + 1) - 1)
    batch = tokenizer(
        list(texts[:EXAMPLES]),
        list(pairs[:EXAMPLES]) if pairs else None,
        truncation=True,
        max_length=length,
        padding="max_length",
        return_tensors="pt",
    )
    return {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids") if name in batch}


def reason(model: Any, error: Exception) -> str:
    """Return one sentence on why a model has no graph. Torch's own message is pages long; its last summary names the
    cause."""
    said = str(error).split("## Exception summary")[-1].strip().splitlines()
    return (
        f"torch.onnx cannot express this {model_type_of(model.config)} model "
        f"({said[0][:160] if said else type(error).__name__})"
    )
