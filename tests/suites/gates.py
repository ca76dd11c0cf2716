"""How often the gate is wrong: simulated runs whose candidates are worse by exactly the margin, or exactly as good as
their teacher.

    make gates                                        the table below, 2,000 gates of 2,000 rows: three minutes
    python -m tests.suites.gates --gates 500 --rows 872 --accuracy 0.85 --agreement 0.92

Rows are drawn anew for each gate: the teacher is right on a share of them (``--accuracy``), and a candidate answers as
its teacher does on a share (``--agreement``), as far as its own accuracy allows. The real gate then decides, with the
real intervals: nothing of it is rebuilt here.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np

from tasks.gate.gate_inputs import interval_of
from tasks.gate.row import GateRow
from tasks.gate.verdicts import Evidence, evaluate_candidates
from tasks.recipe.judging import Criterion, Gate
from tasks.scoring.evaluation import Evaluation
from tasks.scoring.quality.gain import Gain

MOST_ACCEPTED, MOST_REFUSED = 0.06, 0.20
"""Of candidates that are worse by exactly the margin, and of equal ones."""
DEFAULT = Gate()
RETAINED = Gate(criteria=(Criterion(metric="retained", at_least=0.98),))
BY_MEAN = Gate(criteria=(Criterion(metric="retained", at_least=0.98, reading="mean"),))


@dataclass(frozen=True)
class World:
    """What rows are drawn from: how good the teacher is, how often others answer as it does, and how many rows
    judge."""

    accuracy: float = 0.92
    agreement: float = 0.92
    rows: int = 2000

    def draw(self, random: np.random.Generator, worse: float, candidates: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which rows the teacher [N] and each candidate [K, N] are right on; candidates are ``worse`` by that
        much."""
        ours, apart = self.accuracy - worse, max(1 - self.agreement, worse)
        both = (self.accuracy + ours - apart) / 2
        teacher_N = random.random(self.rows) < self.accuracy
        chance_N = np.where(teacher_N, both / self.accuracy, (ours - both) / (1 - self.accuracy))
        return teacher_N, random.random((candidates, self.rows)) < chance_N


def accepts(gate: Gate, teacher_N: np.ndarray, right_KN: np.ndarray) -> list[bool]:
    """Let the gate judge candidates; return whom it accepts."""
    labels_N = np.zeros(len(teacher_N))
    answers = {
        name: Evaluation({"rows_sha256": "r"}, labels_N, (~right_N)[None].astype(float))
        for name, right_N in enumerate_names(teacher_N, right_KN)
    }
    scores = {name: float(one.predictions_SN.mean(1)[0]) for name, one in answers.items()}
    rows = [
        GateRow(
            name=name,
            role="student",
            headline=1 - wrong,
            metrics={"accuracy": 1 - wrong},
            bytes=1,
            latency_ms=1.0,
            retained=(1 - wrong) / (1 - scores["teacher"]),
        )
        for name, wrong in scores.items()
    ]

    def read(name: str, criterion: Criterion, confidence: float) -> Gain | None:
        return interval_of(criterion, "accuracy", answers[name], answers["teacher"], None, confidence)

    return [
        found.accepted
        for found in evaluate_candidates(
            rows[1:], rows[0], gate.for_headline("accuracy"), Evidence(read=read, rows=len(teacher_N))
        )
    ]


def enumerate_names(teacher_N: np.ndarray, right_KN: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return everybody with a name, the teacher first."""
    return [("teacher", teacher_N), *((f"c{number}", right_N) for number, right_N in enumerate(right_KN))]


def simulate(
    gate: Gate, world: World, worse: float, *, gates: int, candidates: int = 1, seed: int = 0
) -> tuple[float, float]:
    """Return of so many gates the share in which anybody was accepted, and the share of all candidates that were."""
    random = np.random.default_rng(seed)
    found = np.asarray([accepts(gate, *world.draw(random, worse, candidates)) for _ in range(gates)])
    return float(found.any(1).mean()), float(found.mean())


def table(world: World, gates: int) -> list[tuple[str, str, float, float, bool | None]]:
    """Return what was asked, of whom, the share accepted, the share that is allowed or wanted, and whether that was
    met.

    Five candidates are asked in a quarter of the gates: they take five times as long.
    """
    margin, share = DEFAULT.criteria[0].tolerance, 0.02 * world.accuracy
    ask, several, rows = (
        partial(simulate, world=world, gates=gates),
        partial(simulate, world=world, gates=max(1, gates // 4), candidates=5),
        [],
    )
    for shown, gate, worse in (
        ("no worse than by 0.02", DEFAULT, margin),
        ("retained ≥ 0.98, lower end", RETAINED, share),
    ):
        accepted = ask(gate, worse=worse)[0]
        anybody = several(gate, worse=worse)[0]
        equal = 1 - ask(gate, worse=0.0)[1]
        rows += [
            (shown, "worse by the margin: accepted", accepted, MOST_ACCEPTED, accepted <= MOST_ACCEPTED),
            (shown, "five worse by the margin: any accepted", anybody, MOST_ACCEPTED, anybody <= MOST_ACCEPTED),
            (shown, "equal to the teacher: refused", equal, MOST_REFUSED, equal <= MOST_REFUSED),
            (shown, "five equal ones: of each, refused", 1 - several(gate, worse=0.0)[1], MOST_REFUSED, None),
        ]
    return [
        *rows,
        (
            "retained ≥ 0.98, by the mean",
            "worse by the margin: accepted",
            ask(BY_MEAN, worse=share)[0],
            MOST_ACCEPTED,
            None,
        ),
    ]


def main() -> int:
    """Print the table; non-zero where a promise was not kept."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suites.gates", description="How often the gate is wrong, by simulation."
    )
    parser.add_argument("--gates", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--accuracy", type=float, default=0.92, help="of the teacher")
    parser.add_argument(
        "--agreement", type=float, default=0.92, help="share of rows that a candidate answers as its teacher does"
    )
    asked = parser.parse_args()
    found = table(World(asked.accuracy, asked.agreement, asked.rows), asked.gates)
    print(
        f"{asked.gates:,} gates of {asked.rows:,} rows; teacher right on {asked.accuracy:.0%}, candidates answer "
        f"alike on {asked.agreement:.0%}"
    )
    for shown, of, share, most, met in found:
        print(
            f"{shown:32} {of:40} {share:6.1%}   at most {most:.0%}   "
            f"{'' if met is None else 'met' if met else 'MISSED'}"
        )
    return 0 if all(met is not False for *_, met in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
