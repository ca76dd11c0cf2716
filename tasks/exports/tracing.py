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
    sizes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=2, max=most)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Answering(model, outputs).eval(),
            (),
            str(path),
            kwargs=dict(given),
            dynamo=True,
            external_data=False,
            verbose=False,
            opset_version=opset,
            input_names=names,
            output_names=list(outputs),
            dynamic_shapes={name: dict(sizes) for name in names},
        )
    return names


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
