"""The library with which torch multiplies fp32 matrices: its default, or oneDNN with weights packed beforehand.

On x86 torch calls MKL for fp32 products, and MKL uses slower kernels on processors that are not Intel's. oneDNN chooses
by the available instructions. The faster one depends on the processor and on the shape, so each model is timed with
the faster of the two. On other platforms torch's default is already the library of the processor's maker.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor, nn

MKL, ONEDNN, OWN = "MKL", "oneDNN", "torch's own"
X86 = ("x86_64", "AMD64")


def libraries() -> list[str]:
    """Return the libraries available on this machine, torch's default first."""
    if platform.machine() not in X86:
        return [OWN]
    return [
        MKL if torch.backends.mkl.is_available() else OWN,
        *([ONEDNN] if torch.backends.mkldnn.is_available() else []),
    ]


class PackedLinear(nn.Module):
    """A linear layer whose weight is packed by oneDNN for inputs of a given number of rows; weight and bias can still
    be read."""

    def __init__(self, linear: nn.Linear, rows: int) -> None:
        super().__init__()
        self.weight, self.bias, self.in_features, self.out_features = (
            linear.weight,
            linear.bias,
            linear.in_features,
            linear.out_features,
        )
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), rows)

    def forward(self, input_ROWSxI: Tensor) -> Tensor:
        """Return the layer's output; the input may have any leading axes."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(input_ROWSxI, self.packed, self.bias, "none", [], "")
        return out


def by_onednn(model: Any, rows: int) -> Any:
    """Return a model, changed in place, whose linear layers multiply with oneDNN; ``rows`` is the number of tokens of
    one call."""
    with torch.inference_mode():
        for name, layer in list(model.named_modules()):
            if type(layer) is nn.Linear and name:
                model.set_submodule(name, PackedLinear(layer, rows))
    return model
