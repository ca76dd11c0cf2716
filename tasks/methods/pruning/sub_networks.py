"""Sub-networks of one set of weights: units are put in the order of their importance once, so that the weights of every
smaller shape are the first numbers of each axis of a larger one.

Papers: Hou et al. 2020, DynaBERT, arXiv:2004.04037 (the order); Yu and Huang 2019, arXiv:1903.05134 (the sandwich rule:
the largest, the smallest and some other shapes learn in every step).
Shape letters: L layers, D width, H heads, F neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.methods.pruning.widths import attention_maps, inner_rows, take_kept, width_and_heads_of


@dataclass(frozen=True, order=True)
class SubShape:
    """A shape of a sub-network; the size of a head is that of the largest one."""

    layers: int
    heads: int
    neurons: int


@dataclass(frozen=True)
class ShapeAxes:
    """The sizes that each axis of a space has, the smallest first."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    neurons: tuple[int, ...]

    @property
    def largest(self) -> SubShape:
        """The largest shape, which contains all others."""
        return SubShape(self.layers[-1], self.heads[-1], self.neurons[-1])

    @property
    def smallest(self) -> SubShape:
        """The smallest shape, which all others contain."""
        return SubShape(self.layers[0], self.heads[0], self.neurons[0])


DRAWN = 2
"""Shapes of a step beside the largest and the smallest."""


DrawnShape = Callable[[np.random.Generator], SubShape]
"""Draws one shape."""


def sandwich(axes: ShapeAxes, draw: np.random.Generator, drawn: DrawnShape) -> list[SubShape]:
    """Return the shapes of one step, each once: the largest, the smallest, and two that are drawn."""
    return list(dict.fromkeys([axes.largest, axes.smallest, *(drawn(draw) for _ in range(DRAWN))]))


def by_shape(axes: ShapeAxes, head_size: int) -> DrawnShape:
    """Return a draw by which all shapes are equally likely: each axis is drawn by itself."""

    def drawn(draw: np.random.Generator) -> SubShape:
        def one(sizes: Sequence[int]) -> int:
            return sizes[int(draw.integers(len(sizes)))]

        return SubShape(one(axes.layers), one(axes.heads), one(axes.neurons))

    return drawn


def by_flops(axes: ShapeAxes, head_size: int) -> DrawnShape:
    """Return a draw that is uniform in FLOPs: an amount between that of the smallest and of the largest shape is drawn,
    and the shape that is nearest to it. Most shapes of a space are small, since their axes multiply."""
    shapes = [SubShape(*sizes) for sizes in product(axes.layers, axes.heads, axes.neurons)]
    flops_S = np.array([flops_of_token(shape, head_size) for shape in shapes], dtype=np.float64)

    def drawn(draw: np.random.Generator) -> SubShape:
        distance_S = np.abs(flops_S - draw.uniform(flops_S.min(), flops_S.max()))
        return shapes[int(draw.choice(np.flatnonzero(distance_S == distance_S.min())))]

    return drawn


def flops_of_token(shape: SubShape, head_size: int) -> int:
    """Return the FLOPs of a token in the matrices of a shape's layers: four of attention, two of the feed-forward
    block. Scores and embeddings, which depend on the text, do not count."""
    width = shape.heads * head_size
    return 2 * shape.layers * (4 * width * width + 2 * width * shape.neurons)


DRAWS: dict[str, Callable[[ShapeAxes, int], DrawnShape]] = {"shapes": by_shape, "flops": by_flops}
"""Ways to draw the shapes of a step, by the recipe's name: from the axes of a space and the size of a head."""


def put_in_order(model: Any, narrower: Any, order_D: Sequence[int], order_LH: Sequence[Sequence[int]]) -> None:
    """Put the dimensions and the heads of each layer of a model in another order, in place; it computes what it
    computed before. The shapes of ``narrower``, the same model of a smaller width, tell which axes these are."""
    width, heads = width_and_heads_of(model.config)
    inner = inner_rows(model, attention_maps(model), order_LH, width // heads)
    shapes = {name: value.shape for name, value in narrower.state_dict().items()}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(take_kept(value, shapes[name], inner.get(name, {}), torch.tensor(order_D)))


def first_of_each_axis(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the part of a parameter that a smaller shape has, as a view."""
    return value[tuple(slice(size) for size in shape)]
