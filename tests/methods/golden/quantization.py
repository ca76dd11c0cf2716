"""Rounding to grids of integers, written a second time in numpy, and its cases.

Papers: Jacob et al. 2017, arXiv:1712.05877; Zafrir et al. 2019, arXiv:1910.06188; Esser et al. 2019, arXiv:1902.08153;
Li et al. 2016, arXiv:1605.04711; Zhang et al. 2020, arXiv:2009.12812. The derivative of rounding is 0 where it has one,
so each method states another one (Bengio et al. 2013, arXiv:1308.3432): here a rounded number is the number itself and
a constant (``passed``), one that is clipped may be the constant alone, and the complex step does the rest.
Shape letters: B batch, T tokens, D width, O outputs, I inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from tests.methods.golden.case import Case, drawn
from tests.methods.golden.gradient import passed, slowed

BLOCK = 32  # weights, or states, that share a step
LEAST_STEP = 1e-8


def divisor(steps: ndarray) -> ndarray:
    """Return steps, and 1 in place of 0."""
    return steps + (steps == 0)


def by_block(rounded: Callable[[ndarray], ndarray], values: ndarray) -> ndarray:
    """Round every 32 numbers along the last axis by themselves; the last ones may be fewer."""
    cuts = list(range(BLOCK, values.shape[-1], BLOCK))
    return np.concatenate([rounded(part) for part in np.split(values, cuts, axis=-1)], axis=-1)


# --- grids with a sign: arXiv:1910.06188, equations 1 to 3 ---


def largest_code(bits: int) -> int:
    """Half of all codes are above 0, less one."""
    return (1 << bits) // 2 - 1


def straight_through(values: ndarray, quantized: ndarray) -> ndarray:
    """The quantized values."""
    return passed(values, quantized)


def fake_symmetric(values: ndarray, steps: ndarray, largest: int) -> ndarray:
    """Whole numbers of steps, as many as the largest code at most; what is clipped has a gradient, too."""
    codes = np.rint(values.real / divisor(steps))
    return passed(values, steps * np.minimum(np.maximum(codes, -largest), largest))


def step_of_all(values: ndarray, bits: int) -> ndarray:
    """The largest size has the largest code."""
    return max(values.max(), -values.min()) / largest_code(bits)


def steps_of_outputs(weight_OI: ndarray, largest: int) -> ndarray:
    """The same for each row, in a column."""
    return np.array([[max(row.real.max(), -row.real.min()) / largest] for row in weight_OI])


def output_grid(weight_OI: ndarray, largest: int) -> ndarray:
    """A matrix whose rows have steps of their own."""
    return fake_symmetric(weight_OI, steps_of_outputs(weight_OI, largest), largest)


def of_each_block(states: ndarray) -> ndarray:
    """Eight bits, the largest state of each block having the code 127 or -127."""

    def rounded(part: ndarray) -> ndarray:
        return fake_symmetric(part, np.max(np.abs(part.real), -1, keepdims=True) / 127, 127)

    return by_block(rounded, states)


def table_in_four_bits(rows: ndarray) -> ndarray:
    """Codes of -8 to 7; the first of the largest weights has the code -8."""

    def of_row(row: ndarray) -> ndarray:
        first = max(range(len(row)), key=lambda place: (abs(row[place].real), -place))
        step = -row[first].real / 8
        return passed(row, step * np.clip(np.rint(row.real / divisor(step)), -8, 7))

    return by_block(lambda part: np.stack([of_row(row) for row in part]), rows)


# --- grids beside 0: arXiv:1712.05877, section 2.1, and section 3 for a range that holds 0 ---


def step_and_zero(low: ndarray, high: ndarray) -> ndarray:
    """The 255th part of a range, and the code of 0."""
    lowest, highest = np.where(low < 0, low, 0), np.where(high > 0, high, 0)
    steps = divisor((highest - lowest) / 255)
    return np.stack([steps, np.rint(-lowest / steps)])


def asymmetric(values: ndarray, low: ndarray, high: ndarray) -> ndarray:
    """Codes of 0 to 255, of which the zero point stands for 0."""
    step, zero = step_and_zero(low, high)
    codes = np.clip(np.rint(values.real / step) + zero, 0, 255)
    return passed(values, (codes - zero) * step)


def of_each_text(states: ndarray, mask_BT: ndarray | None = None) -> ndarray:
    """Each text has the range of its own tokens."""
    made = []
    for text, state in enumerate(states):
        own = state.real if mask_BT is None else state.real[mask_BT[text] == 1]
        made.append(asymmetric(state, own.min(), own.max()))
    return np.stack(made)


# --- steps that learn: arXiv:1902.08153, equations 1 to 3, and section 2.2 for the factor of the gradient ---


def learned(values: ndarray, step: ndarray, lowest: int, highest: int, sharing: int) -> ndarray:
    """A step times the rounded quotient, or times the bound that the rounded quotient is beyond; ``sharing`` numbers
    have one step, whose gradient is divided by the root of their number times the largest code."""
    slow = slowed(step, 1 / np.sqrt(sharing * max(highest, 1)))
    codes = np.rint(values.real / step.real)
    beyond = (codes < lowest) | (codes > highest)
    return np.where(beyond, np.clip(codes, lowest, highest), passed(values / slow, codes)) * slow


def on_learned_grid(values: ndarray, step: ndarray, bits: int, sharing: int | None = None) -> ndarray:
    """Codes with a sign, one more below 0 than above."""
    highest = largest_code(bits)
    return learned(values, step, -highest - 1, highest, sharing or values.size // step.size)


def first_steps(values: ndarray, bits: int) -> ndarray:
    """2⟨|v|⟩ / √Qp."""
    means = np.sum(np.abs(values), axis=-1, keepdims=True) / values.shape[-1]
    return np.maximum(2 * means / np.sqrt(largest_code(bits)), LEAST_STEP)


def nearest_steps(values: ndarray, bits: int) -> ndarray:
    """Of 50 steps, the first of those that leave the least error."""
    made = []
    for row in values:
        widest = np.max(np.abs(row)) / largest_code(bits)
        tried = [np.array(max(widest * number / 50, LEAST_STEP)) for number in range(1, 51)]
        made.append([min(tried, key=lambda step: np.sum((on_learned_grid(row, step, bits) - row) ** 2))])
    return np.array(made)


def learned_grid(
    weight_OI: ndarray, bits: int, nearest: bool = False, step: ndarray | None = None, filled: int = BLOCK
) -> ndarray:
    """Blocks with steps of their own, the first ones or those that are given row by row. ``filled``: a short block
    counts as a whole one where its step's gradient is scaled, as a graph fills it up with zeros."""
    start = nearest_steps if nearest else first_steps
    parts = np.split(weight_OI, list(range(BLOCK, weight_OI.shape[1], BLOCK)), axis=1)
    steps_ON = np.hstack([start(part.real, bits) for part in parts])
    if step is not None:
        steps_ON = step.reshape(steps_ON.shape)
    rounded = [on_learned_grid(part, steps_ON[:, [at]], bits, filled) for at, part in enumerate(parts)]
    return np.concatenate(rounded, axis=1)


