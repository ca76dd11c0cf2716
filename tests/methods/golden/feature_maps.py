"""Transfer of feature maps, written a second time in numpy, and its cases."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from tests.methods.golden.case import Case, pair


def normalised(states_BTD: ndarray) -> ndarray:
    """States at mean 0 and variance 1 over the width."""
    centred = states_BTD - states_BTD.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + 1e-12)


def feature_map_loss(student_BTD: ndarray, teacher_BTD: ndarray, mask_BT: ndarray) -> ndarray:
    """Mean squared difference of normalised states over the numbers of valid tokens."""
    valid = mask_BT.astype(bool)
    return np.mean((normalised(student_BTD)[valid] - normalised(teacher_BTD)[valid]) ** 2)


def token_mean_loss(student_BTD: ndarray, teacher_BTD: ndarray, mask_BT: ndarray) -> ndarray:
    """Mean squared difference of the means of valid tokens."""
    valid = mask_BT.astype(bool)
    return np.mean((student_BTD.mean(-1)[valid] - teacher_BTD.mean(-1)[valid]) ** 2)


def token_variance_loss(student_BTD: ndarray, teacher_BTD: ndarray, mask_BT: ndarray) -> ndarray:
    """Mean absolute difference of the variances of valid tokens."""
    valid = mask_BT.astype(bool)
    ours, theirs = (
        np.mean((states - states.mean(-1, keepdims=True)) ** 2, -1)[valid] for states in (student_BTD, teacher_BTD)
    )
    return np.mean(np.sqrt((ours - theirs) ** 2))


def steps_of_layers(steps: int, layers: int) -> list[int]:
    """Steps of each layer: the rounded ends of equal parts, less the ends before."""
    ends = [int(np.rint(steps * number / layers)) for number in range(1, layers + 1)]
    return [ends[0], *(int(gap) for gap in np.diff(ends))]


def feature_maps() -> list[Case]:
    """Outputs of a block, of which some tokens are padding; layers that take turns."""
    both = dict(zip(("student_BTD", "teacher_BTD"), pair(81, 2, 3, 4), strict=True))
    inputs = {**both, "mask_BT": np.array([[1, 1, 1], [1, 0, 0]])}
    turns = tuple({"steps": steps, "layers": layers} for steps, layers in ((30, 3), (100, 7), (6, 6), (5, 4), (9, 1)))
    return [
        Case("feature_maps.steps_of_layers", "turns", steps_of_layers, table=turns),
    ] + [
        Case(f"feature_maps.{formula.__name__}", "padded", formula, inputs, {}, ("student_BTD",))
        for formula in (feature_map_loss, token_mean_loss, token_variance_loss)
    ]
