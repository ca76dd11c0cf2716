"""The kill suite: kill -9 at a moment inside a chosen window, look at what is there, go on, and end with the digests of
an undisturbed run.

    python -m tests.suites.kills [--moments 100] [--struck 40] [--seed 0]  prints the tables; non-zero if one is wrong

Windows are functions of the product (``tests/suites/doomed.py``); a moment is one of the lines of Python that run
inside. Moments outside of a window are random in time. Half of all moments take the engines with them, as when a
machine vanishes; in the other half the engines hear that their parent is gone. Over S3, whoever goes on is another
host: its cache folder is empty. The moments of ``tests/suites/struck.py`` strike parts of a run, stop it as a whole,
and set its clock.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.s3_server import BUCKET, s3_server
from tests.suites import struck
from tests.suites.chain import Host, reported, resumed_at, write_chain
from tests.suites.doomed import WINDOWS
from tests.tiny import write_tiny_bert, write_tiny_rows

PATIENCE = 700.0
ATTEMPTS = 3  # runs that may end before the moment at which one is to be killed
IN_FOLDER, IN_BUCKET = (
    ("publish", "rename", "registration"),
    ("publish", "manifest", "renewal", "checkpoint", "registration"),
)


@dataclass
class Undisturbed:
    """A run that nobody killed: what it made, and how long its windows are."""

    kind: str
    recipe: Path
    digests: Mapping[str, str]
    versions: list[tuple[str, ...]]
    seconds: float
    calls: list[dict[str, Any]]

    def moment_in(self, window: str, dice: random.Random) -> dict[str, Any]:
        """Choose a moment in a window: a call in the first half, for a look that found nothing new is short, and their
        number differs from run to run."""
        calls = [call for call in self.calls if call["window"] == window]
        least = max(call["lines"] for call in calls) // 10
        busy = [call for call in calls if call["lines"] > least]
        call = dice.choice(busy[: -(-len(busy) // 2)])
        return {"window": window, "call": call["call"], "line": dice.randint(1, call["lines"]), "least": least}


@dataclass
class Moment:
    """One kill and what came of it."""

    number: int
    window: str
    kind: str
    plan: dict[str, Any]
    where: str = ""
    saved: int = 0
    resumed: int = 0
    lost: int = 0
    """Steps of the teacher that had been reported and had to be taken again."""
    problems: list[str] = field(default_factory=list)


def host(folder: Path, kind: str, servers: Mapping[str, str], database: Path | None = None) -> Host:
    """Return a host with nothing on it; its MLflow is a database in its home."""
    store = f"s3://{BUCKET}/{folder.parents[1].name}-{folder.name}" if kind == "s3" else ""
    return Host(folder, store, servers, database)


def undisturbed(kind: str, folder: Path, servers: Mapping[str, str], database: Path | None = None) -> Undisturbed:
    """Run the chain to its end and write down how many lines each window has."""
    recipe = write_chain(folder, write_tiny_bert(folder / "bert"), write_tiny_rows(folder))
    here, notes = host(folder / "undisturbed", kind, servers, database), folder / "calls.jsonl"
    started = time.monotonic()
    finish(here, recipe, {"record": str(notes)})
    calls = [json.loads(line) for line in notes.read_text().splitlines()]
    return Undisturbed(kind, recipe, here.digests(), here.versions(), time.monotonic() - started, calls)


def finish(here: Host, recipe: Path, plan: Mapping[str, Any] = {}) -> str:  # noqa: B006 - never changed
    """Run the chain to its end; return what it printed."""
    run = here.start(json.dumps(plan), "run", str(recipe), module="tests.suites.doomed")
    out, err = run.communicate(timeout=PATIENCE)
    if run.returncode:
        raise AssertionError(f"the run ended with status {run.returncode}: {err[-500:]}")
    return out


def moments(count: int, base_of: Callable[[str], Undisturbed], seed: int) -> Iterator[Moment]:
    """Choose moments: as many in each window as fit in half of the count, at least one, the rest at random."""
    dice = random.Random(seed)
    share = max(1, count // 2 // len(WINDOWS))
    inside = [window for window in WINDOWS for _ in range(share)][:count]
    for number, window in enumerate([*inside, *["random"] * (count - len(inside))]):
        kinds = [kind for kind, windows in (("folder", IN_FOLDER), ("s3", IN_BUCKET)) if window in (*windows, "random")]
        base = base_of(kinds[number % len(kinds)])
        plan: dict[str, Any] = {"host": bool(number % 4 // 2)}
        if window == "random":
            plan["share"] = dice.uniform(0.1, 0.85)
        else:
            plan |= base.moment_in(window, dice)
        yield Moment(number, window, base.kind, plan)


def live_through(
    moment: Moment, base: Undisturbed, folder: Path, servers: Mapping[str, str], database: Path | None = None
) -> Moment:
    """Kill a run at a moment, look, go on, and compare with the undisturbed run."""
    report, seconds = folder / f"moment-{moment.number}.jsonl", base.seconds
    for attempt in range(ATTEMPTS):
        here = host(folder / f"moment-{moment.number}-{attempt}", moment.kind, servers, database)
        here.home.mkdir()
        plan = moment.plan | {"report": str(report)}
        if "share" in plan:
            plan["after"] = plan.pop("share") * seconds
        started = time.monotonic()
        run = here.start(json.dumps(plan), "run", str(base.recipe), module="tests.suites.doomed")
        before, err = run.communicate(timeout=PATIENCE)
        if run.returncode or "after" not in plan:
            break
        # The machine was busier when the undisturbed run was timed: this one ended before its moment.
        seconds = time.monotonic() - started
        shutil.rmtree(here.home)
    if run.returncode != -signal.SIGKILL:
        moment.problems.append(f"it was not killed but ended with status {run.returncode}: {err[-300:]}")
        return moment
    moment.where = json.loads(report.read_text())["where"]
    moment.problems += [f"after the kill: {problem}" for problem in here.damage()]
    moment.saved = max(here.steps_saved(), default=0)
    if moment.kind == "s3":
        shutil.rmtree(here.home / "cache", ignore_errors=True)
    try:
        after = finish(here, base.recipe)
    except AssertionError as error:
        moment.problems.append(str(error))
        return moment
    judge(moment, base, here, before, after)
    if not moment.problems:
        shutil.rmtree(here.home)
    return moment


def judge(moment: Moment, base: Undisturbed, here: Host, before: str, after: str) -> None:
    """Compare what a killed and resumed run left with what the undisturbed one left."""
    digests, versions = here.digests(), here.versions()
    moment.resumed = resumed_at(after)
    if moment.resumed:
        moment.lost = max(0, reported(before) - moment.resumed)
    wrong = [key[:12] for key, digest in base.digests.items() if digests.get(key) != digest]
    if wrong or len(digests) != len(base.digests):
        moment.problems.append(f"other digests than undisturbed: {wrong}")
    if versions != base.versions:
        moment.problems.append(f"registered {versions}, undisturbed {base.versions}")
    if moment.resumed < moment.saved:
        moment.problems.append(f"went on from step {moment.resumed}, although step {moment.saved} was saved")
    moment.problems += [f"at the end: {problem}" for problem in here.damage()]


def all_moments(
    count: int,
    folder: Path,
    servers: Mapping[str, str],
    *,
    seed: int,
    abreast: int,
    base_of: Callable[[str], Undisturbed] | None = None,
    database: Path | None = None,
) -> list[Moment]:
    """Live through moments, some side by side; a store that no moment uses is not asked for an undisturbed run."""

    @cache
    def made(kind: str) -> Undisturbed:
        (folder / kind).mkdir()
        return undisturbed(kind, folder / kind, servers, database)

    base_of = base_of or made
    with ThreadPoolExecutor(abreast) as pool:
        futures = []
        for moment in list(moments(count, base_of, seed)):
            (place := folder / moment.kind).mkdir(exist_ok=True)
            futures.append(pool.submit(live_through, moment, base_of(moment.kind), place, servers, database))
        return [future.result() for future in futures]


@contextmanager
def prefect_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a Prefect server for all the hosts; yield the setting that names it."""
    from flows.home import Home
    from flows.run.environment import prepare_environment
    from flows.servers.local import prefect_for_a_run

    home = Home(folder / "prefect").create()
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    prepare_environment(home)
    with prefect_for_a_run(home) as ready:
        ready()
        yield {name: os.environ[name] for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")}


def show(found: list[Moment]) -> int:
    """Print what happened by window, and every problem; return how many moments went wrong."""
    from rich.console import Console
    from rich.table import Table

    table = Table("window", "store", "moments", "wrong", "resumed from a checkpoint", "most steps taken again")
    for window, kind in sorted({(moment.window, moment.kind) for moment in found}):
        here = [moment for moment in found if (moment.window, moment.kind) == (window, kind)]
        wrong, resumed = sum(bool(moment.problems) for moment in here), sum(bool(moment.resumed) for moment in here)
        table.add_row(window, kind, str(len(here)), str(wrong), str(resumed), str(max(moment.lost for moment in here)))
    console = Console(width=200)
    console.print(table)
    for moment in found:
        for problem in moment.problems:
            console.print(
                f"moment {moment.number} ({moment.window}, {moment.kind}, {moment.where}): {problem}", markup=False
            )
    wrong = sum(bool(moment.problems) for moment in found)
    console.print(f"{len(found)} kills, {len({moment.where for moment in found})} different lines, {wrong} wrong")
    return wrong


def main() -> int:
    """Run the suite with servers of its own."""
    options = argparse.ArgumentParser(prog="python -m tests.suites.kills", description=__doc__.split("\n\n")[0])  # type: ignore[union-attr]
    options.add_argument("--moments", type=int, default=100, help="how many kills (default: 100)")
    options.add_argument(
        "--struck", type=int, default=40, help="how many moments that a run lives through (default: 40)"
    )
    options.add_argument("--only", default="", help="of those only this kind, for example 'prefect'")
    options.add_argument("--seed", type=int, default=0, help="seed of the moments (default: 0)")
    options.add_argument(
        "--abreast",
        type=int,
        default=max(1, (os.cpu_count() or 1) - 1),
        help="how many side by side (default: all cores but one)",
    )
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="limbeck-kills-"))
    os.environ["LIMBECK_HOME"] = str(folder / "home")
    with s3_server(folder / "s3-server") as server:
        os.environ |= server.environment()
        print(
            f"S3: {server.kind}; {given.moments} moments, seed {given.seed}, {given.abreast} side by side",
            file=sys.stderr,
        )
        chosen = [moment for moment in struck.moments(given.struck, given.seed) if given.only in moment.window][
            : given.struck
        ]
        wrong = struck.show(struck.all_struck(chosen, folder, server.environment())) if chosen else 0
        with prefect_server(folder) if given.moments else nullcontext({}) as servers:
            if given.moments:
                wrong += show(
                    all_moments(
                        given.moments, folder, servers | server.environment(), seed=given.seed, abreast=given.abreast
                    )
                )
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
