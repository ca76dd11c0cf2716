"""A case that has golden numbers: one call of one function of ``tasks/methods``.

Inputs are tensors, knobs everything else. A table is a list of knobs of a function that takes no tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray


@dataclass(frozen=True)
class Case:
    """``of`` names the file and the function of ``tasks/methods``, ``learned`` the inputs whose gradient is kept: the
    gradient of the value, or of the sum of its products with ``upstream`` where it is a tensor."""

    of: str
    name: str
    formula: Callable[..., Any]
    inputs: dict[str, ndarray] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    learned: tuple[str, ...] = ()
    table: tuple[dict[str, Any], ...] = ()
    upstream: ndarray | None = None


def drawn(seed: int, *shape: int, reach: int = 3) -> ndarray:
    """Return multiples of 1/16 between ``-reach`` and ``reach``; numpy promises that this generator never changes."""
    return np.random.RandomState(seed).randint(-16 * reach, 16 * reach + 1, shape) / 16


def pair(seed: int, *shape: int) -> tuple[ndarray, ndarray]:
    """Return a student's tensor and its teacher's."""
    return drawn(seed, *shape), drawn(seed + 1, *shape)
