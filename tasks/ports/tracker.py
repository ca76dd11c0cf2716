"""The tracker: the only module that knows MLflow. Runs, curves, candidates, registered models, and pulling one out again.

MLflow's client is used throughout, never its "active run", which is global state that branches side by side would fight over.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.errors import RegistryError
from tasks.ports.fingerprint import hash_file

PARENT_FIGURES = ("score", "retained_pct", "params_m", "size_mb", "latency_ms", "speedup_x", "quality_drop_pts")
PICKLED = {".bin", ".pt", ".pth", ".pkl", ".pickle"}
MODEL_TASK = "text-classification"


class Tracker:
    """One parent run, its children, and the registry behind it."""

    def __init__(self, uri: str, artifact_root: Path | None, *, experiment: str = "", run_name: str = "", tags: Mapping[str, str] | None = None) -> None:
        self.uri, self.artifact_root, self.experiment, self.run_name, self.tags = uri, artifact_root, experiment, run_name, dict(tags or {})
        self.parent = ""
        self.experiment_id = ""
        self.children: dict[int, str] = {}
        self.points: dict[int, list[tuple[str, float, int]]] = {}

    @cached_property
    def client(self) -> Any:
        """MLflow's client, loaded when it is first needed."""
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        import mlflow
        from mlflow.tracking import MlflowClient

        # Registering reads the model back through MLflow's own default address, whatever address the client was given.
        mlflow.set_tracking_uri(self.uri)
        return MlflowClient(tracking_uri=self.uri)

    # --- runs ---------------------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the parent run; an unreachable or read-only tracker stops everything here, before anything is spent."""
        with self.asking("start a run"):
            found = self.client.get_experiment_by_name(self.experiment)
            self.experiment_id = found.experiment_id if found else self.new_experiment()
            self.parent = self.client.create_run(self.experiment_id, run_name=self.run_name, tags={"limbeck": "flow", **self.tags}).info.run_id

    def new_experiment(self) -> str:
        """Create the experiment of this task and teacher."""
        where = None
        if self.artifact_root is not None and self.uri.startswith("sqlite"):
            where = (self.artifact_root / self.experiment.replace("/", "-")).as_uri()
        tags = {"mlflow.experimentKind": "custom_model_development",
                "mlflow.note.content": f"Limbeck: small models for {self.experiment}. Parent runs are flow runs; the registry holds the models."}  # fmt: skip
        return str(self.client.create_experiment(self.experiment, artifact_location=where, tags=tags))

    def stage_started(self, record: Any) -> None:
        """Start a child run for a stage that is executed."""
        tags = {"stage": record.name, "cache": "miss", "cache.key": record.key, "prefect.task_run_id": record.task_run,
                "mlflow.parentRunId": self.parent}  # fmt: skip
        with self.asking("start a stage's run"):
            run = self.client.create_run(self.experiment_id, run_name=record.shown, tags=tags)
            self.children[id(record)] = run.info.run_id
            knobs = flatten(record.explanation.get("knobs", {}))
            self.client.log_batch(run.info.run_id, params=[param(f"{record.name}.{name}", value) for name, value in list(knobs.items())[:90]])

    def curve(self, record: Any, step: int, figures: Mapping[str, float]) -> None:
        """Remember points of a curve; they are sent together when the stage ends."""
        self.points.setdefault(id(record), []).extend((name, value, step) for name, value in figures.items())

    def stage_finished(self, record: Any) -> None:
        """Send a stage's curves and facts and end its run."""
        with self.asking("end a stage's run"):
            self.end(record, "FINISHED")
            self.client.set_tag(self.children[id(record)], "artifact.sha256", record.parcel.sha256)

    def stage_failed(self, record: Any, error: str, killed: bool) -> None:
        """End the run of a stage that failed or was stopped."""
        if id(record) in self.children:
            self.client.set_tag(self.children[id(record)], "error", error[:5000])
            self.end(record, "KILLED" if killed else "FAILED")

    def end(self, record: Any, status: str) -> None:
        """Send what is buffered for a stage and set its status."""
        from mlflow.entities import Metric

        run, now = self.children[id(record)], int(time.time() * 1000)
        points = [Metric(name, value, now, step) for name, value, step in self.points.pop(id(record), [])]
        facts = dict(record.parcel.facts) if record.parcel else {}
        points += [Metric(name, float(value), now, 0) for name, value in flatten(facts).items() if is_number(value)]
        points.append(Metric("stage_seconds", record.seconds, now, 0))
        for start in range(0, len(points), 900):
            self.client.log_batch(run, metrics=points[start : start + 900])
        self.client.set_terminated(run, status)

    def hits(self, records: Sequence[Any]) -> None:
        """Note every cache hit on the parent, with the run that made it: one search and one call, however many there are."""
        if not records:
            return
        with self.asking("note the cache hits"):
            # A single search over all experiments would be slower than it is worth; a result nearly always comes from its own.
            made = {run.data.tags.get("cache.key"): run.info.run_id
                    for run in self.client.search_runs([self.experiment_id], "tags.cache = 'miss'", max_results=5000)}  # fmt: skip
            rows = [{"stage": record.shown, "key": record.key, "made_by_run": made.get(record.key), "sha256": record.parcel.sha256} for record in records]
            self.client.log_dict(self.parent, {"hits": rows}, "cache/hits.json")

    def candidates(self, models: Sequence[Mapping[str, Any]]) -> None:
        """Log one nested run a candidate with the figures that decide, and copy the winner's to the parent. Repeats of known results are not logged twice."""
        if not self.children:
            return
        with self.asking("log the candidates"):
            teacher = score_of(models[0])
            winner = next((model for model in models if model["gate"] == "champion"), models[0])
            for model in models:
                tags = {"mlflow.parentRunId": self.parent, "candidate": model["name"], "role": model["role"], "gate": model["gate"]}
                run = self.client.create_run(self.experiment_id, run_name=model["name"], tags=tags)
                self.client.log_batch(run.info.run_id, metrics=decision_figures(model, teacher))
                self.client.set_terminated(run.info.run_id, "FINISHED")
            self.client.log_batch(self.parent, metrics=decision_figures(winner, teacher))
            self.client.set_tag(self.parent, "winner", winner["name"])

    def close(self, status: str) -> None:
        """End the parent run and any stage's run that is still open."""
        if not self.parent:
            return
        with self.asking("end the run"):
            for run in self.children.values():
                if self.client.get_run(run).info.status == "RUNNING":
                    self.client.set_terminated(run, status)
            self.client.set_terminated(self.parent, status)

    def urls(self, base: str | None) -> dict[str, str]:
        """Return links to the run, where MLflow is a server."""
        root = base or (self.uri if self.uri.startswith("http") else None)
        return {"run": f"{root}/#/experiments/{self.experiment_id}/runs/{self.parent}"} if root else {}

    # --- registry -----------------------------------------------------------------------------------------------------------------------

    def register(
        self, name: str, candidate: str, folder: Path, *, card: str, tags: Mapping[str, str], description: str, example: Sequence[str],
        workspace: Path, alias: str | None,
    ) -> dict[str, Any]:  # fmt: skip
        """Register a checkpoint folder as a new version; the very same weights with the same verdict are not registered twice."""
        with self.asking(f"register {candidate}"):
            digest = hash_file(folder / "model.safetensors")
            known = self.known_version(name, tags["checkpoint.sha256"], tags["gate"])
            version = known or self.new_version(name, candidate, folder, card, {**tags, "model.sha256": digest}, description, example, workspace)
            if alias:
                self.move_alias(name, alias, version)
            return {"version": version, "new": known is None}

    def known_version(self, name: str, checkpoint: str, gate: str) -> str | None:
        """Return the version that holds this checkpoint with this verdict."""
        found = self.client.search_model_versions(f"name = '{name}' and tags.`checkpoint.sha256` = '{checkpoint}'")
        same = [version for version in found if version.tags.get("gate") == gate]
        return str(max(same, key=lambda version: int(version.version)).version) if same else None

    def new_version(
        self, name: str, candidate: str, folder: Path, card: str, tags: dict[str, str], description: str, example: Sequence[str], workspace: Path
    ) -> str:
        """Package, upload, finalize and register a model; the bytes are those that were judged, and that is checked."""
        package = package_model(folder, workspace / candidate, card=card, example=example)
        model = self.client.create_logged_model(self.experiment_id, name=candidate, source_run_id=self.parent, tags={"candidate": candidate})
        self.client.log_model_artifacts(model.model_id, str(package))
        self.client.finalize_logged_model(model.model_id, "READY")
        self.require_registered(name)
        version = self.client.create_model_version(name, f"models:/{model.model_id}", self.parent, tags=tags, description=description, model_id=model.model_id)
        return str(version.version)

    def require_registered(self, name: str) -> None:
        """Create the registered model if it is not there."""
        from mlflow.exceptions import MlflowException

        with contextlib.suppress(MlflowException):
            self.client.create_registered_model(name, description="Small models made by Limbeck; the alias champion is the one to pull.")

    def move_alias(self, name: str, alias: str, version: str) -> None:
        """Point an alias at a version, unless it is there already."""
        current = {key: str(value) for key, value in self.client.get_registered_model(name).aliases.items()}
        if current.get(alias) != version:
            self.client.set_registered_model_alias(name, alias, version)

    def models(self) -> list[dict[str, Any]]:
        """Return every registered version with its tags and aliases."""
        with self.asking("list the models"):
            rows = []
            for model in self.client.search_registered_models():
                aliases = {str(version): alias for alias, version in model.aliases.items()}
                for version in self.client.search_model_versions(f"name = '{model.name}'"):
                    rows.append({"name": model.name, "version": str(version.version), "alias": aliases.get(str(version.version), ""),
                                 "description": version.description or "", **version.tags})  # fmt: skip
            return rows

    def runs(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest flow runs."""
        with self.asking("list the runs"):
            experiments = {experiment.experiment_id: experiment.name for experiment in self.client.search_experiments()}
            found = self.client.search_runs(list(experiments), "tags.limbeck = 'flow'", max_results=limit, order_by=["attributes.start_time DESC"])
            return [{"run": run.info.run_id, "recipe": run.data.tags.get("recipe", ""), "experiment": experiments[run.info.experiment_id],
                     "status": run.info.status, "started": run.info.start_time, "winner": run.data.tags.get("winner", "")} for run in found]  # fmt: skip

    def download(self, name: str, alias: str, folder: Path) -> dict[str, Any]:
        """Write a registered version as one flat Hugging Face folder, after its hash was checked; an existing folder is never touched."""
        if folder.exists() and any(folder.iterdir()):
            raise RegistryError(f"{folder} is not empty; name a new folder")
        with self.asking(f"fetch {name}@{alias}"):
            version = self.find_version(name, alias)
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:
            with self.asking(f"fetch {name}@{alias}"):
                import mlflow.artifacts

                address = f"models:/{name}/{version.version}"
                fetched = Path(mlflow.artifacts.download_artifacts(address, dst_path=str(temporary / "fetched"), tracking_uri=self.uri))
            flat = flatten_package(fetched, temporary / "flat")
            if hash_file(flat / "model.safetensors", remember=False) != version.tags.get("model.sha256"):
                raise RegistryError(f"the weights of {name} version {version.version} are not those that were judged; nothing was written")
            folder.parent.mkdir(parents=True, exist_ok=True)
            if folder.exists():
                folder.rmdir()
            flat.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return {"name": name, "version": str(version.version), "description": version.description}

    def find_version(self, name: str, alias: str) -> Any:
        """Return a version by alias or number; what is unknown lists what is known."""
        known = {model.name: model for model in self.client.search_registered_models()}
        if name not in known:
            raise RegistryError(f"there is no registered model {name!r}; known are {', '.join(sorted(known)) or 'none: run a recipe first'}")
        if alias.isdigit():
            return self.client.get_model_version(name, alias)
        if alias not in known[name].aliases:
            raise RegistryError(f"{name} has no alias {alias!r}; it has {', '.join(sorted(known[name].aliases)) or 'none: the gate refused every candidate'}")
        return self.client.get_model_version_by_alias(name, alias)

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turn MLflow's many ways of failing into one sentence."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise RegistryError(f"MLflow at {self.uri} could not {what}: {said[-1] if said else type(error).__name__}") from error


def package_model(folder: Path, output: Path, *, card: str, example: Sequence[str]) -> Path:
    """Write a checkpoint folder as an MLflow model, in a process of its own: the flow's process never loads torch."""
    order = output.with_suffix(".json")
    order.parent.mkdir(parents=True, exist_ok=True)
    order.write_text(json.dumps({"folder": str(folder), "output": str(output), "card": card, "example": list(example)}))
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "tasks.ports.package", str(order)], check=True, capture_output=True, text=True, env=environment)
    return output


