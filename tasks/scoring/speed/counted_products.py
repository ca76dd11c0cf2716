"""Multiply-adds that stand in no matrix product, and that torch's counter therefore leaves out: those of a dynamic
convolution, which adds one place of its window after the other, and products of each number of one list with each of
another, as in a factorized Synthesizer.

Functions of single numbers (exponentials, gates, norms, softmax itself) are counted of no model.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

OperandShape = tuple[int, ...]
COUNTED = 2
"""Floating-point operations of a multiply-add."""


def flops_of_added_products(*shapes: object, out_shape: OperandShape, **named: object) -> int:
    """Return the FLOPs of adding a product to each number."""
    return COUNTED * prod(out_shape)


def flops_of_pairs(one: object, other: object, *, out_shape: OperandShape, **named: object) -> int:
    """Return the FLOPs of a product of all pairs of numbers: none where one side is multiplied number by number."""
    if not (isinstance(one, tuple) and isinstance(other, tuple)):
        return 0  # by one number
    pairs = prod(out_shape)
    return pairs if pairs > max(prod(one), prod(other)) else 0


def further_products() -> dict[Any, Callable[..., int]]:
    """Return by operation the function that counts its FLOPs from shapes, for torch's counter."""
    import torch

    return {torch.ops.aten.addcmul: flops_of_added_products, torch.ops.aten.mul: flops_of_pairs}
