"""Moments from the outside: one process of a run is killed, a whole run is stopped and goes on, the clock jumps. Part
of ``make kills``.

``tests/suites/kills.py`` kills runs; here a run lives on and has to notice. Each run brings a Prefect server of its
own, as a person's does, so that what it leaves can be read from its databases. After each moment: the run went on to
its end, or ended in one sentence; a second run ends right, with the digests and versions of an undisturbed one; nothing
is left ``RUNNING`` in Prefect and MLflow; no file is left that somebody would have to remove.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.s3_server import BUCKET, S3Server, make_bucket
from tests.suites.chain import COMPILER, Host, asked, environment, library_of, write_chain
from tests.suites.doomed import LEASE_SECONDS
from tests.tiny import write_tiny_bert, write_tiny_rows
from tests.web_server import free_port

PATIENCE = 700.0
LOOK = 0.05  # seconds between two looks at the processes of a run
STOPPED = 1.5 * LEASE_SECONDS
"""Seconds that a whole run is stopped: longer than its leases live."""
WITHOUT_PREFECT = 20.0
"""Seconds within which a run whose Prefect server is gone has ended, if it does not go on."""
SLACK = 40.0
"""Seconds that a machine may need besides, because others use it too."""
HOUR = 3600
ATTEMPTS = 3  # runs that may end before the moment at which one is to be struck
PARTS = "fork server", "engine", "packer", "prefect"
PLAN = {
    "fork server": 6,
    "engine": 6,
    "packer": 6,
    "prefect": 6,
    "stopped": 4,
    "stopped, with a rival": 4,
    "an hour ahead": 4,
    "an hour back": 4,
}
"""How many of 40 moments are of each kind."""
IN_A_BUCKET = ("stopped, with a rival",)
"""What has a meaning only where workers of several hosts share a store: a file lock of the kernel is held by whoever is
stopped, too."""


@dataclass
class Base:
    """An undisturbed run: what it made, how long it took in all, and how long each of its engines was there, in
    seconds."""

    recipe: Path
    digests: Mapping[str, str]
    versions: list[tuple[str, ...]]
    seconds: float
    engines: list[float]


@dataclass
class Moment:
    """One strike and what came of it."""

    number: int
    window: str
    kind: str
    share: float
    """When: at which of a run's engines, and how far in its life; 0 is the beginning of the first, 1 the end of the
    last but one."""
    where: str = ""
    ended: str = ""
    took: float = 0.0
    """Seconds from the strike to the end of the run."""
    problems: list[str] = field(default_factory=list)


# --- the processes of a run -------------------------------------------------------------------------------------------


def words_of(pid: int) -> list[str]:
    """Return the command line of a process; of one that has ended nothing."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def folder_of(pid: int) -> Path | None:
    """Return the folder that a process works in."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return None


def part_of(pid: int) -> str:
    """Say which part of a run a process is; empty for all others."""
    words, folder = words_of(pid), folder_of(pid)
    if "prefect" in words and {"server", "flows.servers.serve"} & set(words):
        return "prefect"
    if folder is None or not {"tasks.engine.fork_server", "tasks.ports.tracking.package"} & set(words):
        return ""
    if (folder / "packer.log").exists():
        return "packer"
    return "engine" if (folder / "job.json").exists() else "fork server"


def family(run: int) -> list[int]:
    """Return everything that a run has started, and what that has started."""
    parents = dict[int, int]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    found = [run]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def parts(run: int) -> dict[str, int]:
    """Return the parts of a run that are there now, each with one process."""
    return {part: pid for pid in family(run) if (part := part_of(pid))}


def kill(part: str, pid: int) -> None:
    """Kill one part; Prefect's server is a group of processes."""
    with contextlib.suppress(ProcessLookupError):
        if part == "prefect":
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