def flatten_package(package: Path, folder: Path) -> Path:
    """Copy the model, tokenizer and card of an MLflow model into one folder; refuse what could carry code."""
    folder.mkdir(parents=True)
    for path in sorted(package.rglob("*")):
        if path.is_symlink() or path.suffix in PICKLED:
            raise RegistryError(f"the stored model holds {path.name}, which may carry code; nothing was written")
    for part in (package / "model", package / "components" / "tokenizer"):
        for path in sorted(part.iterdir()):
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
    if (package / "README.md").is_file():
        shutil.copyfile(package / "README.md", folder / "README.md")
    return folder


def decision_figures(model: Mapping[str, Any], teacher: float) -> list[Any]:
    """Return the figures that a chooser compares, as MLflow metrics with names short enough for its cards."""
    from mlflow.entities import Metric

    retained = ((model["retained"] or {}).get("validation") or {}).get("value")
    values = {
        "score": score_of(model), "retained_pct": 100 * retained if retained is not None else None, "params_m": model["parameters"] / 1e6,
        "size_mb": model["bytes"] / 1e6, "latency_ms": model["latency_ms"], "speedup_x": model["speedup"],
        "quality_drop_pts": 100 * (teacher - score_of(model)),
    }  # fmt: skip
    now = int(time.time() * 1000)
    return [Metric(name, float(value), now, 0) for name, value in values.items() if value is not None]


def score_of(model: Mapping[str, Any]) -> float:
    """Return a model's headline score on validation."""
    return float(model["metrics"]["validation"][model["headline"]]["value"])


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested values to dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def param(name: str, value: Any) -> Any:
    """Return an MLflow parameter."""
    from mlflow.entities import Param

    return Param(name, str(value)[:5000])


def is_number(value: Any) -> bool:
    """Tell a metric from other facts."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
