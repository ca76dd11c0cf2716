"""The type of the values that each of Limbeck's metrics compares, by the name that ``datasets`` has for it."""

from __future__ import annotations

import numpy as np

from tasks.task_types.answers import ANSWERS

METRIC_TYPES = {
    name: "string" if np.dtype(one.dtype).kind == "U" else str(one.dtype)
    for one in reversed(ANSWERS.values())
    for name in one.metrics
}
