"""Gradients by a complex step.

Source: Squire, Trapp 1998, "Using Complex Variables to Estimate Derivatives of Real Functions", SIAM Review 40.
The imaginary part of f(x + ih) / h is the derivative up to h²; nothing is subtracted, so at a step of 1e-30 it is as
exact as f itself; central differences would leave ten digits of float64 at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy import ndarray

STEP = 1e-30


def gradient(formula: Callable[..., ndarray], given: Mapping[str, Any], name: str) -> ndarray:
    """Return the derivative of a scalar with respect to each number of the argument ``name``."""
    moved = given[name].astype(np.complex128)
    found = np.empty(moved.shape)
    for at in np.ndindex(moved.shape):
        moved[at] += 1j * STEP
        found[at] = np.imag(formula(**{**given, name: moved})) / STEP
        moved[at] = given[name][at]
    return found


def passed(values: ndarray, found: ndarray) -> ndarray:
    """Return what was found in place of values, with the derivative of the values themselves."""
    return found + 1j * values.imag if np.iscomplexobj(values) else found


def slowed(step: ndarray, factor: float) -> ndarray:
    """Return a step whose gradient is multiplied by a factor (appendix B of arXiv:1902.08153)."""
    return step.real + 1j * step.imag * factor if np.iscomplexobj(step) else step
