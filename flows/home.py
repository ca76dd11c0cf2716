"""The home folder: where the store and the databases of one user live, and what a process must know before it loads
Prefect or MLflow."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from flows.server_access import Access, client_of, read_servers
from tasks.errors import StoreError

DATABASES = ("mlflow.db", "prefect.db")
FOLDERS = ("cache", "demo", "logs", "mlartifacts", "prefect", "reports", "store")
CREDENTIALS = ("PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""What belongs to the address beside it: to that of another server it would be sent in vain, or worse."""
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
            raise StoreError(f"the home folder {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a folder that can") from error
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
        for name in DATABASES:  # SQLite takes an empty file for a new database; what it puts beside it gets the same mode
            with contextlib.suppress(FileExistsError):
                file = os.open(self.root / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.fchmod(file, 0o660 if shared else 0o600)
                os.close(file)
        for name in OURS:
            close(self.root / name, 0o007 if shared else 0o077)
        data = self.root / "stack" / "data"  # where it is a folder, the users of a stack's servers walk through this one
        if all(entry.name in (*OURS, "stack") or entry.name.startswith(".") for entry in os.scandir(self.root)):
            close(self.root, 0o007 if shared else 0o066 if data.is_dir() and not data.is_symlink() else 0o077)

    def prepare_environment(self) -> None:
        """Set what Prefect and MLflow read when they are imported; what the user set stays."""
        quiet = {
            "PREFECT_HOME": str(self.root / "prefect"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self.root / 'prefect.db'}",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # a server that Prefect starts by itself has no password
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
            # People read the watcher's lines; Prefect's own are on the run's page. A failure is told once, by the
            # command line.
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
            "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
            "DO_NOT_TRACK": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_LOGGING_LEVEL": "WARNING",
            "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
            "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
            "HF_EVALUATE_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "MPLCONFIGDIR": str(self.root / "cache" / "matplotlib"),
        }
        os.environ |= self.own_servers_environment()
        # What is half somebody else's is not mixed with ours.
        if not {"PREFECT_API_URL", "MLFLOW_TRACKING_URI"} & set(os.environ):
            told = self.stack_environment()
            os.environ |= {name: value for name, value in told.items() if name in CREDENTIALS}
            quiet |= told
        for name, value in quiet.items():
            os.environ.setdefault(name, value)

    def own_servers_environment(self) -> dict[str, str]:
        """Return what a client of this home's ``limbeck ui`` must know while that runs.

        A server that the user named stays, and never hears our password.
        """
        found: dict[str, str] = {}
        for name, access in self.servers().items():
            told = client_of(name, access)
            where, *_ = told
            if os.environ.get(where, told[where]).rstrip("/") == told[where]:
                found |= told
        return found

    def servers(self) -> dict[str, Access]:
        """Return how to reach the servers of a running ``limbeck ui``; nothing where what listens there cannot prove
        that it is one."""
        found = read_servers(self.servers_file)
        return found if found and all(access.is_proved() for access in found.values()) else {}

    def stack_environment(self) -> dict[str, str]:
        """Return what a client of this home's stack must know while that is up (``limbeck up``), or nothing."""
        if not (self.root / "stack" / "stack.json").exists():
            return {}
        from flows.stack import credentials, supervision
        from flows.stack.services import client_environment
        from flows.stack.settings import Stack

        stack = Stack.of(self)
        return client_environment(stack, credentials.load(stack.secrets_file)) if supervision.connect(stack) else {}


def close(path: Path, rights: int) -> None:
    """Take rights from a file or a folder of ours, where it has them; what is somebody else's, or a link, stays."""
    with contextlib.suppress(FileNotFoundError):
        about = path.lstat()
        if about.st_uid == os.geteuid() and about.st_mode & rights and not stat.S_ISLNK(about.st_mode):
            path.chmod(stat.S_IMODE(about.st_mode) & ~rights)
