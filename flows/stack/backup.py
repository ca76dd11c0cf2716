"""``limbeck backup`` and ``limbeck restore``: databases, objects and secrets of a stack in one folder or one file, each
part with its sha256.

Databases are saved before objects: objects are only ever added, so every object that a saved row names is in the
buckets by then. Redis is left out, because it holds only data in transit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from flows.home import Home
from flows.stack import bringup, credentials, databases, supervision
from flows.stack.databases import OWNERS, address
from flows.stack.programs import need
from flows.stack.services import s3_environment
from flows.stack.settings import Stack, StackOptions
from flows.stack.setup.choice import choose
from flows.stack.setup.folders import lay_out
from flows.stack.setup.ports import HeldPorts
from tasks.errors import StackError
from tasks.ports.code.fingerprint import hash_file
from tasks.ports.store.bucket_admin import load_objects, save_objects

CONTENTS = "contents.json"
PASSING = ("leases", "temporary", "sources")
"""Folders of the store that belong to work in progress and to no result."""
ARCHIVES = (".tar", ".tar.gz", ".tgz")
BUCKETS = {"store": "STORE", "artifacts": "MLFLOW"}
"""Each bucket and the owner of the keys that open it: the middle of ``LIMBECK_S3_<OWNER>_ACCESS_KEY``."""


class SavedSettings(TypedDict):
    """The settings of a stack, as a backup has them; see ``Settings``."""

    host: str
    ports: Mapping[str, int]
    s3: str
    buckets: str
    pools: Sequence[str]
    proxy: bool
    tls: str
    migrated: Mapping[str, str]


class Contents(TypedDict):
    """The table of contents of a backup."""

    made: str
    versions: dict[str, str]
    """Versions of the servers whose databases were saved."""
    settings: SavedSettings
    files: dict[str, str]
    """The sha256 of every file."""


def backup(home: Home, target: Path, tell: Callable[[str], None]) -> Contents:
    """Save the stack of a home and return the table of contents; a failed backup leaves nothing at the target."""
    stack = running(home)
    if target.exists():
        raise StackError(
            f"{target} already exists; name a new folder, or a new file that ends in {', '.join(ARCHIVES)}"
        )
    if not target.absolute().parent.is_dir():
        raise StackError(
            f"the folder {target.absolute().parent} for {target.name} does not exist; create it, or name another"
        )
    # mode 0700: it contains passwords
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent))
    try:
        contents = save(stack, unfinished, tell)
        if target.name.endswith(ARCHIVES):
            pack(unfinished, target)
        else:
            unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return contents


def running(home: Home) -> Stack:
    """Return the stack of a home, which must be up."""
    stack = Stack.of(home)
    if stack.is_new or supervision.connect(stack) is None:
        raise StackError(f"the stack of {home.root} is not up; start it with limbeck up, then back it up")
    return stack


def save(stack: Stack, folder: Path, tell: Callable[[str], None]) -> Contents:
    """Write databases, objects and secrets into a folder; write and return their table of contents."""
    secret, hashes = credentials.load(stack.secrets_file), dict[str, str]()
    for database in OWNERS:
        tell(f"database {database}")
        hashes[f"{database}.dump"] = dump(stack, secret, database, folder / f"{database}.dump")
    for bucket, whose in BUCKETS.items():
        count = 0
        for name, digest in objects_of(stack, secret, bucket, whose, folder / bucket):
            hashes[f"{bucket}/{name}"], count = digest, count + 1
        tell(f"{bucket}: {count} files")
    credentials.write(folder / "secrets.json", secret)
    hashes["secrets.json"] = hash_file(folder / "secrets.json", remember=False)
    contents: Contents = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": databases.versions(),
        "settings": cast(SavedSettings, asdict(stack.settings)),
        "files": hashes,
    }
    (folder / CONTENTS).write_text(json.dumps(contents, indent=1) + "\n")
    return contents


def dump(stack: Stack, secret: Mapping[str, str], database: str, path: Path) -> str:
    """Write a consistent snapshot of a database into a file; return the file's sha256."""
    command = [
        need("pg_dump"),
        *address(stack, "postgres"),
        "--format=custom",
        "--no-owner",
        "--no-privileges",
        "-f",
        str(path),
        database,
    ]
    call(command, secret)
    return hash_file(path, remember=False)


def call(command: list[str], secret: Mapping[str, str]) -> None:
    """Run one of PostgreSQL's programs."""
    done = subprocess.run(
        command, env=os.environ | {"PGPASSWORD": secret["LIMBECK_POSTGRES_PASSWORD"]}, capture_output=True, text=True
    )
    if done.returncode:
        raise StackError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-400:]}")


def objects_of(
    stack: Stack, secret: Mapping[str, str], bucket: str, whose: str, folder: Path
) -> Iterator[tuple[str, str]]:
    """Copy a bucket, or the folder that replaces it; yield each file name with its sha256."""
    folder.mkdir()
    if stack.settings.s3 != "folder":
        yield from save_objects(place_of(stack, bucket), folder, s3_environment(stack, secret, whose), PASSING)
        return
    place = Path(place_of(stack, bucket))
    for path in sorted(place.rglob("*")) if place.exists() else []:
        name = path.relative_to(place)
        if path.is_file() and name.parts[0] not in PASSING:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / name)
            yield name.as_posix(), hash_file(folder / name, remember=False)


