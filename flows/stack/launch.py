"""Start one process of the stack: ``python -m flows.stack.launch NAME``, which the supervisor runs.

The supervisor's own file therefore holds no secret, a server that needs no root rights drops them, and leftovers of its
earlier process, which could hold its port, are killed first.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import sys
import time
from pathlib import Path

from flows.home import Home
from flows.servers.workspaces import sweep_workspaces
from flows.stack import credentials
from flows.stack.programs import owner
from flows.stack.services import environment_of, mark_of, services
from flows.stack.settings import Stack
from tasks.engine.job import die_with_parent
from tasks.errors import StackError

LAST_MOMENTS = 10.0  # seconds to wait until killed processes are gone


def main() -> None:
    """Replace this process by the named process of the stack."""
    stack = Stack.of(Home.from_environment())
    service = services(stack, credentials.load(stack.secrets_file))[sys.argv[1]]
    if not service.children_live:
        clear(mark_of(stack, service.name))
    environment = environment_of(stack, service)
    os.umask(0o077)
    os.chdir(stack.workers if service.children_live else stack.data)  # root alone may follow a link in a closed home
    if service.software:
        become_user(owner(service.software))
    elif service.user and os.geteuid() == 0:
        become_user(pwd.getpwnam(service.user), its_groups=True)
    if service.children_live:
        temporary = Path(environment["TMPDIR"])
        make_private(temporary.parent)
        temporary.mkdir(exist_ok=True)
        # left by an earlier process of this worker; workspaces of live runs are skipped
        sweep_workspaces([temporary], older=0.0)
    die_with_parent(signal.Signals[f"SIG{service.stop}"])  # after the change of user, which would undo it
    os.execve(service.command[0], service.command, environment)


def make_private(folder: Path) -> None:
    """Create a folder of this user alone; raise StackError if another user was there first."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():
        raise StackError(f"{folder} belongs to another user; remove it")


def become_user(user: pwd.struct_passwd | None, *, its_groups: bool = False) -> None:
    """Give up root rights permanently; None keeps the current user. A worker keeps the groups of its user, by which a
    person lets it read data or use GPUs."""
    if user is not None:
        if its_groups:
            os.initgroups(user.pw_name, user.pw_gid)
        else:
            os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)


def clear(mark_of_service: str) -> None:
    """Kill leftover processes of a service: the children of a killed server still hold its port."""
    until = time.monotonic() + LAST_MOMENTS
    while (left := marked(mark_of_service)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def marked(mark_of_service: str) -> list[int]:
    """Return the ids of other processes that have a service's mark in their environment."""
    wanted = f"LIMBECK_SERVICE={mark_of_service}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


if __name__ == "__main__":
    main()