def on_learned_range(states: ndarray, step: ndarray, zero: int) -> ndarray:
    """256 codes, ``zero`` of them below 0, and one step for all states."""
    return learned(states, step, -zero, 255 - zero, states.size)


# --- three values: arXiv:1605.04711, equations 3 to 6 ---


def ternary(values: ndarray) -> ndarray:
    """Row by row: what is above 0.7 of the mean size becomes the mean size of all that is; zeros count for nothing."""
    made = np.zeros(values.shape)
    for row, given in zip(made.reshape(-1, values.shape[-1]), values.real.reshape(-1, values.shape[-1]), strict=True):
        sizes = [abs(one) for one in given if one != 0]
        large = [size for size in sizes if size > 0.7 * (sum(sizes) / len(sizes))]
        for place, one in enumerate(given):
            if abs(one) in large:
                row[place] = np.copysign(sum(large) / len(large), one)
    return passed(values, made)


def ternary_grid(weight_OI: ndarray) -> ndarray:
    """The same for each block."""
    return by_block(ternary, weight_OI)


# --- cases ---

EDGES = np.array([[0.125, 0.375, -0.875, 2.0], [-3.75, 3.5, -4.25, 0.75], [0.0, 0.0, 0.0, 0.0]])
"""With steps of 1/4, 1/2 and 0: halves of a step, the last code, values beyond it, and a row of zeros."""
UPSTREAM = drawn(121, 3, 4, reach=1)
"""The gradient of what is made of them."""


