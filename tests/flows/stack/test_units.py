"""Units of systemd say what systemd understands, hold no secret, and bring the servers back; the last is tried with a
real systemd, which watches a stand-in of the command line."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.home import Home
from flows.stack import credentials
from flows.stack.operation import units
from flows.stack.operation.units import stack_unit, worker_unit, write_unit
from flows.stack.settings import Settings, Stack
from tasks.errors import StackError
from tests.flows.stack.running import APART, eventually

ANALYZE = shutil.which("systemd-analyze")
SYSTEMD = Path("/lib/systemd/systemd")
NEEDS_SYSTEMD = pytest.mark.skipif(ANALYZE is None, reason="NO SYSTEMD HERE: units were not checked by systemd itself")
SERVICE = "daemon"
"""A user that every machine has; of nobody systemd says that it is not safe."""
MOST_EXPOSED = "40"
"""In tenths: systemd calls a service "OK" up to 4.9, and one without hardening is at 9.6."""
STAND_IN = """#!/bin/sh
cd "$(dirname "$0")/../home/stack" || exit 9
case "$4" in
up) setsid sh -c 'echo $$ >run/supervisord.pid; echo "up $LIMBECK_HOME $MORE" >>seen; exec sleep 1000' >/dev/null 2>&1 &
  sleep 0.5 ;;
down) echo down >>seen; kill "$(cat run/supervisord.pid)" ;;
esac
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return made(tmp_path / "home")


def made(root: Path) -> Home:
    """Make the home of a stack that was started once."""
    stack = Stack(root / "stack", Settings(s3="radosgw", worker_user=APART))
    stack.run.mkdir(parents=True)
    stack.save()
    return Home(root)


def machine_file(folder: Path) -> Path:
    """Write the file of a worker, as limbeck workers add does."""
    file = folder / "gpu box.json"
    file.write_text('{"MLFLOW_TRACKING_USERNAME": "gpu-box", "trust": ""}')
    file.chmod(0o600)
    return file


def as_user(monkeypatch: pytest.MonkeyPatch, root: bool) -> None:
    uid = 0 if root else pwd.getpwnam(SERVICE).pw_uid
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(units, "require_worker_of", lambda source, user: None)


