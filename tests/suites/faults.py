"""The fault suite: break a store, a server, a disk, a clock or an artifact under whole runs of real processes, and see
how they end.

    python -m tests.suites.faults [NAME …]       prints the table; non-zero if anything went wrong

Every fault is set while the teacher learns, unless it is about what was stored before. The run must end with the
digests of an undisturbed one: by itself where the fault passes, else after one clear sentence and a second run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe

from flows.home import Home
from flows.servers.local import listening, running
from tasks.ports.store.s3 import object_name
from tests.chaos import Chaos, chaos_before
from tests.s3_server import BUCKET, Cluster, kind_here, make_bucket, s3_server
from tests.suites.chain import Host, cache_of, environment
from tests.suites.kills import PATIENCE, Undisturbed, finish, prefect_server, undisturbed
from tests.web_server import free_port

AWAY = 30.0  # seconds for which a store is unreachable
RESTART = 5.0  # seconds for which a killed server stays away


@dataclass
class Scene:
    """What all faults share: servers, and the undisturbed run to compare with."""

    folder: Path
    servers: Mapping[str, str]
    base: Undisturbed
    database: Path | None = None

    def host(self, name: str, *, store: str | None = None, **servers: str) -> Host:
        """Return a host with nothing on it, and a place of its own in the bucket unless it shares one."""
        home = self.folder / name
        home.mkdir(parents=True)
        return Host(
            home,
            f"s3://{BUCKET}/{self.folder.parent.name}-{store or name}",
            dict(self.servers) | servers,
            self.database,
        )

    def run(self, here: Host, middle: Callable[[], None] = lambda: None) -> tuple[int, str, str]:
        """Run the chain and do something in the middle of the teacher's training; return status, output and errors."""
        run = here.start(
            "{}", "run", str(self.base.recipe), "--json", str(here.home / "out.json"), module="tests.suites.doomed"
        )
        seen = until(run, "finetune-teacher: ")
        middle()
        out, err = run.communicate(timeout=PATIENCE)
        return run.returncode, seen + out, err

    def differs(self, here: Host) -> list[str]:
        """Say what of a host's results is not as in the undisturbed run."""
        problems = [*here.damage()]
        if here.digests() != self.base.digests:
            problems.append("other digests than undisturbed")
        if "MLFLOW_TRACKING_URI" not in here.servers and here.versions() != self.base.versions:
            problems.append(f"registered {here.versions()}")
        return problems


@dataclass
class Outcome:
    """One fault and how it ended."""

    fault: str
    happened: str
    problems: list[str] = field(default_factory=list)


Fault = Callable[[Scene], Outcome]


def until(run: subprocess.Popen[str], word: str) -> str:
    """Read a run's output up to a line that starts with a word; return what was read."""
    assert run.stdout is not None
    read = ""
    for line in run.stdout:
        read += line
        if line.strip().startswith(word):
            break
    return read


def ended(scene: Scene, fault: str, here: Host, run: tuple[int, str, str]) -> Outcome:
    """Judge a run that should have lived through its fault."""
    status, _, err = run
    if status:
        return Outcome(fault, f"status {status}", [err.strip()[-400:]])
    return Outcome(fault, "ran to its end", scene.differs(here))


# --- the network ------------------------------------------------------------------------------------------------------


def network(fault: str, break_it: Callable[[Chaos], dict[str, int]]) -> Fault:
    """Return a fault of the network between a run and its store; of what is planned, some must be met at least."""

    def happen(scene: Scene) -> Outcome:
        with chaos_before(scene.servers["AWS_ENDPOINT_URL_S3"]) as chaos:
            here = scene.host(fault.replace(" ", "-"), AWS_ENDPOINT_URL_S3=chaos.endpoint)
            planned: dict[str, int] = {}
            outcome = ended(scene, fault, here, scene.run(here, lambda: planned.update(break_it(chaos))))
            unmet = [name for name, count in planned.items() if getattr(chaos, name) == count]
            return Outcome(fault, outcome.happened, outcome.problems + [f"{name} never happened" for name in unmet])

    return happen


def away(chaos: Chaos, seconds: float, **then: int) -> dict[str, int]:
    """Break every connection for a while; connections that are made afterwards meet what is set in ``then``, which is
    returned."""
    chaos.down = True
    time.sleep(seconds)
    for name, count in then.items():
        setattr(chaos, name, count)
    chaos.down = False
    return then


# --- servers that are killed and come back ----------------------------------------------------------------------------


class Restartable:
    """A server that can be killed without a word and started again at the same address."""

    def __init__(self, folder: Path, name: str) -> None:
        self.home, self.name, self.port, self.password = (
            Home(folder / f"{name}-server").create(),
            name,
            free_port(),
            token_urlsafe(24),
        )

    def __enter__(self) -> Restartable:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()

    def start(self) -> None:
        """Start it and wait until it answers."""
        where = {
            "PREFECT_HOME": str(self.home.root),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self.home.root / 'prefect.db'}",
        }
        self.running = ExitStack()
        taken = self.running.enter_context(listening(self.name, self.port))
        self.server = self.running.enter_context(
            running(self.home, self.name, taken, password=self.password, extra=where)
        )
        self.server.wait()

    def die_and_return(self) -> None:
        """Be killed, stay away, come back."""
        os.killpg(self.server.process.pid, signal.SIGKILL)
        self.running.close()
        time.sleep(RESTART)
        self.start()


