"""Units of systemd, so that the servers, or a worker of another machine, are there after a reboot and come back when
their first process dies. Root gets a system unit, an ordinary user one of the user's own systemd."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flows.home import Home
from flows.stack.people.machines import read_worker_file
from flows.stack.settings import Stack
from flows.stack.setup.worker_user import require_access
from tasks.errors import StackError

UNIT_START_SECONDS, UNIT_STOP_SECONDS = 1800, 600
"""Seconds for a start, which may migrate databases, and for an orderly stop, in which runs write their checkpoints."""
WORKER_STOP_SECONDS = 120
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MARK = "# Written by limbeck units. Changes belong into a drop-in: systemctl edit"
EVERYWHERE = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
UMask=0077
LimitNOFILE=65536"""
"""Hardening that a user's own systemd can do, too. GPUs stay: there is no ``PrivateDevices``."""
BY_ROOT = """\
ProtectSystem=strict
ProtectHome=read-only
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes"""
"""Hardening that needs mounts, which only the system's systemd may make everywhere."""
SERVER_RIGHTS = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID CAP_SYS_PTRACE"
"""Rights of root that are left to ``limbeck up``: it starts each server as its own user, and finds leftover ones."""


@dataclass(frozen=True)
class Unit:
    """One unit: its name, its text, and the commands that a person runs once."""

    name: str
    text: str
    commands: tuple[str, ...]


def stack_unit(home: Home, name: str = "limbeck") -> Unit:
    """Return the unit of the servers of a home; raise StackError if there are none yet."""
    stack = Stack.of(home)
    if stack.is_new:
        raise StackError(f"{home.root} has no stack yet; choose its settings first, by limbeck up")
    root = os.geteuid() == 0
    cache = () if stack.workers_apart else (f"-{Path.home() / '.cache'}",)
    places = dict.fromkeys((str(home.root), str(stack.data), "/tmp", "/var/tmp", *cache))
    command = f"{exec_word(sys.executable)} -P -m flows.cli"
    lines = [
        *head(f"Servers of a team (Limbeck, {home.root})", root=root),
        "[Service]",
        "Type=forking",
        f"PIDFile={escape_specifiers(stack.run / 'supervisord.pid')}",
        f"WorkingDirectory={escape_specifiers(stack.root)}",
        *environment_lines(home, stack.root / "environment"),
        f"ExecStart={command} up",
        f"ExecStop={command} down",
        "Restart=on-failure",
        "RestartSec=10",
        f"TimeoutStartSec={UNIT_START_SECONDS}",
        f"TimeoutStopSec={UNIT_STOP_SECONDS}",
        "KillMode=mixed",
        EVERYWHERE,
        *([BY_ROOT, f"CapabilityBoundingSet={SERVER_RIGHTS}", writable_paths(places)] if root else []),
        *tail(root=root),
    ]
    # a supervisor that was started by hand is outside of the unit, which could not watch it
    return Unit(name, "\n".join(lines), ("limbeck down", *enabling(name, root=root)))


def worker_unit(home: Home, source: Path, pool: str, user: str, name: str = "") -> Unit:
    """Return the unit of a worker of another machine's servers; raise StackError if its user could not run it."""
    root = os.geteuid() == 0
    read_worker_file(source)
    if root:
        require_worker_of(source, user)
    elif user not in ("", pwd.getpwuid(os.geteuid()).pw_name):
        raise StackError(f"--worker-user {user}: only root can write a unit for another user; leave it out")
    words = ["worker", str(source), "--pool", pool]
    command = " ".join([exec_word(sys.executable), "-P", "-m", "flows.cli", *map(exec_word, words)])
    own = str(home.root)
    lines = [
        *head(f"Worker of the pool {pool} (Limbeck)", root=root),
        "[Service]",
        "Type=exec",
        *environment_lines(home, home.root / "worker.environment"),
        f"ExecStart={command}",
        "Restart=always",
        "RestartSec=10",
        f"TimeoutStopSec={WORKER_STOP_SECONDS}",
        "KillMode=mixed",
        EVERYWHERE,
        *([BY_ROOT, "CapabilityBoundingSet=", "PrivateTmp=yes", f"User={user}", writable_paths([own])] if root else []),
        *tail(root=root),
    ]
    name = name or f"limbeck-worker-{pool}"
    return Unit(name, "\n".join(lines), enabling(name, root=root))


