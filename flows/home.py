"""The home folder: store, cache and databases of one user."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import StoreError

DATABASES = ("mlflow.db", "prefect.db")
FOLDERS = ("cache", "demo", "logs", "metrics", "mlartifacts", "prefect", "reports", "store")
OURS = (*FOLDERS, *(f"{name}{more}" for name in DATABASES for more in ("", "-journal", "-shm", "-wal")), "servers.json")
"""Names of Limbeck's files in a home; the folder may hold other files, too."""


@dataclass(frozen=True)
class Home:
    """``LIMBECK_HOME``, by default ``~/.limbeck``."""

    root: Path

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home named by the environment."""
        return cls(Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser().resolve())

    @property
    def store(self) -> str:
        """The store of artifacts, manifests and checkpoints: ``LIMBECK_STORE`` (``s3://bucket/prefix`` or a folder),
        else a folder in this home."""
        return os.environ.get("LIMBECK_STORE", str(self.root / "store"))

    @property
    def cache(self) -> Path:
        """Objects downloaded from a remote store, and hashes computed before."""
        return self.root / "cache"

    @property
    def artifacts(self) -> Path:
        """The folder of MLflow's artifacts."""
        return self.root / "mlartifacts"

    @property
    def tracking_uri(self) -> str:
        """The address of MLflow: ``MLFLOW_TRACKING_URI``, else the database in this home."""
        return os.environ.get("MLFLOW_TRACKING_URI", self.own_tracking_uri)

    @property
    def own_tracking_uri(self) -> str:
        """The address of MLflow's database in this home."""
        return f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def servers_file(self) -> Path:
        """The file in which ``limbeck ui`` lists its servers."""
        return self.root / "servers.json"

    def create(self) -> Home:
        """Create the folder for its owner alone; raise StoreError if it cannot be written."""
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)
            (self.root / ".writable").write_text("")
            (self.root / ".writable").unlink()
        except OSError as error:
            raise StoreError(
                f"the home folder {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a writable "
                f"folder"
            ) from error
        self.close_to_others()
        return self

    def close_to_others(self) -> None:
        """Remove all rights of others on this home's files, which contain all runs and the servers' passwords.

        A folder that also holds other files keeps its own mode; only Limbeck's files in it are closed. A folder with
        the set-group bit is shared on purpose: its group keeps its rights, but only their owner can read passwords.
        """
        shared = self.root.stat().st_mode & stat.S_ISGID
        for name in ("cache", "logs", "prefect"):
            with contextlib.suppress(FileExistsError):
                (self.root / name).mkdir(mode=0o700)
                if shared:
                    (self.root / name).chmod(0o2770)
        for name in DATABASES:  # SQLite treats an empty file as a new database; files beside it get the same mode
            with contextlib.suppress(FileExistsError):
                file = os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.fchmod(file, 0o660 if shared else 0o600)
                os.close(file)
        for name in OURS:
            close(self.root / name, 0o007 if shared else 0o077)
        # if this is a folder, the users of a stack's servers must be able to enter the home
        data = self.root / "stack" / "data"
        if all(entry.name in (*OURS, "stack") or entry.name.startswith(".") for entry in os.scandir(self.root)):
            close(self.root, 0o007 if shared else 0o066 if data.is_dir() and not data.is_symlink() else 0o077)


def close(path: Path, rights: int) -> None:
    """Remove rights from a file or folder of the current user; links and files of other users stay as they are."""
    with contextlib.suppress(FileNotFoundError):
        about = path.lstat()
        if about.st_uid == os.geteuid() and about.st_mode & rights and not stat.S_ISLNK(about.st_mode):
            path.chmod(stat.S_IMODE(about.st_mode) & ~rights)