def killed_mlflow(scene: Scene) -> Outcome:
    """Kill the MLflow server while the teacher learns."""
    with Restartable(scene.folder, "mlflow") as server:
        here = scene.host("mlflow-killed", **server.server.client)
        outcome = ended(scene, "MLflow server killed and restarted", here, scene.run(here, server.die_and_return))
        told = Host(server.home.root).versions()
        return (
            outcome
            if outcome.problems or told == scene.base.versions
            else Outcome(outcome.fault, outcome.happened, [f"registered {told}"])
        )


def killed_prefect(scene: Scene) -> Outcome:
    """Kill the Prefect server while the teacher learns."""
    with Restartable(scene.folder, "prefect") as server:
        here = scene.host("prefect-killed", **server.server.client)
        return ended(scene, "Prefect server killed and restarted", here, scene.run(here, server.die_and_return))


def killed_store(scene: Scene) -> Outcome:
    """Kill the gateway of the S3 server while the teacher learns."""
    fault = "S3 server killed and restarted"
    if kind_here() != "radosgw":
        return Outcome(fault, "NOT TRIED: moto forgets everything when it is killed; install Ceph")
    cluster = Cluster(scene.folder / "s3-killed-server")
    try:
        cluster.start()
        server = cluster.server()
        make_bucket(server)
        here = scene.host("s3-killed", **server.environment())
        with environment(server.environment()):
            return ended(scene, fault, here, scene.run(here, lambda: cluster.restart_gateway(RESTART)))
    finally:
        cluster.stop()


# --- disks, artifacts, workers, clocks --------------------------------------------------------------------------------


def full_disk(scene: Scene) -> Outcome:
    """Give the cache folder a disk of half a megabyte; then a larger one."""
    fault, here = "disk full in the cache folder", scene.host("full")
    cache = here.home / "cache"
    cache.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "limbeck-test", str(cache)], capture_output=True
    ).returncode:
        return Outcome(fault, "NOT TRIED: only root may mount a small disk")
    try:
        status, _, err = scene.run(here)
    finally:
        subprocess.run(["umount", str(cache)], check=True)
    problems = [*here.damage(), *([] if status == 1 else [f"status {status}"]), *unless_sentence(err, "full")]
    again = ended(scene, fault, here, scene.run(here))
    return Outcome(fault, f"said: {err.strip()[:90]}…; then {again.happened}", problems + again.problems)


def damaged(fault: str, damage: Callable[[Host, str], None]) -> Fault:
    """Return a fault of the teacher's weights under a live key; the students are gone too, so that the teacher is
    needed."""

    def happen(scene: Scene) -> Outcome:
        here = scene.host(fault.replace(" ", "-"))
        finish(here, scene.base.recipe)
        store = here.opened()
        manifests = {manifest["stage"]: manifest for manifest in store.manifests()}
        damage(here, object_name(manifests["finetune-teacher"]["sha256"], "model.safetensors"))
        store.remove_result(manifests["distill-predictions"]["key"])
        shutil.rmtree(here.home / "cache")
        status, _, err = scene.run(here)
        first, problems = (
            (f"said: {err.strip()[:90]}…; then ", unless_sentence(err, "run again")) if status else ("", [])
        )
        if status:
            status, _, err = scene.run(here)
        made = (
            [stage for stage, cache in cache_of(here.home / "out.json").items() if cache == "miss"]
            if not status
            else []
        )
        outcome = ended(scene, fault, here, (status, "", err))
        return Outcome(fault, f"{first}{outcome.happened}, making {', '.join(made)}", problems + outcome.problems)

    return happen


