"""The folders and files of a stack: one folder for each server, its own alone."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from flows.stack.programs import owner
from flows.stack.settings import Stack
from tasks.errors import StackError

DATA_ELSEWHERE = Path("/var/lib")
"""Data folder of servers started by root, if the users that run them cannot enter root's home folder."""


def lay_out(stack: Stack) -> None:
    """Create the folders: one for each server, none readable by other users of this machine."""
    for folder, mode in (
        (stack.root, 0o711),
        (stack.logs, 0o700),
        (stack.run, 0o700),
        (stack.sockets, 0o700),
        *([] if stack.workers_apart else [(stack.temporary, 0o700)]),
    ):
        folder.mkdir(mode=mode, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise StackError(
                f"{folder} belongs to another user; remove it, or set LIMBECK_HOME to a folder that only you can write"
            )
        folder.chmod(mode)
    if not stack.data.exists():
        make_data_folder(stack)
    stack.data.chmod(0o711)
    keys = {"postgres": "postgres", "redis": "redis", "nginx": "nginx", "ceph": "ceph"}
    for name in (*keys, "prefect", "mlflow", "workers", "store"):
        folder = stack.data / name
        folder.mkdir(mode=0o700, exist_ok=True)
        own(folder, keys.get(name, ""))
    give_to_user(stack.workers, stack.settings.worker_user)


def make_data_folder(stack: Stack) -> None:
    """Create the data folder; if the servers' users cannot enter root's home, create it elsewhere and link to it."""
    closed = owner("postgres") is not None and any(
        not folder.stat().st_mode & 0o001 for folder in (stack.root, *stack.root.parents)
    )
    if not closed:
        stack.data.mkdir(mode=0o711)
        return
    elsewhere = DATA_ELSEWHERE / f"limbeck-{stack.fingerprint}"
    elsewhere.mkdir(mode=0o711, exist_ok=True)
    (stack.root / "data").symlink_to(elsewhere)


def give_to_user(folder: Path, name: str) -> None:
    """Make a user the owner of a folder and of everything in it, if it has another owner; its links are not followed.

    Without a name it stays the current user's. A worker makes the folders below it by itself: root would follow a link
    that a worker has put there.
    """
    user = pwd.getpwnam(name) if name else None
    if user is None or folder.stat().st_uid == user.pw_uid:
        return
    for place, folders, files in os.walk(folder, topdown=False):
        for entry in (*folders, *files):
            os.lchown(os.path.join(place, entry), user.pw_uid, user.pw_gid)
    os.lchown(folder, user.pw_uid, user.pw_gid)


def own(path: Path, key: str) -> None:
    """Make the user of a program the owner of a path; without root rights the owner stays the same."""
    user = owner(key) if key else None
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def write(path: Path, text: str, key: str) -> None:
    """Write a file that only its program's user can read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(text)
    own(path, key)
