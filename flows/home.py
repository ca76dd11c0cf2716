"""The home folder: where the store and the databases of one user live, and what a process must know before it loads Prefect or MLflow."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import StoreError


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
        """Artifacts, manifests, checkpoints: what ``LIMBECK_STORE`` says (``s3://bucket/prefix`` or a folder), else a folder in this home."""
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
        """Make the folder; refuse one that cannot be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / ".writable").write_text("")
            (self.root / ".writable").unlink()
        except OSError as error:
            raise StoreError(f"the home folder {self.root} cannot be written ({error.strerror}); set LIMBECK_HOME to a folder that can") from error
        return self

    def prepare_environment(self) -> None:
        """Set what Prefect and MLflow read when they are imported; what the user set stays."""
        quiet = {
            "PREFECT_HOME": str(self.root / "prefect"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self.root / 'prefect.db'}",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "90",
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
            # People read the watcher's lines; Prefect's own are on the run's page. A failure is told once, by the command line.
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
        servers = self.servers()
        if servers:
            quiet |= {"PREFECT_API_URL": servers["prefect"] + "/api", "MLFLOW_TRACKING_URI": servers["mlflow"]}
        elif not {"PREFECT_API_URL", "MLFLOW_TRACKING_URI"} & set(os.environ):  # what is half somebody else's is not mixed with ours
            quiet |= self.stack_environment()
        for name, value in quiet.items():
            os.environ.setdefault(name, value)

    def servers(self) -> dict[str, str]:
        """Return the URLs of a running ``limbeck ui``, or nothing."""
        try:
            found = json.loads(self.servers_file.read_text())
            for url in (found["prefect"] + "/api/health", found["mlflow"] + "/health"):
                with urllib.request.urlopen(url, timeout=2) as answer:
                    answer.read()
        except (OSError, ValueError, KeyError):
            return {}
        return {"prefect": str(found["prefect"]), "mlflow": str(found["mlflow"])}

    def stack_environment(self) -> dict[str, str]:
        """Return what a client of this home's stack must know while that is up (``limbeck up``), or nothing."""
        if not (self.root / "stack" / "stack.json").exists():
            return {}
        from flows.stack import credentials, supervision
        from flows.stack.services import client_environment
        from flows.stack.settings import Stack

        stack = Stack.of(self)
        return client_environment(stack, credentials.load(stack.secrets_file)) if supervision.connect(stack) else {}