def send_all(run: int, number: int) -> None:
    """Send a signal to a run and everything that it started."""
    for pid in [run, *family(run)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


# --- hosts and their clock --------------------------------------------------------------------------------------------


class Clock:
    """A clock of some processes, that can be made to jump, told by a file; what measures durations goes on as it
    did."""

    def __init__(self, folder: Path) -> None:
        self.file, self.library = folder / "clock", library_of("clock", folder)
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Set the clock this far from the true time."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.rename(self.file)

    def environment(self) -> dict[str, str]:
        """Return what a process with this clock must be told."""
        return {"LD_PRELOAD": str(self.library), "LIMBECK_CLOCK": str(self.file)}


@contextlib.contextmanager
def moto_with(clock: Clock) -> Iterator[S3Server]:
    """Run an S3 server with a clock of ours: the store of one machine whose clock jumps."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(command, env=os.environ | clock.environment(), **quiet)  # type: ignore[call-overload]
    try:
        server = S3Server("moto", f"http://127.0.0.1:{port}")
        wait_until(lambda: answers(port), 60, "moto")
        make_bucket(server)
        yield server
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    """Whether somebody listens on a port."""
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(there: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something."""
    limit = time.monotonic() + seconds
    while not there():
        if time.monotonic() > limit:
            raise RuntimeError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(LOOK)


def new_host(
    folder: Path, kind: str, servers: Mapping[str, str], store: str = "", database: Path | None = None
) -> Host:
    """Return a host with nothing on it: its home, and beside it a folder for what programs leave in /tmp."""
    scratch = folder.with_name(f"{folder.name}-tmp")
    scratch.mkdir(parents=True)
    folder.mkdir()
    place = (
        f"s3://{BUCKET}/{store or f'{folder.parents[1].name}-{folder.parent.name}-{folder.name}'}"
        if kind == "s3"
        else ""
    )
    return Host(folder, place, {**servers, "TMPDIR": str(scratch)}, database)


def begin(here: Host, recipe: Path) -> subprocess.Popen[str]:
    """Start the chain."""
    return here.start("{}", "run", str(recipe), module="tests.suites.doomed")


def undisturbed(kind: str, folder: Path, servers: Mapping[str, str]) -> Base:
    """Run the chain to its end, and look all the time which engine is there."""
    recipe = write_chain(folder, write_tiny_bert(folder / "bert"), write_tiny_rows(folder))
    here, seen = new_host(folder / "undisturbed", kind, servers), dict[int, list[float]]()
    started, run = time.monotonic(), begin(here, recipe)
    while run.poll() is None:
        if engine := parts(run.pid).get("engine"):
            seen.setdefault(engine, []).append(time.monotonic())
        time.sleep(LOOK)
    seconds = time.monotonic() - started
    _, err = run.communicate()
    if run.returncode:
        raise RuntimeError(f"the undisturbed run ended with status {run.returncode}: {err[-800:]}")
    return Base(recipe, here.digests(), here.versions(), seconds, [times[-1] - times[0] for times in seen.values()])


# --- strikes ----------------------------------------------------------------------------------------------------------


def wait_for_moment(moment: Moment, base: Base, run: subprocess.Popen[str]) -> int:
    """Wait for a moment in the work of a run's engines, and for the part that is to be struck; return its process, 0 if
    the run has ended before."""
    place = moment.share * (len(base.engines) - 1)
    number, delay = int(place), place % 1 * base.engines[int(place)]
    seen, due, part = set[int](), float("inf"), moment.window if moment.window in PARTS else "engine"
    while run.poll() is None:
        there = parts(run.pid)
        if "engine" in there and there["engine"] not in seen:
            seen.add(there["engine"])
            due = time.monotonic() + delay if len(seen) == number + 1 else due
        if part in there and (time.monotonic() >= due or part == "packer"):
            time.sleep(delay if part == "packer" else 0.0)
            moment.where = (
                f"at engine {len(seen)}, "
                f"{(folder_of(there.get('engine', 0)) or Path('none at work')).name.rsplit('-', 1)[0]}"
            )
            return there[part]
        time.sleep(LOOK)
    return 0


def stop_and_go_on(run: subprocess.Popen[str]) -> None:
    """Stop everything that belongs to a run for longer than a lease lives, then let it go on."""
    send_all(run.pid, signal.SIGSTOP)
    time.sleep(STOPPED)
    send_all(run.pid, signal.SIGCONT)


def live_through(
    moment: Moment, base: Base, folder: Path, servers: Mapping[str, str], database: Path | None = None
) -> Moment:
    """Strike a run, see how it ends, run it again, and look at what is left."""
    with contextlib.ExitStack() as stack:
        clock = Clock(folder) if moment.window.startswith("an hour") else None
        if clock is not None:
            own = stack.enter_context(moto_with(clock)).environment() if moment.kind == "s3" else {}
            servers = {**servers, **own, **clock.environment()}
            stack.enter_context(environment(own))
        for attempt in range(ATTEMPTS):
            here = new_host(folder / f"moment-{moment.number}-{attempt}", moment.kind, servers, database=database)
            if struck(moment, base, here, clock):
                break
            # This run was quicker than the undisturbed one, or ended between two looks.
            moment.share /= 2
        else:
            moment.problems.append(f"{ATTEMPTS} runs ended before one could be struck")
        again(moment, base, here)
        judge(moment, base, here)
        if not moment.problems:
            shutil.rmtree(here.home)
            shutil.rmtree(here.servers["TMPDIR"])
    return moment


def struck(moment: Moment, base: Base, here: Host, clock: Clock | None) -> bool:
    """Run the chain and strike; note how the run ended, and return whether it was struck before."""
    run = begin(here, base.recipe)
    target = wait_for_moment(moment, base, run)
    everything, at = set(family(run.pid)), time.monotonic()
    if target and moment.window in PARTS:
        kill(moment.window, target)
    elif target and clock is not None:
        clock.jump(HOUR if moment.window == "an hour ahead" else -HOUR)
    elif target and moment.window == "stopped":
        stop_and_go_on(run)
    elif target:
        overtake(moment, base, here, run)
    everything |= set(family(run.pid))
    try:
        _, err = run.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        moment.problems.append(f"the run still ran {PATIENCE:.0f} s after the strike")
        send_all(run.pid, signal.SIGKILL)
        _, err = run.communicate()
    moment.took = time.monotonic() - at
    moment.ended = "went on" if run.returncode == 0 else f"said: {err.strip()[:160]}"
    moment.problems += [*unlike_an_end(moment, base, run.returncode, err), *survivors(everything)]
    return bool(target)


def unlike_an_end(moment: Moment, base: Base, status: int, err: str) -> Iterator[str]:
    """Say what is wrong with how a run ended: it goes on, or ends in one sentence, and neither takes for ever."""
    if status and (status != 1 or len(err.strip().splitlines()) != 1 or "Traceback" in err):
        yield f"ended with status {status} and {err.strip()[-300:]!r}"
    if moment.window == "prefect" and status and moment.took > WITHOUT_PREFECT + SLACK:
        yield f"ended only {moment.took:.0f} s after Prefect's server"
    if moment.took > 3 * base.seconds + SLACK:
        yield f"ended only after {moment.took:.0f} s; undisturbed it takes {base.seconds:.0f} s in all"


def survivors(everything: set[int]) -> Iterator[str]:
    """Say which processes of a run outlived it."""
    with contextlib.suppress(RuntimeError):
        wait_until(lambda: not any(words_of(pid) for pid in everything), 20, "the end of all processes")
    yield from (f"left a process: {' '.join(words)[:120]}" for pid in everything if (words := words_of(pid)))


def overtake(moment: Moment, base: Base, here: Host, run: subprocess.Popen[str]) -> None:
    """Stop a run until another host with the same store has taken its stage over and made it; then let it go on, and
    the other one end."""
    rival = new_host(here.home.with_name(f"{here.home.name}-rival"), "s3", here.servers, here.store.split("/", 3)[3])
    send_all(run.pid, signal.SIGSTOP)
    second = begin(rival, base.recipe)
    try:
        out, err = second.communicate(timeout=PATIENCE)
    finally:
        send_all(run.pid, signal.SIGCONT)
    if second.returncode:
        moment.problems.append(f"the rival ended with status {second.returncode}: {err.strip()[-300:]}")
    moment.problems += [f"rival: {problem}" for problem in left(rival, second.pid)]
    shutil.rmtree(rival.home)


def again(moment: Moment, base: Base, here: Host) -> None:
    """Run the chain a second time."""
    run = begin(here, base.recipe)
    out, err = run.communicate(timeout=PATIENCE)
    if run.returncode:
        moment.problems.append(f"the second run ended with status {run.returncode}: {err.strip()[-400:]}")


# --- what is left -----------------------------------------------------------------------------------------------------


def judge(moment: Moment, base: Base, here: Host) -> None:
    """Compare what is there after the second run with what an undisturbed one left."""
    digests = here.digests()
    wrong = [key[:12] for key, digest in base.digests.items() if digests.get(key) != digest]
    if wrong or len(digests) != len(base.digests):
        moment.problems.append(f"other digests than undisturbed: {wrong}")
    if (
        moment.window not in IN_A_BUCKET and here.versions() != base.versions
    ):  # of two hosts one registers first, each in its own MLflow
        moment.problems.append(f"registered {here.versions()}, undisturbed {base.versions}")
    moment.problems += [f"at the end: {problem}" for problem in [*here.damage(), *left(here)]]


def left(here: Host, process: int | None = None) -> Iterator[str]:
    """Say what a host's runs have left that should not be there. Of leases those of one process count where it is
    named: another host may be at work in the same bucket."""
    for name, query in (
        (
            "prefect.db",
            "select 'flow run', name, state_type from flow_run union all select 'task run', name, state_type from "
            "task_run",
        ),
        ("mlflow.db", "select 'run', name, status from runs"),
    ):
        for what, title, state in asked(here.home / name, query):
            if state in ("RUNNING", "PENDING", "SCHEDULED", "CANCELLING"):
                yield f"{what} {title} is {state} in {name}"
    store, published = here.opened(), set(here.digests())
    leases = [note for note in store.running() if process is None or note["pid"] == process]
    yield from (f"the lease of {note['stage']} is held by process {note['pid']}" for note in leases)
    for place in ("store/temporary", "cache/workspace", "cache/temporary"):
        yield from (f"{path.relative_to(here.home)} is left" for path in (here.home / place).glob("*"))
    checkpoints = [path.name for place in ("store", "cache") for path in (here.home / place).glob("checkpoints/*")]
    if here.store:
        checkpoints += {entry.name.split("/")[1] for entry in store.bucket.entries("checkpoints/")}
    yield from (f"checkpoints of {key[:12]}, which has a result, are left" for key in checkpoints if key in published)
    # torch keeps one cache a user in the temporary folder, whatever runs.
    there = [path.name for path in Path(here.servers["TMPDIR"]).iterdir() if not path.name.startswith("torchinductor_")]
    yield from (f"{name} is left in the temporary folder" for name in there)


# --- all of them ------------------------------------------------------------------------------------------------------


def moments(count: int, seed: int) -> list[Moment]:
    """Choose moments: of each kind its share of the count, in a folder and in a bucket by turns."""
    dice, found = random.Random(seed), list[Moment]()
    for window, share in PLAN.items():
        for turn in range(max(1, round(share * count / sum(PLAN.values()))) if count else 0):
            kind = "s3" if turn % 2 or window in IN_A_BUCKET else "folder"
            found.append(Moment(len(found), window, kind, dice.random()))
    return found


def all_struck(chosen: list[Moment], folder: Path, servers: Mapping[str, str]) -> list[Moment]:
    """Live through moments, one after the other; without the library that makes clocks jump, say so."""
    bases, done = dict[str, Base](), list[Moment]()
    for moment in chosen:
        if moment.window.startswith("an hour") and COMPILER is None:
            moment.ended = "NOT TRIED: install a C compiler"
            done.append(moment)
            continue
        place = folder / f"struck-{moment.kind}"
        if moment.kind not in bases:
            place.mkdir()
            bases[moment.kind] = undisturbed(moment.kind, place, servers)
        started = time.monotonic()
        done.append(live_through(moment, bases[moment.kind], place, servers))
        print(
            f"moment {moment.number} ({moment.window}, {moment.kind}), {moment.where}: {moment.ended} in "
            f"{moment.took:.0f} s; "
            f"{'; '.join(moment.problems) or 'right'} ({time.monotonic() - started:.0f} s)",
            file=sys.stderr,
            flush=True,
        )
    return done


def show(found: list[Moment]) -> int:
    """Print what happened by window, and every problem; return how many moments went wrong."""
    from rich.console import Console
    from rich.table import Table

    table = Table("struck", "store", "moments", "wrong", "went on", "ended in a sentence", "slowest end")
    for window, kind in dict.fromkeys((moment.window, moment.kind) for moment in found):
        here = [moment for moment in found if (moment.window, moment.kind) == (window, kind)]
        wrong, on = sum(bool(moment.problems) for moment in here), sum(moment.ended == "went on" for moment in here)
        said = sum(moment.ended.startswith("said") for moment in here)
        table.add_row(
            window, kind, str(len(here)), str(wrong), str(on), str(said), f"{max(moment.took for moment in here):.0f} s"
        )
    console = Console(width=200)
    console.print(table)
    for moment in found:
        for problem in moment.problems:
            console.print(
                f"moment {moment.number} ({moment.window}, {moment.kind}, {moment.where}): {problem}", markup=False
            )
    wrong = sum(bool(moment.problems) for moment in found)
    tried = [moment for moment in found if not moment.ended.startswith("NOT TRIED")]
    console.print(f"{len(tried)} of {len(found)} moments tried, {wrong} wrong")
    return wrong