def require_worker_of(source: Path, user: str) -> None:
    """Raise StackError if a user does not exist, cannot run Limbeck or does not own the worker's file."""
    try:
        about = pwd.getpwnam(user)
    except KeyError as error:
        raise StackError(
            f"there is no user {user} to run the worker; create it: useradd --system --user-group --create-home "
            f"--shell /usr/sbin/nologin {user}, or name another one with --worker-user"
        ) from error
    if source.stat().st_uid != about.pw_uid:
        raise StackError(f"{source} belongs to another user than {user}, who reads it; run: chown {user} {source}")
    require_access(about)


def head(about: str, *, root: bool) -> list[str]:
    """Return the first section of a unit."""
    # a user's systemd does not know the units of the system
    network = ["Wants=network-online.target", "After=network-online.target time-sync.target"] if root else []
    limit = ["StartLimitIntervalSec=3600", "StartLimitBurst=5"]
    return [MARK, "[Unit]", f"Description={escape_specifiers(about)}", *network, *limit, ""]


def tail(*, root: bool) -> list[str]:
    """Return the last section of a unit."""
    return ["", "[Install]", f"WantedBy={'multi-user' if root else 'default'}.target", ""]


def environment_lines(home: Home, file: Path) -> list[str]:
    """Return the environment of a unit: no secret, which everybody can read there. Further variables, such as AWS
    credentials, are in a file of the person's own."""
    told = {"LIMBECK_HOME": str(home.root), "PATH": f"{Path(sys.executable).parent}:{USUAL_PATH}"}
    return [
        *(f'Environment="{quote_value(f"{name}={value}")}"' for name, value in told.items()),
        f"EnvironmentFile=-{escape_specifiers(file)}",
    ]


def writable_paths(places: Iterable[str]) -> str:
    """Return the setting of the folders that processes may write to."""
    optional = [("-" if place.startswith("-") else "", place.lstrip("-")) for place in places]
    return "ReadWritePaths=" + " ".join(f'"{mark}{quote_value(place)}"' for mark, place in optional)


def enabling(name: str, *, root: bool) -> tuple[str, ...]:
    """Return the commands that enable a unit; a user's systemd runs without a login only if it lingers."""
    if root:
        return ("systemctl daemon-reload", f"systemctl enable --now {name}.service")
    return (
        "systemctl --user daemon-reload",
        f"systemctl --user enable --now {name}.service",
        "loginctl enable-linger",
    )


def escape_specifiers(value: object) -> str:
    """Return a value of a setting that takes the rest of the line; a percent sign would begin a specifier."""
    text = str(value)
    if "\n" in text:
        raise StackError(f"{text!r} has a line break, which no unit of systemd can hold; choose another folder")
    return text.replace("%", "%%")


def quote_value(value: str) -> str:
    """Return a value for the inside of double quotes."""
    return escape_specifiers(value).replace("\\", "\\\\").replace('"', '\\"')


def exec_word(word: str) -> str:
    """Return a word of a command line, in quotes where it needs some; a dollar sign would begin a variable."""
    return f'"{quote_value(word).replace("$", "$$")}"'


def unit_folder() -> Path:
    """Return the folder of this user's units: of the system for root."""
    if os.geteuid() == 0:
        return Path("/etc/systemd/system")
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def write_unit(unit: Unit, folder: Path) -> Path:
    """Write a unit and return its file; raise StackError if a file of that name is not one of this home."""
    file = folder / f"{unit.name}.service"
    home = next(line for line in unit.text.splitlines() if line.startswith('Environment="LIMBECK_HOME'))
    if file.exists() and not {MARK, home} <= set(file.read_text().splitlines()):
        raise StackError(f"{file} exists and is of another home or of a person; choose another name with --name")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(unit.text)
    file.chmod(0o644)
    return file
