"""The user that runs the workers of a stack that root starts. Workers run the code of deployments and read models and
tables from anywhere; as another user than the servers they can read none of the servers' passwords."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

from flows.stack.programs import SOFTWARE
from flows.stack.settings import Settings
from tasks.errors import StackError

USUAL_WORKER_USER = "limbeck"
ROOT_USER = "root"
LOOK_SECONDS = 120.0
"""Seconds for a new Python process that only looks for packages; a busy machine needs some."""
WORKER_PACKAGES = ("prefect", "flows.stack", "tasks.stage")


def choose_worker_user(settings: Settings, wanted: str | None) -> str:
    """Return the user of the workers: the one asked for, else the one before, else ``limbeck`` if root starts them.

    Raises StackError if that user does not exist, cannot run Limbeck, or could not share the results with root.
    """
    if os.geteuid() != 0:
        if wanted not in (None, "", pwd.getpwuid(os.geteuid()).pw_name):
            raise StackError(f"--worker-user {wanted}: only root can start workers as another user; leave it out")
        return ""
    name = wanted or settings.worker_user or USUAL_WORKER_USER
    if name == ROOT_USER or not settings.pools:
        return wanted or settings.worker_user
    try:
        user = pwd.getpwnam(name)
    except KeyError as error:
        raise StackError(
            f"root must not run workers, which run the code of deployments, and there is no user {name}; create it: "
            f"useradd --system --user-group --shell /usr/sbin/nologin {name}, and run limbeck up again; or run limbeck "
            f"up as an ordinary user, or name another one with --worker-user"
        ) from error
    if settings.s3 == "folder":
        raise StackError(
            f"workers that run as {name} cannot write results into folders of root; install an S3 server "
            f"({SOFTWARE['ceph'].install}), name one with --s3, run limbeck up as an ordinary user, or accept workers "
            f"that run as root: --worker-user root"
        )
    require_access(user)
    return name


def require_access(user: pwd.struct_passwd) -> None:
    """Raise StackError if a user cannot run this Python with the packages of a worker."""
    look = f"import importlib.util as u; [exit(1) for name in {WORKER_PACKAGES!r} if u.find_spec(name) is None]"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", look],
            cwd="/",
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            capture_output=True,
            timeout=LOOK_SECONDS,
        )
        able = done.returncode == 0
    except PermissionError:
        able = False
    if not able:
        raise StackError(
            f"the user {user.pw_name}, who is to run the workers, cannot read {sys.executable}{interpreter()} or its "
            f"packages; install Limbeck in a folder that others can read, for example below /opt, with a Python of "
            f"such a folder, or name another user with --worker-user (root: workers with all rights)"
        )


def interpreter() -> str:
    """Return the real path of this Python, in brackets, if its name is a link, as in a virtual environment."""
    real = Path(sys.executable).resolve()
    return "" if real == Path(sys.executable) else f" ({real})"
