"""The demo on machines of several sizes: what it tells, and the bytes of what it registers, must not depend on how many
cores there are.

``python -m tests.suites.demos --seeds 10 --cores 4,2,1`` runs ``limbeck demo`` from an empty home for every seed and
number of cores, one after another (some minutes each), prints a line for each, and ends with 1 where two of them tell
another story or made other bytes. ``--json`` keeps what they told. Of more cores than the machine has, a demo is told
by a preloaded library: it plans, and runs stages side by side, as with so many.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flows.run.demo import BASELINES, STUDENT, TEXTS, score_of
from tasks.results.run import RunResult
from tests.suites.chain import library_of

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("PREFECT_", "MLFLOW_", "LIMBECK_")


@dataclass(frozen=True)
class Told:
    """What one demo said, and the digests of what it registered."""

    seed: int
    cores: int
    minutes: float
    champion: str | None
    gates: dict[str, str]
    ahead: dict[str, float]
    """Points by which the student is ahead of each baseline."""
    digests: dict[str, str]
    problems: tuple[str, ...]

    @property
    def line(self) -> str:
        """One line for people."""
        ahead = ", ".join(f"{points:+.1f} on {baseline}" for baseline, points in self.ahead.items())
        return (
            f"seed {self.seed}, {self.cores} cores: champion {self.champion}; {ahead}; {self.gates}; "
            f"{self.minutes:.1f} min {'; '.join(self.problems)}"
        )


def tell(seed: int, cores: int, folder: Path) -> Told:
    """Run the demo from an empty home on the first cores that this process may use."""
    home, out = folder / f"home-{seed}-{cores}", folder / f"{seed}-{cores}.json"
    few = sorted(os.sched_getaffinity(0))[:cores]
    words = [sys.executable, "-m", "flows.cli", "demo", "--seed", str(seed), "--json", str(out)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    more = seen_cores(cores, folder) if cores > len(few) else {}
    started = time.monotonic()
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=environment | more | {"LIMBECK_HOME": str(home)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, few),
    )
    if done.returncode != 0:
        raise RuntimeError(f"the demo of seed {seed} ended with {done.returncode}: {done.stderr[-500:]}")
    return read(json.loads(out.read_text()), done.stdout, seed, cores, (time.monotonic() - started) / 60)


def seen_cores(cores: int, folder: Path) -> dict[str, str]:
    """Return what a process must be told so that it sees more cores than there are."""
    return {"LD_PRELOAD": str(library_of("cores", folder)), "LIMBECK_TOLD_CORES": str(cores)}


def read(result: dict[str, Any], printed: str, seed: int, cores: int, minutes: float) -> Told:
    """Return what a finished demo told, and what is wrong with that."""
    champion = (result["promotion"]["champion"] or {}).get("candidate")
    gates = {model["name"]: model["gate"] for model in result["models"] if model["role"] in ("student", "dropped")}
    known = RunResult.model_validate(result)
    ahead = {baseline: 100 * (score_of(known, STUDENT) - score_of(known, baseline)) for baseline in BASELINES}
    problems = []
    if champion != STUDENT:
        problems.append(f"{champion} is champion, not {STUDENT}")
    if ahead["without-teacher"] <= 0:
        problems.append(f"{STUDENT} is not ahead of the same last phase on labels")
    if not (Path(result["texts"]).is_file() and Path(result["texts"]).name == TEXTS):
        problems.append("the texts that its commands name are not there")
    if result["last_words"] not in " ".join(printed.split()):
        problems.append("its last sentence is not what it printed")
    scores = [f"{score_of(known, name):.3f}" for name in (STUDENT, *BASELINES)]
    if absent := [score for score in scores if score not in result["last_words"]]:
        problems.append(f"its last sentence lacks {', '.join(absent)}")
    digests = {model["name"]: model["checkpoint"] for model in result["models"]}
    return Told(seed, cores, minutes, champion, gates, ahead, digests, tuple(problems))


def differences(told: Sequence[Told]) -> list[str]:
    """Say where demos of one seed made other bytes or came to other verdicts, and where one tells another story."""
    found = [f"seed {one.seed}, {one.cores} cores: {problem}" for one in told for problem in one.problems]
    for seed in sorted({one.seed for one in told}):
        same = [one for one in told if one.seed == seed]
        cores = " and ".join(str(one.cores) for one in same)
        if any(one.gates != same[0].gates for one in same):
            found.append(f"seed {seed}: the gate's verdicts differ on {cores} cores")
        apart = sorted(
            {name for one in same for name, digest in one.digests.items() if digest != same[0].digests[name]}
        )
        if apart:
            found.append(f"seed {seed}: {', '.join(apart)} have other bytes on {cores} cores")
    return found


def main() -> int:
    """Run demos one after another."""
    options = argparse.ArgumentParser(prog="python -m tests.suites.demos", description=__doc__.split("\n\n")[0])  # type: ignore[union-attr]
    options.add_argument("--seeds", type=int, default=10, help="how many seeds (default: 10)")
    options.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    options.add_argument("--cores", default="4,2,1", help="on how many cores each (default: 4,2,1)")
    options.add_argument("--json", type=Path, help="keep what every demo told in this file")
    given = options.parse_args()
    told = []
    with tempfile.TemporaryDirectory(prefix="limbeck-demos-") as folder:
        for seed in range(given.first, given.first + given.seeds):
            for cores in map(int, given.cores.split(",")):
                told.append(tell(seed, cores, Path(folder)))
                print(told[-1].line, flush=True)
            for line in differences([one for one in told if one.seed == seed]):  # a run of an hour may be broken off
                print(line, flush=True)
            if given.json:
                given.json.write_text(json.dumps([asdict(one) for one in told], indent=1) + "\n")
    wrong = differences(told)
    print(f"{len(told)} demos: {f'{len(wrong)} differences' if wrong else 'one story, and the same bytes of one seed'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
