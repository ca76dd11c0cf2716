"""How close the engine comes to the physical limit: the matrix-multiply peak that this machine shows, in this run, for
the same dtype."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.measure import Contestant, Figure, Lap, interleave, timed
from tests.benchmarks.models import classifier
from tests.benchmarks.setting import Setting

ROWS, BATCH, LENGTH = 1024, 8, 128
SIZES = ((768, 768), (768, 3072), (3072, 768))


def peak(dtype: torch.dtype, *, best: bool = True) -> Contestant:
    """Return a contestant that multiplies matrices of BERT's sizes; a unit is a GFLOP, and its best moment counts, or
    else all of its time."""
    pairs = [(torch.randn(ROWS, inner, dtype=dtype), torch.randn(inner, outer, dtype=dtype)) for inner, outer in SIZES]

    def once() -> Lap:
        laps = []
        for left, right in pairs:
            for _ in range(5):
                with timed(10 * 2e-9 * ROWS * left.shape[1] * right.shape[1]) as lap:
                    for _ in range(10):
                        left @ right
                laps.append(lap)
        whole = Lap(*(sum(getattr(lap, part) for lap in laps) for part in ("cpu", "wall", "amount")))
        return min(laps, key=lambda lap: lap.wall / lap.amount) if best else whole

    return once


def forward_and_backward(precision: str) -> Contestant:
    """Return a contestant: forward and backward of a BERT-base shape on full sequences, without an optimizer; a unit is
    a GFLOP of matrix products."""
    from tasks.training.precision import arithmetic

    place, model = torch.device("cpu"), classifier("12x768")
    ids_BT = torch.randint(2000, 28_000, (BATCH, LENGTH))
    labels_B = torch.arange(BATCH) % 2

    def step() -> None:
        with arithmetic(precision, place):
            loss = model(input_ids=ids_BT, labels=labels_B).loss
        loss.backward()
        model.zero_grad(set_to_none=True)

    with FlopCounterMode(display=False) as counter:
        step()
    amount = counter.get_total_flops() * 1e-9

    def once() -> Lap:
        with timed(2 * amount) as lap:
            step()
            step()
        return lap

    return once


def limits(setting: Setting) -> list[Figure]:
    """Share of the measured peak, in both arithmetics."""
    contestants = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        contestants |= {
            f"peak {name}": peak(dtype),
            f"products {name}": peak(dtype, best=False),
            f"step {name}": forward_and_backward(name),
        }
    contest = interleave(contestants, setting.repeats, tell=setting.tell)
    top = ", ".join(
        f"{dtype} {1 / min(lap.per_unit('wall') for lap in contest.laps[f'peak {dtype}']):.0f} GFLOP/s"
        for dtype in ("bf16", "fp32")
    )
    return [
        contest.figure(
            "12x768 forward and backward, 8 x 128, bf16",
            of="step bf16",
            against="peak bf16",
            target=0.7,
            note=f"peak {top}",
        ),
        contest.figure("12x768 forward and backward, 8 x 128, fp32", of="step fp32", against="peak fp32", target=None),
        # Where others share the unit that multiplies, its best moment is not what it does in a minute.
        contest.figure("the same, products for as long, bf16", of="step bf16", against="products bf16", target=None),
        contest.figure("the same, products for as long, fp32", of="step fp32", against="products fp32", target=None),
    ]
