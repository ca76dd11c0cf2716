"""By which library torch multiplies fp32 matrices: as it does by itself, or by oneDNN with weights laid out for it
beforehand.

On x86 torch asks MKL for fp32 products, and MKL takes slower kernels on processors of other makers. oneDNN chooses by
the instructions that there are. Which is faster depends on the processor and on the shape, so each model is timed with
the faster one of the two. Elsewhere torch asks the library of the processor's maker by itself.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import Tensor, nn

MKL, ONEDNN, OWN = "MKL", "oneDNN", "torch's own"
X86 = ("x86_64", "AMD64")


def libraries() -> list[str]:
    """Return the libraries that can multiply here, torch's choice first."""
    if platform.machine() not in X86:
        return [OWN]
    return [
        MKL if torch.backends.mkl.is_available() else OWN,
        *([ONEDNN] if torch.backends.mkldnn.is_available() else []),
    ]


class PackedLinear(nn.Module):
    """A linear layer whose weight oneDNN has laid out for inputs of so many rows; weight and bias can still be read."""

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
        """Return the layer's output; any leading axes."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(input_ROWSxI, self.packed, self.bias, "none", [], "")
        return out


def by_onednn(model: Any, rows: int) -> Any:
    """Return a model, changed in place, with oneDNN's products in all of its linear layers; ``rows`` are the tokens of
    one call."""
    with torch.inference_mode():
        for name, layer in list(model.named_modules()):
            if type(layer) is nn.Linear and name:
                model.set_submodule(name, PackedLinear(layer, rows))
    return model
