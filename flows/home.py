"""The home folder: where the store, the cache and the databases of one user are."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import StoreError

DATABASES = ("mlflow.db", "prefect.db")
FOLDERS = ("cache", "demo", "logs", "mlartifacts", "prefect", "reports", "store")
OURS = (*FOLDERS, *(f"{name}{more}" for name in DATABASES for more in ("", "-journal", "-shm", "-wal")), "servers.json")
"""What a home holds by these names, whoever else keeps something in that folder."""


@dataclass(frozen=True)
class Home:
    """``LIMBECK_HOME``, by default ``~/.limbeck``."""

    root: Path

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home that the environment names."""
        return cls(Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser().resolve())

    @property
    def store(self) -> str:
        """Artifacts, manifests, checkpoints: what ``LIMBECK_STORE`` says (``s3://bucket/prefix`` or a folder), else a
        folder in this home."""
        return os.environ.get("LIMBECK_STORE", str(self.root / "store"))

    @property
    def cache(self) -> Path:
        """What was fetched from a store elsewhere, and hashes that need not be computed twice."""
        return self.root / "cache"

    @property
    def artifacts(self) -> Path:
        """MLflow's artifacts."""
        return self.root / "mlartifacts"

    @property
    def tracking_uri(self) -> str:
        """Where MLflow is: what the environment says, else the database in this home."""
        return os.environ.get("MLFLOW_TRACKING_URI", self.own_tracking_uri)

    @property
    def own_tracking_uri(self) -> str:
        """MLflow's database in this home."""
        return f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def servers_file(self) -> Path:
        """Where ``limbeck ui`` says which servers it runs."""
        return self.root / "servers.json"

    def create(self) -> Home:
        """Make the folder, for its owner alone; refuse one that cannot be written."""
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)
            (self.root / ".writable").write_text("")
            (self.root / ".writable").unlink()
        except OSError as error:
            raise StoreError(
                f"the home folder {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a folder "
                f"that can"
            ) from error
        self.close_to_others()
        return self

    def close_to_others(self) -> None:
        """Take every right of others from what this home holds: its databases say what was run, and who may run it.

        The folder itself may be somebody's choice: one that holds other things, too, keeps its own mode, and what is
        ours in it is closed. A folder with the set-group bit is shared on purpose: its group keeps its rights, and
        passwords are still their owner's alone.
        """
        shared = self.root.stat().st_mode & stat.S_ISGID
        for name in ("cache", "logs", "prefect"):
            with contextlib.suppress(FileExistsError):
                (self.root / name).mkdir(mode=0o700)
                if shared:
                    (self.root / name).chmod(0o2770)
        for (
            name
        ) in DATABASES:  # SQLite takes an empty file for a new database; what it puts beside it gets the same mode
            with contextlib.suppress(FileExistsError):
                file = os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.fchmod(file, 0o660 if shared else 0o600)
                os.close(file)
        for name in OURS:
            close(self.root / name, 0o007 if shared else 0o077)
        data = (
            self.root / "stack" / "data"
        )  # where it is a folder, the users of a stack's servers walk through this one
        if all(entry.name in (*OURS, "stack") or entry.name.startswith(".") for entry in os.scandir(self.root)):
            close(self.root, 0o007 if shared else 0o066 if data.is_dir() and not data.is_symlink() else 0o077)


def close(path: Path, rights: int) -> None:
    """Take rights from a file or a folder of ours, where it has them; what is somebody else's, or a link, stays."""
    with contextlib.suppress(FileNotFoundError):
        about = path.lstat()
        if about.st_uid == os.geteuid() and about.st_mode & rights and not stat.S_ISLNK(about.st_mode):
            path.chmod(stat.S_IMODE(about.st_mode) & ~rights)