def flip(here: Host, name: str) -> None:
    """Turn one bit of an object."""
    bucket = here.opened().bucket
    body = bytearray(bucket.read(name))
    body[len(body) // 2] ^= 1
    bucket.write(name, bytes(body))


def truncate(here: Host, name: str) -> None:
    """Cut an object in half."""
    bucket = here.opened().bucket
    body = bucket.read(name)
    bucket.write(name, body[: len(body) // 2])


def racing(count: int) -> Fault:
    """Return a race of workers with nothing in common but the bucket."""

    def happen(scene: Scene) -> Outcome:
        hosts = [scene.host(f"race-{count}-{number}", store=f"race-{count}") for number in range(count)]
        words = ["{}", "run", str(scene.base.recipe), "--json"]
        runs = [here.start(*words, str(here.home / "out.json"), module="tests.suites.doomed") for here in hosts]
        errors = [run.communicate(timeout=PATIENCE)[1] for run in runs]
        problems = [error.strip()[-300:] for run, error in zip(runs, errors, strict=True) if run.returncode]
        if problems:
            return Outcome(f"{count} workers race", "some failed", problems)
        misses: dict[str, int] = {}
        for here in hosts:
            for stage, cache in cache_of(here.home / "out.json").items():
                misses[stage] = misses.get(stage, 0) + (cache == "miss")
        problems = [f"{stage} was made {times} times" for stage, times in misses.items() if times != 1]
        return Outcome(
            f"{count} workers race", f"each of {len(misses)} stages was made once", problems + scene.differs(hosts[0])
        )

    return happen


def wrong_clock(minutes: int) -> Fault:
    """Return a race in which one worker's clock is wrong; S3 itself refuses a worker that is off by more than a quarter
    of an hour."""

    def happen(scene: Scene) -> Outcome:
        fault, store = f"a worker's clock {minutes} minutes ahead", f"clock-{minutes}"
        right, wrong = scene.host(f"{store}-right", store=store), scene.host(f"{store}-wrong", store=store)
        plans = [(wrong, {"ahead": minutes * 60}), (right, {})]
        runs = [
            here.start(json.dumps(plan), "run", str(scene.base.recipe), module="tests.suites.doomed")
            for here, plan in plans
        ]
        (_, said), (_, err) = [run.communicate(timeout=PATIENCE) for run in runs]
        problems = [err.strip()[-300:]] if runs[1].returncode else scene.differs(right)
        if not runs[0].returncode:
            return Outcome(fault, "both ran to their ends", problems)
        return Outcome(
            fault, f"it said: {said.strip()[:90]}…; the other ran to its end", problems + unless_sentence(said, "clock")
        )

    return happen


def unless_sentence(said: str, word: str) -> list[str]:
    """Say what is wrong with a message that should be one sentence about something."""
    return [] if len(said.strip().splitlines()) == 1 and word in said else [f"said {said.strip()[-300:]!r}"]


FAULTS: dict[str, Fault] = {
    "busy": network("store answers 503", lambda chaos: away(chaos, 0.2, busy=15)),
    "hang": network("store hangs", lambda chaos: away(chaos, 0.2, hang=2)),
    "cut": network("store cuts the body", lambda chaos: away(chaos, 0.2, cut=5)),
    "lost-answers": network("store's answers get lost", lambda chaos: away(chaos, 0.2, deaf=5)),
    "away": network("store away for 30 s", lambda chaos: away(chaos, AWAY)),
    "s3-killed": killed_store,
    "mlflow-killed": killed_mlflow,
    "prefect-killed": killed_prefect,
    "full-disk": full_disk,
    "flipped-byte": damaged("one bit of a stored model flipped", flip),
    "truncated": damaged("a stored model truncated", truncate),
    "deleted": damaged("a stored model deleted", lambda here, name: here.opened().bucket.delete(name)),
    "race-2": racing(2),
    "race-8": racing(8),
    "clock-10": wrong_clock(10),
    "clock-20": wrong_clock(20),
}


def all_faults(
    names: list[str], folder: Path, servers: Mapping[str, str], database: Path | None = None
) -> list[Outcome]:
    """Let faults happen, one after the other."""
    base = undisturbed("s3", folder, servers, database)
    scene = Scene(folder, servers, base, database)
    return [FAULTS[name](scene) for name in names]


def show(outcomes: list[Outcome]) -> int:
    """Print what happened; return how many faults ended otherwise than they should."""
    from rich.console import Console
    from rich.table import Table

    table = Table("fault", "what happened", "problems")
    for outcome in outcomes:
        table.add_row(outcome.fault, outcome.happened, "; ".join(outcome.problems) or "none")
    console = Console(width=200)
    console.print(table)
    wrong = sum(bool(outcome.problems) for outcome in outcomes)
    tried = [outcome for outcome in outcomes if not outcome.happened.startswith("NOT TRIED")]
    console.print(f"{len(tried)} of {len(outcomes)} faults tried, {wrong} wrong")
    return wrong


def main() -> int:
    """Run the suite with servers of its own."""
    options = argparse.ArgumentParser(prog="python -m tests.suites.faults", description=__doc__.split("\n\n")[0])  # type: ignore[union-attr]
    options.add_argument(
        "names",
        nargs="*",
        choices=[*FAULTS, []],
        metavar="NAME",
        help=f"which faults; by default all: {', '.join(FAULTS)}",
    )
    names = options.parse_args().names or list(FAULTS)
    folder = Path(tempfile.mkdtemp(prefix="limbeck-faults-"))
    os.environ["LIMBECK_HOME"] = str(folder / "home")
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(folder / "s3-server"))
        servers = stack.enter_context(prefect_server(folder)) | server.environment()
        os.environ |= server.environment()
        print(f"S3: {server.kind}", file=sys.stderr)
        (folder / "runs").mkdir()
        wrong = show(all_faults(names, folder / "runs", servers))
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