@NEEDS_SYSTEMD
@pytest.mark.parametrize("folder", ["home", 'a "50 %" $HOME \\home'], ids=["plain", "awkward"])
def test_systemd_understands_each_unit(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made(tmp_path / folder)
    for root in (True, False):
        as_user(monkeypatch, root)
        for unit in (stack_unit(home), worker_unit(home, machine_file(tmp_path), "gpu-local", SERVICE)):
            file = write_unit(unit, tmp_path / f"units-{root}")
            done = subprocess.run([str(ANALYZE), "verify", "--man=no", file], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert f'Environment="LIMBECK_HOME={units.quote_value(str(home.root))}"' in unit.text


@NEEDS_SYSTEMD
def test_a_service_of_root_is_hardened(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, root=True)
    words = [str(ANALYZE), "security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}"]
    for unit in (stack_unit(home), worker_unit(home, machine_file(tmp_path), "gpu-local", SERVICE)):
        file = write_unit(unit, tmp_path / "units")
        done = subprocess.run([*words, file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    file.write_text(file.read_text().replace(units.EVERYWHERE, "").replace(units.BY_ROOT, ""))
    assert subprocess.run([*words, file], capture_output=True).returncode != 0, "and this is how it would be found"


def test_no_unit_holds_a_secret_and_a_worker_s_is_not_root_s(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = credentials.generate(Stack.of(home).secrets_file)
    as_user(monkeypatch, root=True)
    servers, worker = stack_unit(home).text, worker_unit(home, machine_file(tmp_path), "gpu-local", SERVICE).text
    assert not any(value in text for value in secret.values() for text in (servers, worker))
    assert f"\nUser={SERVICE}\n" in worker and "\nCapabilityBoundingSet=\n" in worker
    assert "\nWantedBy=multi-user.target\n" in servers and "\nWantedBy=multi-user.target\n" in worker


def test_an_ordinary_user_gets_a_unit_of_its_own_systemd(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, root=False)
    unit = stack_unit(home)
    assert "\nWantedBy=default.target\n" in unit.text and "ProtectSystem" not in unit.text
    assert unit.commands[0] == "limbeck down" and unit.commands[-1] == "loginctl enable-linger"


def test_a_unit_of_another_home_or_of_a_person_stays(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user(monkeypatch, root=True)
    file = write_unit(stack_unit(home), tmp_path / "units")
    assert write_unit(stack_unit(home), tmp_path / "units") == file, "its own is written again"
    with pytest.raises(StackError, match="of another home or of a person; choose another name with --name"):
        write_unit(stack_unit(made(tmp_path / "other")), tmp_path / "units")
    file.write_text("[Service]\n")
    with pytest.raises(StackError, match="choose another name with --name"):
        write_unit(stack_unit(home), tmp_path / "units")


def test_what_could_not_start_is_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StackError, match="has no stack yet; choose its settings first, by limbeck up"):
        stack_unit(Home(tmp_path / "new"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(StackError, match="there is no user no-such-user .*useradd"):
        worker_unit(home, machine_file(tmp_path), "gpu-local", "no-such-user")
    with pytest.raises(StackError, match=f"who reads it; run: chown {SERVICE} "):
        worker_unit(home, machine_file(tmp_path), "gpu-local", SERVICE)


# --- a real systemd ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[dict[str, str]]:
    """Run a systemd of one user, in control groups and a mount namespace of its own, that knows the units of a folder
    alone; yield the environment in which systemctl asks it."""
    groups = [Path(f"/sys/fs/cgroup/{kind}/limbeck-{os.getpid()}") for kind in ("systemd", "unified", ".")]
    groups = [group for group in groups if (group.parent / "cgroup.procs").exists()]
    runtime = Path(tempfile.mkdtemp(prefix="limbeck-systemd-", dir="/tmp"))
    for name in ("start", "basic", "default", "shutdown", "exit", "sockets", "timers", "paths"):
        (folder / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    for group in groups:
        group.mkdir()
    enter = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
    # a user's systemd starts only where the system was booted by systemd, of which it sees this folder
    booted = "mount -t tmpfs tmpfs /run/systemd; mkdir /run/systemd/system"
    script = f"{enter}; exec unshare -m sh -c '{booted}; exec {SYSTEMD} --user --unit=start.target'"
    told = os.environ | {"XDG_RUNTIME_DIR": str(runtime), "SYSTEMD_UNIT_PATH": str(folder)}
    process = subprocess.Popen(["sh", "-c", script], env=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: (runtime / "systemd" / "private").exists(), "systemd did not start", 60)
        yield told
    finally:
        process.kill()
        process.wait(60)
        for group in groups:
            for inner in (*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group):
                for pid in (inner / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                eventually(lambda inner=inner: not (inner / "cgroup.procs").read_text(), "it does not end", 60)
                inner.rmdir()
        shutil.rmtree(runtime)


def supervisor(stack: Stack) -> str:
    """Return the id of the supervisor; systemd removes the file of one that died."""
    file = stack.run / "supervisord.pid"
    return file.read_text().strip() if file.exists() else ""


def systemctl(told: dict[str, str], *words: str) -> str:
    done = subprocess.run(["systemctl", "--user", *words, "limbeck.service"], env=told, capture_output=True, text=True)
    return done.stdout.strip() + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEMD.exists() or not shutil.which("unshare"),
    reason="NO SYSTEMD OF ITS OWN HERE: it needs root, systemd and control groups",
)
def test_systemd_starts_it_starts_it_again_when_it_is_killed_and_stops_it_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, stand_in = made(tmp_path / "home"), tmp_path / "bin" / "python"
    stack = Stack.of(home)
    (stack.root / "environment").write_text("MORE=from-the-file\n")
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    as_user(monkeypatch, root=False)
    write_unit(stack_unit(home), tmp_path / "units")
    monkeypatch.undo()
    with watching(tmp_path / "units") as told:
        assert systemctl(told, "start") == ""
        first = supervisor(stack)
        assert systemctl(told, "show", "-P", "MainPID") == first, "it watches the supervisor"
        subprocess.run(["kill", "-9", first], check=True)
        began = time.monotonic()
        eventually(lambda: supervisor(stack) not in ("", first), "it did not come back", 60)
        print(f"FIGURE kill -9 of the supervisor: systemd started it again after {time.monotonic() - began:.0f} s")
        eventually(lambda: systemctl(told, "is-active") == "active", "it did not come back", 60)
        assert systemctl(told, "stop") == ""
        started = f"up {home.root} from-the-file"
        assert (stack.root / "seen").read_text().splitlines() == [started, started, "down"]
        assert systemctl(told, "is-active") == "inactive"