def grids() -> list[Case]:
    """Grids that are found in what they round."""
    steps = np.array([[0.25], [0.5], [0.0]])
    wide, above = drawn(122, 2, 36, reach=1), drawn(123, 2, 36, reach=1)
    wide[1, :32], wide[0, :2] = 0.0, (1.5, -1.5)
    states, short = drawn(124, 2, 3, 4), np.array([[1, 1, 1], [1, 1, 0]])
    states[1] = np.array([[2.0, 1.0, 0.5, 1.5], [0.25, 0.0, 1.0, 0.5], [-8.0, 9.0, 0.0, 1.0]])
    ranges = {
        "low": np.array([-1.0, 0.5, 0.0, -3.0, -1.02, 0.0]),
        "high": np.array([1.0, 2.0, 1.5, -1.0, 1.0, 0.0]),
    }
    beside = {"values": EDGES, "low": np.array(-1.0), "high": np.array(1.55)}
    learned = ("values",)
    made = [
        Case("grids.largest_code", "bits", largest_code, table=tuple({"bits": bits} for bits in (2, 3, 4, 8))),
        Case(
            "grids.straight_through",
            "values",
            straight_through,
            {"values": EDGES, "quantized": np.rint(EDGES)},
            {},
            learned,
            upstream=UPSTREAM,
        ),
        Case("grids.step_and_zero", "ranges", step_and_zero, ranges),
        Case("grids.asymmetric", "edges", asymmetric, beside, {}, learned, upstream=UPSTREAM),
        Case(
            "grids.fake_symmetric",
            "edges",
            fake_symmetric,
            {"values": EDGES, "steps": steps},
            {"largest": 7},
            learned,
            upstream=UPSTREAM,
        ),
        Case(
            "grids.fake_symmetric",
            "one step for all",
            fake_symmetric,
            {"values": EDGES, "steps": np.array(4.25 / 127)},
            {"largest": 127},
            learned,
            upstream=UPSTREAM,
        ),
    ]
    made += [
        Case("grids.step_of_all", f"{bits} bits", step_of_all, {"values": EDGES}, {"bits": bits}) for bits in (2, 8)
    ]
    for largest in (64, 127):
        matrix, knobs = {"weight_OI": EDGES}, {"largest": largest}
        made.append(Case("grids.steps_of_outputs", f"code {largest}", steps_of_outputs, matrix, knobs))
        of, learns = "grids.OutputGrid", ("weight_OI",)
        made.append(Case(of, f"code {largest}", output_grid, matrix, knobs, learns, upstream=UPSTREAM))
    for name, given in (
        ("padded", {"states": states, "mask_BT": short}),
        ("whole", {"states": states}),
        ("one state a text", {"states": EDGES}),
    ):
        above_it = drawn(126, *given["states"].shape, reach=1)
        made.append(Case("grids.of_each_text", name, of_each_text, given, {}, ("states",), upstream=above_it))
    made.append(Case("grids.of_each_block", "36", of_each_block, {"states": wide}, {}, ("states",), upstream=above))
    made.append(
        Case("grids.table_in_four_bits", "36", table_in_four_bits, {"rows": wide}, {}, ("rows",), upstream=above)
    )
    return made


def learned_steps() -> list[Case]:
    """Grids that learn, and three values."""
    values = np.array([[0.625, 0.75, 1.0, -1.25, -1.5, 0.25], [2.5, 0.0, -0.375, 0.125, -0.625, -9.0]])
    upstream, made = drawn(127, 2, 6, reach=1), []
    both, steps = ("values", "step"), np.array([[0.5], [0.25]])
    for bits in (2, 4, 8):
        of, name, knobs = "learned_steps.on_learned_grid", f"{bits} bits", {"bits": bits}
        by_row, alone = {"values": values, "step": steps}, {"values": values, "step": np.array(0.3125)}
        made.append(Case(of, f"{name}, a step a row", on_learned_grid, by_row, knobs, both, upstream=upstream))
        if bits == 4:
            made.append(Case(of, f"{name}, one step", on_learned_grid, alone, knobs, both, upstream=upstream))
        rows = {"values": np.vstack([values, np.zeros((1, 6)), [[-1.5, 1.0, 0.5, -0.5, 0.0, 1.5]]])}
        made.append(Case("learned_steps.first_steps", name, first_steps, rows, knobs))
        made.append(Case("learned_steps.nearest_steps", name, nearest_steps, rows, knobs))
    wide, above = {"weight_OI": drawn(128, 1, 36, reach=1)}, drawn(129, 1, 36, reach=1)
    learns, of = ("weight_OI", "step"), "learned_steps.LearnedGrid"
    given = {**wide, "step": np.array([0.25, 0.125])}
    made += [
        Case(of, "steps that are given", learned_grid, given, {"bits": 3}, learns, upstream=above),
        Case(of, "first steps", learned_grid, wide, {"bits": 3}),
        Case(of, "nearest steps", learned_grid, wide, {"bits": 3, "nearest": True}),
    ]
    states = np.array([[0.0, 0.75, 1.0, -1.25], [63.75, 64.0, 32.0, -64.25], [-63.75, -64.0, 128.0, 0.25]])
    for zero in (0, 128, 255):
        of, given = "learned_ranges.on_learned_range", {"states": states, "step": np.array([0.5])}
        made.append(
            Case(of, f"zero {zero}", on_learned_range, given, {"zero": zero}, ("states", "step"), upstream=UPSTREAM)
        )
    for name, low, high in (("both signs", -1.02, 1.0), ("above 0", 0.5, 2.0), ("nothing", 0.0, 0.0)):
        ends = {"low": np.array(low), "high": np.array(high)}
        made.append(Case("learned_ranges.measured_range", name, step_and_zero, ends))
    return made


def three_values() -> list[Case]:
    """Ternary weights: sizes on the threshold are not above it, and zeros do not lower it."""
    rows = np.vstack([EDGES, [[0.7, -1.3, 0.0, 0.0], [0.5, 0.5, -0.5, 0.5]]])
    upstream, wide = drawn(130, 5, 4, reach=1), drawn(131, 2, 36, reach=1)
    wide[1, 32:] = 0.0
    above = drawn(132, 2, 36, reach=1)
    return [
        Case("ternary.ternary", "edges", ternary, {"values": rows}, {}, ("values",), upstream=upstream),
        Case("ternary.TernaryGrid", "36", ternary_grid, {"weight_OI": wide}, {}, ("weight_OI",), upstream=above),
    ]
