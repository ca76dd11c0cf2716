"""The programs of the stack: their location, their version, and the command that installs each."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from tasks.errors import StackError

OFF_THE_PATH = ("/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/local/sbin", "/usr/local/bin")
"""Folders outside of PATH in which distributions install servers; the newest PostgreSQL comes first."""


@dataclass(frozen=True)
class Software:
    """Programs that are installed together."""

    name: str
    programs: tuple[str, ...]
    version: tuple[str, ...]
    """The command that prints its version."""
    package: str
    """Its packages on Debian and Ubuntu."""
    user: str
    """The system user that the package creates to run it."""
    essential: bool
    without: str = ""
    """The stack's behaviour without it."""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install --no-install-recommends {self.package}"

    @property
    def missing(self) -> list[str]:
        """Its programs that are not installed."""
        return [program for program in self.programs if find(program) is None]


SOFTWARE = {
    "postgres": Software(
        "PostgreSQL",
        ("postgres", "initdb", "psql", "pg_dump", "pg_restore"),
        ("postgres", "--version"),
        "postgresql",
        "postgres",
        True,
    ),
    "redis": Software("Redis", ("redis-server",), ("redis-server", "--version"), "redis-server", "redis", True),
    "nginx": Software(
        "nginx",
        ("nginx",),
        ("nginx", "-v"),
        "nginx-light",
        "www-data",
        False,
        "one API server of Prefect and no proxy: while it restarts, clients wait",
    ),
    "ceph": Software(
        "Ceph's S3 gateway",
        ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph-authtool", "ceph"),
        ("radosgw", "--version"),
        "ceph-mon ceph-osd radosgw ceph-common",
        "ceph",
        False,
        "folders of this machine instead of S3: durable, but other machines cannot share results; or name an "
        "endpoint with --s3",
    ),
}


PACKAGES = {
    "supervisor": "supervisor",
    "prefect-redis": "prefect_redis",
    "Flask-WTF": "flask_wtf",
    "psycopg2-binary": "psycopg2",
    "uvloop": "uvloop",
    "prometheus-client": "prometheus_client",
    "cryptography": "cryptography",
}
"""Packages of ``limbeck[stack]`` and the module name of each."""


def missing_packages() -> list[str]:
    """Return the Python packages that the stack needs and that are not installed."""
    return [package for package, module in PACKAGES.items() if importlib.util.find_spec(module) is None]


@lru_cache
def find(program: str) -> str | None:
    """Return the path of a program, from PATH or the folders of ``OFF_THE_PATH``; None if it is missing."""
    hidden = [
        str(place)
        for pattern in OFF_THE_PATH
        for place in sorted(Path("/").glob(pattern.lstrip("/")), key=by_version_number, reverse=True)
    ]
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *hidden]))


def by_version_number(place: Path) -> tuple[int, str]:
    """Return a sort key that orders folders by the number in their path: 15 after 9."""
    return max([int(number) for number in re.findall(r"\d+", str(place))], default=0), str(place)


def need(program: str) -> str:
    """Return the path of a program; raise StackError with the command that installs it if it is missing."""
    found = find(program)
    if found is None:
        software = next(one for one in SOFTWARE.values() if program in one.programs)
        raise StackError(
            f"{software.name} is not installed ({program} was not found); install it with: {software.install}"
        )
    return found


def version_of(software: Software) -> str:
    """Return the version that a program prints; empty if it is missing, "unknown" if it prints none."""
    if find(software.version[0]) is None:
        return ""
    done = subprocess.run(
        [need(software.version[0]), *software.version[1:]], capture_output=True, text=True, timeout=30
    )
    numbers = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return numbers.group() if numbers else "unknown"


class ProcessOwner(TypedDict, total=False):
    """Arguments of ``subprocess.run`` for the user of a program."""

    user: int
    group: int
    extra_groups: list[int]


def owner(key: str) -> pwd.struct_passwd | None:
    """Return the user that runs a server: None for the current user, or under root the user of its package.

    Raises StackError if root finds no such user.
    """
    if os.geteuid() != 0:
        return None
    for name in (os.environ.get("LIMBECK_STACK_USER", ""), SOFTWARE[key].user):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StackError(
        f"root must not run {SOFTWARE[key].name}, and the user {SOFTWARE[key].user} does not exist: create a user, "
        f"and name it in LIMBECK_STACK_USER"
    )