def place_of(stack: Stack, bucket: str) -> str:
    """Return the address of a bucket, or of the folder that replaces it."""
    return stack.store if bucket == "store" else stack.artifacts


def pack(folder: Path, target: Path) -> None:
    """Pack a folder into one archive that only its owner can read."""
    part = target.with_name(f".{target.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
            with tarfile.open(fileobj=stream, mode="w" if target.suffix == ".tar" else "w:gz") as archive:
                archive.add(folder, arcname=".")
            stream.flush()
            os.fsync(stream.fileno())
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)


def restore(home: Home, source: Path, wanted: StackOptions, tell: Callable[[str], None]) -> Stack:
    """Create a new stack from a backup and start it. A home that has a stack is refused, so that nothing is
    overwritten."""
    if not Stack.of(home).is_new:
        raise StackError(
            f"{home.root} already has a stack; restore into another LIMBECK_HOME, or stop it and move "
            f"{home.root / 'stack'} away"
        )
    with opened(source) as folder, HeldPorts() as held:
        contents = checked(folder, source)
        tell(f"backup of {contents['made']}: {len(contents['files'])} files, every sha256 verified")
        stack = choose(home, likeness(contents["settings"], wanted), held)
        lay_out(stack)
        credentials.write(stack.secrets_file, json.loads((folder / "secrets.json").read_text()))
        secret = credentials.load(stack.secrets_file)
        bringup.write_configs(stack, secret)
        supervision.start_supervisor(stack)
        bringup.bring_up_storage(stack, secret, tell)
        fill(stack, secret, folder, tell)
        # Versions of the dump: if newer ones are installed, ``up`` migrates the databases.
        stack = replace(stack, settings=replace(stack.settings, migrated=contents["versions"]))
        stack.save()
        return bringup.bring_up(stack, tell)


def likeness(settings: SavedSettings, wanted: StackOptions) -> StackOptions:
    """Return the settings of a restored stack: those of the backup, overridden by the given options. Buckets cannot
    become folders or the reverse, because their layouts differ."""
    asked = wanted.get("s3")
    kind = settings["s3"] if asked is None else asked
    if (kind == "folder") != (settings["s3"] == "folder"):
        raise StackError(
            f"this backup is of a stack with s3 {settings['s3']!r}, which cannot be restored into {kind!r}: restore "
            f"buckets into buckets, and folders into folders"
        )
    return {
        "host": wanted.get("host"),
        "prefect_port": wanted.get("prefect_port"),
        "mlflow_port": wanted.get("mlflow_port"),
        "s3": kind,
        "buckets": wanted.get("buckets") or settings["buckets"],
        "pools": wanted.get("pools") or tuple(settings["pools"]),
        "worker_user": wanted.get("worker_user"),  # the other machine may have other users
    }


@contextmanager
def opened(source: Path) -> Iterator[Path]:
    """Yield the folder of a backup; an archive is unpacked into a temporary folder."""
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise StackError(
            f"the backup {str(source)!r} does not exist; name the folder or the file written by limbeck backup"
        )
    with tempfile.TemporaryDirectory(dir=source.absolute().parent) as folder:
        try:
            with tarfile.open(source) as archive:
                unpack(archive, Path(folder).resolve())
        except (tarfile.TarError, EOFError, OSError) as error:
            raise StackError(f"{source} is not a backup of limbeck, or is truncated: {error}") from error
        yield Path(folder)


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract the files of an archive; links, and names that lead out of the folder, are refused. The filters of
    ``tarfile`` are missing in early releases of Python 3.11."""
    for member in archive:
        place = (folder / member.name).resolve()
        content = archive.extractfile(member) if member.isfile() else None
        if not place.is_relative_to(folder) or (content is None and not member.isdir()):
            raise tarfile.TarError(f"{member.name} is not a file of a backup")
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            shutil.copyfileobj(content, file)


def checked(folder: Path, source: Path) -> Contents:
    """Return the table of contents of a backup; raise StackError if a file is missing or its sha256 differs."""
    try:
        contents: Contents = json.loads((folder / CONTENTS).read_text())
    except (OSError, ValueError) as error:
        raise StackError(
            f"{source} has no readable {CONTENTS}; name the folder or the file written by limbeck backup"
        ) from error
    for name, digest in contents["files"].items():
        path = folder / name
        if not path.is_file() or hash_file(path, remember=False) != digest:
            raise StackError(
                f"{source} is damaged: {name} is {'changed' if path.is_file() else 'missing'}; use another backup"
            )
    return contents


def fill(stack: Stack, secret: Mapping[str, str], folder: Path, tell: Callable[[str], None]) -> None:
    """Load databases and objects into a stack whose storage alone is running."""
    databases.create(stack, secret)
    for database, role in OWNERS.items():
        what = [
            "--no-owner",
            f"--role={role}",
            "--exit-on-error",
            "--single-transaction",
            "-d",
            database,
            str(folder / f"{database}.dump"),
        ]
        call([need("pg_restore"), *address(stack, "postgres"), *what], secret)
        tell(f"database {database} restored")
    for bucket, whose in BUCKETS.items():
        if stack.settings.s3 == "folder":
            shutil.copytree(folder / bucket, place_of(stack, bucket), dirs_exist_ok=True)
            continue
        count = load_objects(folder / bucket, place_of(stack, bucket), s3_environment(stack, secret, whose))
        tell(f"{bucket}: {count} files restored")
