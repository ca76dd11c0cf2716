"""The tracker: the only module that knows MLflow. Runs, curves, candidates, registered models, and pulling one out again.

MLflow's client is used throughout, never its "active run", which is global state that branches side by side would fight over.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tasks.errors import RegistryError
from tasks.ports.code.fingerprint import hash_file
from tasks.ports.file_locks import take_lock
from tasks.ports.files.onnx_safety import EXPORT_TAGS, require_plain_graph
from tasks.ports.markdown import plain_words
from tasks.ports.processes import this_process
from tasks.ports.tracking.migrations import one_at_a_time
from tasks.ports.tracking.packer import Packer
from tasks.ports.tracking.verified_download import EVALUATION_TAG, evaluation_digest, files_of, folder_digest, require_judged, require_no_code, write_folder

ROOT = Path(__file__).resolve().parents[3]
CURVE_SECONDS = 20.0  # between two deliveries of a curve, so that a long stage can be watched in MLflow
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # of databases that MLflow keeps its tables in
SQL_NOISE = ("(Background on", "[SQL:", "[parameters:")  # lines of a database's error that tell people nothing
LOCK_SECONDS = 600.0  # longer than any registration takes
WORDS = ("worse", "inside the noise", "not known by one seed", "better")
SHOWN = ("score", "retained_pct", "speedup_x", "size_mb")  # of the figures that decide, those that a list of runs has room for
METRICS_AT_ONCE, PARAMS_AT_ONCE = 900, 90  # MLflow takes 1,000 and 100 in one call


class Tracker:
    """One parent run, its children, and the registry behind it."""

    def __init__(
        self, uri: str, artifact_root: Path | None, *, experiment: str = "", run_name: str = "", tags: Mapping[str, str] | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.uri, self.artifact_root, self.experiment, self.run_name, self.tags = uri, artifact_root, experiment, run_name, dict(tags or {})
        self.recipe = recipe or {}
        self.parent = ""
        self.joined = self.lent = False
        self.experiment_id = ""
        self.children: dict[int, str] = {}
        self.unfinished: dict[str, None] = {}
        self.points: dict[int, list[tuple[str, float, int]]] = {}
        self.sent: dict[int, float] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.found: dict[str | None, str] | None = None
        self.sender: ThreadPoolExecutor | None = None

    @cached_property
    def client(self) -> Any:
        """MLflow's client, loaded when it is first needed."""
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        require_reachable(self.uri)
        # MLflow would hand out addresses of its S3 server as it sees it itself; who has no way to that server would wait for ever.
        for way in ("UPLOAD", "DOWNLOAD"):
            os.environ.setdefault(f"MLFLOW_ENABLE_PROXY_MULTIPART_{way}", "false")
        import mlflow
        from mlflow.tracking import MlflowClient

        # Registering reads the model back through MLflow's own default address, whatever address the client was given.
        mlflow.set_tracking_uri(self.uri)
        resolve_served_artifacts(self.uri, self.served)
        with one_at_a_time(self.uri):  # it makes or migrates the tables of a database in a file
            return MlflowClient(tracking_uri=self.uri)

    @property
    def served(self) -> Path | None:
        """The folder behind ``mlflow-artifacts:/``, where this tracker opens the database of the server that keeps it."""
        return self.artifact_root if self.uri.startswith("sqlite:") else None

    # --- runs ---------------------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start the parent run; an unreachable or read-only tracker stops everything here, before anything is spent."""
        with self.asking("start a run"):
            found = self.client.get_experiment_by_name(self.experiment)
            self.experiment_id = found.experiment_id if found else self.new_experiment()
            tags = {"limbeck": "flow", "limbeck.process": this_process(), **made_with(), **self.tags}
            self.parent = self.client.create_run(self.experiment_id, run_name=self.run_name, tags=tags).info.run_id
            if self.recipe:
                self.client.log_dict(self.parent, dict(self.recipe), "run/recipe.json")
        atexit.register(self.abandon)

    def place(self) -> dict[str, Any]:
        """Say where the next stage belongs, for a worker elsewhere that makes it."""
        self.lent = True
        return {"experiment": self.experiment_id, "run": self.parent, "number": next(self.numbers)}

    def join(self, experiment: str, run: str, number: int) -> None:
        """Note a stage below a run that another process opened, and will end."""
        with self.asking(f"find the run {run[:8]} that a stage belongs to"):
            self.client.get_run(run)
        self.experiment_id, self.parent, self.numbers, self.joined = experiment, run, itertools.count(number), True
        atexit.register(self.abandon)

    def abandon(self) -> None:
        """End what is still open when the process ends without ``close``: nothing stays RUNNING for ever."""
        with contextlib.suppress(Exception):
            self.close("KILLED")

    def new_experiment(self) -> str:
        """Create the experiment of this task and teacher."""
        where = None
        if self.artifact_root is not None and not self.uri.startswith("http"):
            where = (self.artifact_root / self.experiment.replace("/", "-")).as_uri()
        tags = {"mlflow.experimentKind": "custom_model_development",
                "mlflow.note.content": f"Limbeck: small models for {plain_words(self.experiment)}. "
                "Parent runs are flow runs; the registry holds the models."}  # fmt: skip
        return str(self.client.create_experiment(self.experiment, artifact_location=where, tags=tags))

    def new_child(self, name: str, tags: Mapping[str, str]) -> str:
        """Start a run below the parent and remember that it is open."""
        run: str = self.client.create_run(self.experiment_id, run_name=name, tags={"mlflow.parentRunId": self.parent, **tags}).info.run_id
        self.unfinished[run] = None
        return run

    def terminate(self, run: str, status: str) -> None:
        """End a run below the parent."""
        self.client.set_terminated(run, status)
        self.unfinished.pop(run, None)
        self.found = None

    def stage_started(self, record: Any) -> None:
        """Start a child run for a stage that is executed; the number keeps the order, because MLflow lists the newest first."""
        tags = {"stage": record.name, "cache": "miss", "cache.key": record.key, "prefect.task_run_id": record.task_run}
        self.sent[id(record)] = time.monotonic()
        with self.asking("start a stage's run"):
            run = self.new_child(f"{next(self.numbers)}-{record.name} {record.label}".rstrip(), tags)
            self.children[id(record)] = run
            self.send(run, params={f"{record.name}.{name}": value for name, value in flatten(record.explanation.get("knobs", {})).items()})

    def send(self, run: str, *, metrics: Sequence[tuple[str, float, int]] = (), params: Mapping[str, Any] | None = None) -> None:
        """Send metrics (name, value, step) and parameters in as few calls as MLflow allows."""
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        points = [Metric(legal(name), float(value), now, step) for name, value, step in metrics]
        knobs = [Param(legal(name), str(value)[:5000]) for name, value in (params or {}).items()]
        for start in range(0, len(points), METRICS_AT_ONCE):
            self.client.log_batch(run, metrics=points[start : start + METRICS_AT_ONCE])
        for start in range(0, len(knobs), PARAMS_AT_ONCE):
            self.client.log_batch(run, params=knobs[start : start + PARAMS_AT_ONCE])

    def curve(self, record: Any, step: int, figures: Mapping[str, float]) -> None:
        """Remember points of a curve; they are sent together, now and then, by another thread: whoever calls this must not wait for MLflow."""
        with self.lock:
            self.points.setdefault(id(record), []).extend((name, value, step) for name, value in figures.items())
        now = time.monotonic()
        if id(record) in self.children and now - self.sent.get(id(record), 0.0) >= CURVE_SECONDS:
            self.sent[id(record)] = now
            self.sender = self.sender or ThreadPoolExecutor(max_workers=1, thread_name_prefix="curves")
            self.sender.submit(self.deliver, record)

    def deliver(self, record: Any) -> None:
        """Send the points that a stage has gathered; what cannot be sent is kept for the next time."""
        with self.lock:
            points = self.points.pop(id(record), [])
        try:
            self.send(self.children[id(record)], metrics=points)
        except BaseException:
            with self.lock:
                self.points[id(record)] = points + self.points.get(id(record), [])
            raise

    def stage_finished(self, record: Any) -> None:
        """Send a stage's curves and facts and end its run."""
        with self.asking("end a stage's run"):
            self.client.set_tag(self.children[id(record)], "blob.sha256", record.parcel.sha256)
            self.end(record, "FINISHED")

    def stage_failed(self, record: Any, error: str, killed: bool) -> None:
        """End the run of a stage that failed or was stopped; trouble with MLflow must not hide why it failed."""
        if id(record) not in self.children:
            return
        try:
            self.client.set_tag(self.children[id(record)], "error", error[:5000])
            self.end(record, "KILLED" if killed else "FAILED")
        except Exception as trouble:
            logging.getLogger("limbeck").warning("MLflow did not take the end of %s: %s", record.shown, trouble)

    def end(self, record: Any, status: str) -> None:
        """Send what is buffered for a stage and set its status."""
        run, facts = self.children[id(record)], dict(record.parcel.facts) if record.parcel else {}
        self.deliver(record)
        figures = [(name, value, 0) for name, value in flatten(facts).items() if is_number(value)]
        took = [(name, value, 0) for name, value in record.figures.items()]
        self.send(run, metrics=[*figures, *took, ("stage_seconds", record.seconds, 0)])
        self.terminate(run, status)

    def story(self, records: Sequence[Any]) -> None:
        """Note on the parent what became of every stage, a cache hit with the run that made it: one search and one call, however many there are."""
        if not records:
            return
        with self.asking("note what became of the stages"):
            makers = self.makers() if any(record.cache == "hit" for record in records) else {}
            rows = [
                {"stage": record.shown, "state": record.state, "cache": record.cache, "why": record.why, "seconds": round(record.seconds, 3), "key": record.key,
                 "sha256": record.parcel.sha256 if record.parcel else None, "made_by_run": makers.get(record.key) if record.cache == "hit" else None}
                for record in records
            ]  # fmt: skip
            self.client.log_dict(self.parent, {"stages": rows}, "run/stages.json")

    def ledger(self, ledger: Mapping[str, Any]) -> None:
        """Log what the run took and what its cache saved: the whole of it as a file, what is known as figures of the parent."""
        if not ledger:
            return
        market = f"dollars_{ledger['basis']['market'].replace('-', '_')}"
        named = {"kwh": "kwh", "co2e_kg": "co2e_kg", "dollars": market}
        parts = {"": ledger["total"], "saved_": ledger["saved"]}
        known = [(f"{before}{name}", part[figure]["value"], 0) for before, part in parts.items() for name, figure in named.items()]
        with self.asking("log the ledger"):
            self.client.log_dict(self.parent, dict(ledger), "run/ledger.json")
            self.send(self.parent, metrics=[point for point in known if point[1] is not None])

    def makers(self) -> dict[str | None, str]:
        """Return which run made what, by key; of two that made the same, the newer one made what is there now. Asked once, until a stage ends."""
        if self.found is None:
            # A single search over all experiments would be slower than it is worth; a result nearly always comes from its own.
            found = self.client.search_runs([self.experiment_id], "tags.cache = 'miss' and attributes.status = 'FINISHED'", max_results=5000)
            self.found = {run.data.tags.get("cache.key"): run.info.run_id for run in reversed(found)}
        return self.found

    def open_runs(self) -> list[dict[str, str]]:
        """Return the flow runs that MLflow believes to be running, each with its process and its Prefect run."""
        with self.asking("list the open runs"):
            experiments = [experiment.experiment_id for experiment in every(self.client.search_experiments)]
            wanted = "tags.limbeck = 'flow' and attributes.status = 'RUNNING'"
            found = self.client.search_runs(experiments, wanted, max_results=1000) if experiments else []
            return [{"run": run.info.run_id, "experiment": run.info.experiment_id, "recipe": run.data.tags.get("recipe", ""),
                     "process": run.data.tags.get("limbeck.process", ""), "flow_run": run.data.tags.get("prefect.flow_run_id", "")}
                    for run in found]  # fmt: skip

    def end_for(self, row: Mapping[str, str]) -> int:
        """End a run whose process is gone, with the runs below it, as KILLED; return how many."""
        with self.asking(f"end run {row['run'][:8]}"):
            runs = [*self.open_below(row["run"], row["experiment"]), row["run"]]
            for run in runs:
                self.client.set_terminated(run, "KILLED")
            return len(runs)

    def open_below(self, run: str, experiment: str) -> list[str]:
        """Return the runs below a run that MLflow believes to be running."""
        below = f"tags.mlflow.parentRunId = '{run}' and attributes.status = 'RUNNING'"
        return [found.info.run_id for found in self.client.search_runs([experiment], below, max_results=1000)]

    def drop_pending(self, older: float) -> list[str]:
        """Delete models that were begun more than ``older`` seconds ago and never finished; return their names."""
        from mlflow.entities import LoggedModelStatus

        with self.asking("remove unfinished models"):
            experiments = [experiment.experiment_id for experiment in every(self.client.search_experiments)]
            found = list(every(partial(self.client.search_logged_models, experiments))) if experiments else []
            limit = (time.time() - older) * 1000
            given_up = (LoggedModelStatus.PENDING, LoggedModelStatus.FAILED)
            named = {version.source for version in every(self.client.search_model_versions)} if found else set()
            old = [model for model in found if model.status in given_up and model.creation_timestamp < limit]
            pending = [model for model in old if f"models:/{model.model_id}" not in named]  # what a version points at is not ours to judge
            for model in pending:
                self.client.delete_logged_model(model.model_id)
            return [str(model.name) for model in pending]

    def recall(self, run: str, name: str) -> dict[str, Any]:
        """Return what a run noted of itself: its ``recipe``, its ``stages`` or its ``ledger``."""
        with self.asking(f"read the {name} of run {run[:8]}"), tempfile.TemporaryDirectory(prefix="limbeck-") as folder:
            text = Path(self.client.download_artifacts(run, f"run/{name}.json", folder)).read_text()
            try:
                return dict(json.loads(text))
            except ValueError as error:
                raise OSError(f"run/{name}.json is no JSON ({error})") from error

    def candidates(self, models: Sequence[Mapping[str, Any]], *, best: str, standing: str, split: str = "validation") -> None:
        """Log one nested run a candidate with the figures that decide, and those of the best on the parent. Where all was known already: the parent alone.

        ``standing`` says how far the best came at the gate: it need not be champion.
        """
        if not models:
            return
        with self.asking("log the candidates"):
            for model in models if self.children else ():
                tags = {"candidate": model["name"], "role": model["role"], "gate": model["gate"], "headline": model["headline"], **words_against(model, split)}
                run = self.new_child(model["name"], tags)
                self.client.log_batch(run, metrics=decision_figures(model, models[0], split))
                self.terminate(run, "FINISHED")
            self.crown(next(model for model in models if model["name"] == best), standing, models[0], split)

    def crown(self, best: Mapping[str, Any], standing: str, teacher: Mapping[str, Any], split: str) -> None:
        """Copy the figures of the best candidate to the parent, with its standing: a refused one shows by how much, and is no winner."""
        from mlflow.entities import RunTag

        tags = {"winner": best["name"] if best["gate"] == "champion" else "none", "best": best["name"], "standing": standing, "headline": teacher["headline"]}
        self.client.log_batch(self.parent, metrics=decision_figures(best, teacher, split), tags=[RunTag(name, value) for name, value in tags.items()])

    def sweep(self, result: Mapping[str, Any], plot: str, text: str) -> None:
        """Log what a sweep found on the parent: scores by dropped layers as curves, the answer as figures, and its table, plot and JSON."""
        final = [cell for cell in result["cells"] if cell["state"] == "scored"]
        curves = [(f"score.{cell['strategy']}", cell["score"]["value"], cell["drop"]) for cell in final]
        gaps = [(f"difference_pts.{cell['strategy']}", 100 * cell["difference"]["value"], cell["drop"]) for cell in final]
        held = [(f"layers_within_{one['points']:g}_pts", one["holds"]["drop"] if one["holds"] else 0, 0) for one in result["answer"]]
        said = ", ".join(str(one["holds"]["drop"] if one["holds"] else 0) for one in result["answer"])
        with self.asking("log the sweep"):
            self.send(self.parent, metrics=[*curves, *gaps, *held, ("score.teacher", result["teacher"]["score"]["value"], 0)])
            within = ", ".join(f"{one['points']:g}" for one in result["answer"])
            self.client.set_tag(self.parent, "winner", f"{said} of {result['layers']} layers within {within} points")
            self.client.set_tag(self.parent, "headline", result["headline"])
            self.client.log_dict(self.parent, dict(result), "run/sweep.json")
            self.client.log_text(self.parent, plot, "run/sweep.svg")
            self.client.log_text(self.parent, text, "run/sweep.md")

    def close(self, status: str) -> None:
        """End every run below the parent that is still open, and the parent, if it is ours."""
        if self.sender is not None:
            self.sender.shutdown(wait=True)
        if not self.parent:
            return
        with self.asking("end the run"):
            for run in list(self.unfinished):
                self.terminate(run, "KILLED" if status == "KILLED" else "FAILED")
            # A worker elsewhere that died left its stage's run open. One that still works, for a run that was cut off, ends its own in its time.
            for run in self.open_below(self.parent, self.experiment_id) if self.lent else []:
                self.client.set_terminated(run, "KILLED")
            if not self.joined:
                self.client.set_terminated(self.parent, status)
        atexit.unregister(self.abandon)

    def urls(self, base: str | None) -> dict[str, str]:
        """Return links to the run and to the registry, where MLflow is a server."""
        root = self.root(base)
        return {"run": self.url_of(self.parent, base), "registry": f"{root}/#/models"} if root else {}

    def root(self, base: str | None = None) -> str:
        """Return the address of MLflow's pages; empty where it is no server."""
        return without_secrets(base or (self.uri if self.uri.startswith("http") else "")).rstrip("/")

    def url_of(self, run: str, base: str | None = None) -> str:
        """Return the address of a run's page."""
        return f"{self.root(base)}/#/experiments/{self.experiment_id}/runs/{run}"

    def url_of_stage(self, record: Any) -> str | None:
        """Return the address of a stage's page, where MLflow is a server."""
        run = self.children.get(id(record))
        return self.url_of(run) if run and self.root() else None

    def note(self, name: str, values: Mapping[str, Any]) -> None:
        """Keep what a run says of itself, for ``recall``."""
        with self.asking(f"note the {name}"):
            self.client.log_dict(self.parent, dict(values), f"run/{name}.json")

    def describe(self, text: str) -> None:
        """Write what a person reads first on the run's page."""
        with self.asking("describe the run"):
            self.client.set_tag(self.parent, "mlflow.note.content", text)

    def report_files(self) -> dict[str, str]:
        """Return the files of the run's report that are there, by name: a picture by its own address, the others by MLflow's page of them.

        The addresses are empty where MLflow is no server.
        """
        with self.asking("list the report"):
            names = [Path(entry.path).name for entry in self.client.list_artifacts(self.parent, "report") if not entry.is_dir]
        root = self.root()
        picture, page = f"{root}/get-artifact?run_uuid={self.parent}&path=report%2F", f"{self.url_of(self.parent)}/artifacts/report/"
        return {name: f"{picture if name.endswith('.png') else page}{name}" if root else "" for name in names}

    def report_file(self, name: str) -> bytes:
        """Return one file of the run's report."""
        with self.asking(f"read report/{name}"), tempfile.TemporaryDirectory(prefix="limbeck-") as folder:
            return Path(self.client.download_artifacts(self.parent, f"report/{name}", folder)).read_bytes()

    # --- registry -----------------------------------------------------------------------------------------------------------------------

    def register(
        self, name: str, candidate: str, folder: Callable[[], Path], *, card: str, tags: Mapping[str, str], description: str, pairs: bool,
        packer: Packer, alias: str | None, beside: Mapping[str, Callable[[], Path]] | None = None, files: Callable[[], Mapping[str, Path]] = dict,
    ) -> dict[str, Any]:  # fmt: skip
        """Register a checkpoint folder as a new version; the same weights and exports with the same verdict on the same rows are not registered twice.

        Only if there is something new to register are these asked for: ``folder``; ``files``, which go into the model's folder by their place there;
        and the folders that go ``beside`` the model under their names.
        """
        require_legal_name(name)
        with self.asking(f"register {candidate}"), only_one(f"{self.uri} {name}"):
            known = self.known_version(name, tags)
            version = known or self.new_version(name, candidate, folder(), card, dict(tags), description, pairs, packer, beside or {}, files())
            if alias:
                self.move_alias(name, alias, version)
            return {"version": version, "new": known is None}

    def known_version(self, name: str, tags: Mapping[str, str]) -> str | None:
        """Return the version that holds this checkpoint and these exports, with this verdict on these rows; what depends on the champion is not asked."""
        found = self.client.search_model_versions(f"name = '{name}' and tags.`checkpoint.sha256` = '{tags['checkpoint.sha256']}'")
        same = [version for version in found if same_judgement(version.tags, tags) and all(version.tags.get(tag) == tags.get(tag) for tag in EXPORT_TAGS)]
        return str(max(same, key=lambda version: int(version.version)).version) if same else None

    def new_version(
        self, name: str, candidate: str, folder: Path, card: str, tags: dict[str, str], description: str, pairs: bool, packer: Packer,
        beside: Mapping[str, Callable[[], Path]], files: Mapping[str, Path],
    ) -> str:  # fmt: skip
        """Package, upload, check and register a model."""
        tags |= {"model.sha256": hash_file(folder / "model.safetensors")}
        package = packer.pack(folder, candidate, card=card, pairs=pairs, files=files)
        try:
            for part, place in beside.items():
                shutil.copytree(place(), package / part)
            whole = files_of(package)
            judged = evaluation_digest(whole)
            tags |= {"model.folder.sha256": folder_digest(whole)} | ({EVALUATION_TAG: judged} if judged else {})
            model = self.upload(candidate, package, tags, packer.workspace / f"{candidate}.stored")
        finally:
            shutil.rmtree(package, ignore_errors=True)  # several models of full size would fill the disk
        self.require_registered(name)
        version = self.client.create_model_version(name, f"models:/{model}", self.parent, tags=tags, description=description, model_id=model)
        return str(version.version)

    def upload(self, candidate: str, package: Path, tags: Mapping[str, str], workspace: Path) -> str:
        """Store a package and read it back; a model that did not arrive whole ends as FAILED and is never registered."""
        from mlflow.entities import LoggedModelOutput

        model = self.client.create_logged_model(self.experiment_id, name=candidate, source_run_id=self.parent, tags={"candidate": candidate})
        try:
            self.client.log_model_artifacts(model.model_id, str(package))
            require_judged(files_of(self.stored_package(model, workspace)), tags, f"{candidate}, as they arrived in MLflow,")
        except BaseException:
            with contextlib.suppress(Exception):
                self.client.finalize_logged_model(model.model_id, "FAILED")
            raise
        self.client.finalize_logged_model(model.model_id, "READY")
        self.client.log_outputs(self.parent, models=[LoggedModelOutput(model.model_id, step=0)])
        return str(model.model_id)

    def stored_package(self, model: Any, workspace: Path) -> Path:
        """Return a package as the artifact store has it: its own folder where it is on this machine, else a download."""
        place = local_folder(model.artifact_location, self.served)
        if place is not None:
            return place
        import mlflow.artifacts

        workspace.mkdir(parents=True, exist_ok=True)
        return Path(mlflow.artifacts.download_artifacts(f"models:/{model.model_id}", dst_path=str(workspace), tracking_uri=self.uri))

    def require_registered(self, name: str) -> None:
        """Create the registered model if it is not there."""
        from mlflow.exceptions import MlflowException

        try:
            self.client.create_registered_model(name, description="Small models made by Limbeck; the alias champion is the one to pull.")
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def note_scores(self, name: str, number: str, figures: Mapping[str, float], tags: Mapping[str, str]) -> str:
        """Note what a registered version scores, on the version and in a run below the one that made it; return that run."""
        from mlflow.entities import RunTag

        with self.asking(f"note the scores of {name} version {number}"):
            maker = self.client.get_run(self.find_version(name, number).run_id)
            named = {"mlflow.parentRunId": maker.info.run_id, "score.of": f"{name} version {number}"}
            run: str = self.client.create_run(maker.info.experiment_id, run_name=f"score {name} {number}", tags=named).info.run_id
            self.send(run, metrics=[(figure, value, 0) for figure, value in figures.items()])
            self.client.log_batch(run, tags=[RunTag(legal(tag), value) for tag, value in tags.items()])
            self.client.set_terminated(run)
            for tag, value in tags.items():
                self.client.set_model_version_tag(name, number, legal(tag), value)
        return run

    def set_alias(self, name: str, alias: str, version: str | int) -> None:
        """Point an alias at a version, one process of this home at a time; who decides by what is there needs the store's lock."""
        with self.asking(f"move {name}@{alias}"), only_one(f"{self.uri} {name}"):
            self.move_alias(name, alias, str(version))

    def move_alias(self, name: str, alias: str, version: str) -> None:
        """Point an alias at a version, unless it is there already; the caller holds the lock."""
        current = {key: str(value) for key, value in self.client.get_registered_model(name).aliases.items()}
        if current.get(alias) != version:
            self.client.set_registered_model_alias(name, alias, version)

    def versions(self, name: str) -> list[dict[str, Any]]:
        """Return the versions of one registered model, newest first."""
        found = [row for row in self.models() if row["name"] == name]
        if not found:
            raise RegistryError(self.unknown_model(name))
        return found

    def models(self) -> list[dict[str, Any]]:
        """Return every registered version with its tags and aliases: models by name, versions from the newest on."""
        with self.asking("list the models"):
            aliases: dict[tuple[str, str], list[str]] = {}
            for model in every(self.client.search_registered_models):
                for alias, number in sorted(model.aliases.items()):
                    aliases.setdefault((model.name, str(number)), []).append(alias)
            found = sorted(every(self.client.search_model_versions), key=lambda version: (version.name, -int(version.version)))
            return [{**version.tags, "name": version.name, "version": str(version.version), "description": version.description or "",
                     "alias": ", ".join(aliases.get((version.name, str(version.version)), []))} for version in found]  # fmt: skip

    def runs(self, limit: int) -> list[dict[str, Any]]:
        """Return the newest flow runs."""
        with self.asking("list the runs"):
            experiments = {experiment.experiment_id: experiment.name for experiment in every(self.client.search_experiments)}
            found = self.client.search_runs(list(experiments), "tags.limbeck = 'flow'", max_results=limit, order_by=["attributes.start_time DESC"])
            return [{"run": run.info.run_id, "recipe": run.data.tags.get("recipe", ""), "kind": run.data.tags.get("limbeck.kind", "run"),
                     "experiment": experiments[run.info.experiment_id],
                     "status": run.info.status, "started": run.info.start_time, "best": best_of(run.data.tags),
                     "figures": {name: run.data.metrics[name] for name in SHOWN if name in run.data.metrics}} for run in found]  # fmt: skip

    def download(self, name: str, alias: str | int, folder: Path) -> dict[str, Any]:
        """Write a registered version as one flat Hugging Face folder, after its hash was checked; a folder with anything in it is never touched."""
        folder = folder.resolve()
        if folder.exists() and not folder.is_dir():
            raise RegistryError(f"{folder} is a file; name a new folder")
        if folder.exists() and any(folder.iterdir()):
            raise RegistryError(f"{folder} is not empty; name a new folder")
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        with self.asking(f"fetch {name}@{alias}"):
            version = self.find_version(name, str(alias))
            place = local_folder(self.require_own(version), self.served)
            if place is not None:
                files_of(place)  # copying would follow a link
            try:
                files = files_of(self.fetch(f"models:/{name}/{version.version}", temporary / "fetched"))
                require_no_code(files)
                require_judged_exports(files, version)
                require_judged(files, version.tags, f"{name} version {version.version}")
                flat = write_folder(files, temporary / "flat")
                if folder.exists():
                    folder.rmdir()
                flat.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return {"name": name, "version": str(version.version), "description": version.description}

    def require_own(self, version: Any) -> str:
        """Refuse a version whose files do not lie where its experiment, and this tracker, keep their files: an entry alone can be made to point anywhere.

        Return where they lie.
        """
        named = re.fullmatch(r"models:/(m-\w+)", version.source)
        model = self.client.get_logged_model(named[1]) if named else None
        own = self.client.get_experiment(model.experiment_id).artifact_location.rstrip("/") + "/" if model else ""
        place = unquote(model.artifact_location if model else version.source)
        if not model or not place.startswith(unquote(own)) or ".." in place.split("/"):
            raise RegistryError(f"{version.name} version {version.version} points at {place}, outside of its experiment's own files; nothing was fetched")
        if self.artifact_root is not None and not any(place.startswith(root) for root in self.roots(self.artifact_root)):
            raise RegistryError(f"{version.name} version {version.version} points at {place}, where this MLflow keeps no models; nothing was fetched")
        return str(model.artifact_location)

    def roots(self, own: Path) -> Iterator[str]:
        """Yield where this tracker's files may lie: in this home, behind the server, or beside the server's default experiment."""
        yield from (unquote(own.resolve().as_uri()) + "/", f"{own.resolve()}/", "mlflow-artifacts:/")
        default = self.client.get_experiment("0").artifact_location.rstrip("/").rpartition("/")[0]
        if "://" in default or default.startswith("/"):
            yield unquote(default) + "/"

    def fetch(self, address: str, target: Path) -> Path:
        """Download a model as MLflow stores it."""
        import mlflow.artifacts

        target.mkdir(parents=True)
        return Path(mlflow.artifacts.download_artifacts(address, dst_path=str(target), tracking_uri=self.uri))

    def find_version(self, name: str, alias: str) -> Any:
        """Return a version by alias or number; what is unknown lists what is known."""
        from mlflow.exceptions import MlflowException

        try:
            aliases = {key: str(value) for key, value in self.client.get_registered_model(name).aliases.items()}
        except MlflowException as error:
            raise RegistryError(self.unknown_model(name)) from error
        if not alias.isdigit() and alias not in aliases:
            raise RegistryError(f"{name} has no alias {alias!r}; it has {', '.join(sorted(aliases)) or 'none: the gate refused every candidate'}")
        number = alias if alias.isdigit() else aliases[alias]
        known = {str(version.version): version for version in every(self.client.search_model_versions, filter_string=f"name = '{name}'")}
        if number not in known:
            raise RegistryError(f"{name} has no version {number}; it has {', '.join(sorted(known, key=int)) or 'none'}")
        return known[number]

    def unknown_model(self, name: str) -> str:
        """Say that a model is not there, and which are."""
        known = sorted(model.name for model in every(self.client.search_registered_models))
        return f"there is no registered model {name!r}; known are {', '.join(known) or 'none: run a recipe first'}"

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[None]:
        """Turn MLflow's many ways of failing into one sentence."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, troubles()):
                raise
            said = [line for line in str(error).strip().splitlines() if not line.startswith(SQL_NOISE)]
            raise RegistryError(without_secrets(f"MLflow at {self.uri} could not {what}: {said[-1] if said else type(error).__name__}")) from error


def troubles() -> tuple[type[Exception], ...]:
    """Return the errors that are MLflow's, its database's, its network's or the disk's; loaded only when something has gone wrong."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError


def require_reachable(uri: str) -> None:
    """Ask once, briefly: MLflow itself would go on asking for minutes before it gives up."""
    advice = "start it, or set MLFLOW_TRACKING_URI to one that is there"
    if uri.startswith("sqlite:///"):
        file = Path(unquote(urlparse(uri).path.removeprefix("/")))
        place = next(path for path in (file, *file.absolute().parents) if path.exists())  # MLflow makes the folders between
        if place.is_dir() == (place == file) or not os.access(place, os.W_OK):
            raise RegistryError(f"MLflow's database {file} cannot be written; set LIMBECK_HOME or MLFLOW_TRACKING_URI to a place that can")
    elif uri.startswith(("http://", "https://")):
        try:
            urllib.request.urlopen(without_secrets(uri).rstrip("/") + "/health", timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return  # somebody answers; whether it is MLflow shows in the first real question
            raise RegistryError(without_secrets(f"the MLflow server at {uri} does not do its work (status {error.code}); {advice}")) from error
        except (OSError, ValueError) as error:
            raise RegistryError(without_secrets(f"there is no MLflow server at {uri} ({getattr(error, 'reason', error)}); {advice}")) from error
    elif urlparse(uri).scheme.partition("+")[0] in PORTS:
        require_database(uri, advice)


def require_database(uri: str, advice: str) -> None:
    """Ask once whether anybody listens where MLflow's database is; a socket without a host is not asked."""
    place = urlparse(uri)
    try:
        if place.hostname:
            socket.create_connection((place.hostname, place.port or PORTS[place.scheme.partition("+")[0]]), timeout=5).close()
    except (OSError, ValueError) as error:
        raise RegistryError(without_secrets(f"there is no database of MLflow at {uri} ({error}); {advice}")) from error


def resolve_served_artifacts(uri: str, root: Path | None) -> None:
    """Let MLflow find artifacts without the server through which they were logged.

    An experiment that was made through ``limbeck ui`` has ``mlflow-artifacts:/…`` for its place: what that server keeps in this home's own folder. Where
    the database of the home is opened itself, the folder is, too.
    """
    if root is None:
        return
    from mlflow.store.artifact import artifact_repository_registry as known
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    def repository(place: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> Any:
        import mlflow

        if (tracking_uri or mlflow.get_tracking_uri()) != uri:
            return MlflowArtifactsRepository(place, tracking_uri=tracking_uri, registry_uri=registry_uri)
        folder = local_folder(place, root)
        if folder is None:
            raise RegistryError(f"{place} is kept by another server; set MLFLOW_TRACKING_URI to it")
        return LocalArtifactRepository(folder.as_uri(), tracking_uri=tracking_uri, registry_uri=registry_uri)

    known._artifact_repository_registry.register("mlflow-artifacts", repository)


def without_secrets(text: str) -> str:
    """Strike out user and password of every address in a text."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)


def require_legal_name(name: str) -> None:
    """Refuse a name that MLflow's addresses (models:/NAME@alias) or its searches could not carry."""
    if not re.fullmatch(r"[\w][\w .-]*", name):
        raise RegistryError(f"{name!r} cannot name a registered model; use letters, digits, '.', '_' and '-' in gate.register_as")


def same_judgement(known: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Tell whether two versions of one checkpoint were judged alike: on the same rows, with the same word of the criteria that know no champion."""
    word, rows = ("gate.alone", "gate"), ("rows.sha256", "judging_sets.sha256")
    alone, ours = ((tags.get(word[0]) or tags.get(word[1])) for tags in (known, given))
    return alone == ours and all(known.get(tag) == given.get(tag) for tag in rows)


def local_folder(place: str, served: Path | None) -> Path | None:
    """Return the folder behind an artifact location; None where it is not on this machine. ``served`` is what a server of this home serves."""
    found = urlparse(place)
    if found.scheme == "mlflow-artifacts" and served is not None and not found.netloc:
        inside = Path(unquote(found.path)).relative_to("/")
        if ".." in inside.parts:
            raise RegistryError(f"{place} leads out of the artifacts of this MLflow; nothing was read")
        return served.resolve() / inside
    return Path(unquote(found.path)) if found.scheme in ("", "file") else None


def require_judged_exports(files: Mapping[str, Path], version: Any) -> None:
    """Refuse graphs that are not, byte for byte, those that passed their parity, graphs that nobody judged, and graphs that reach outside of themselves."""
    tags = {name: tag for tag, name in EXPORT_TAGS.items()}
    graphs = [name for name in files if name.endswith(".onnx")]
    for name in {*graphs, *(name for name, tag in tags.items() if tag in version.tags)}:
        require_plain_graph(files.get(name), version.tags.get(tags.get(name, "")), name, f"{version.name} version {version.version}")


@contextlib.contextmanager
def only_one(what: str) -> Iterator[None]:
    """Hold a lock of this home folder; the kernel frees it when its holder dies."""
    folder = Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser() / "cache" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    refusal = RegistryError("another process has been registering under this name for ten minutes; stop it and try again")
    with (folder / sha256(what.encode()).hexdigest()[:16]).open("w") as handle:
        take_lock(handle, LOCK_SECONDS, refusal)
        yield


def made_with() -> dict[str, str]:
    """Return the version of Limbeck, and the commit where it runs from a checkout."""
    with contextlib.suppress(PackageNotFoundError):
        tags = {"limbeck.version": installed("limbeck")}
        if not (ROOT / ".git").exists():
            return tags
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, capture_output=True, text=True, timeout=5)
            tags["mlflow.source.git.commit"] = asked.stdout.strip()
        return tags
    return {}


def every(search: Callable[..., Any], **given: Any) -> Iterator[Any]:
    """Go through all pages of one of MLflow's searches."""
    token = None
    while True:
        page = search(page_token=token, **given)
        yield from page
        token = page.token
        if not token:
            return


def best_of(tags: Mapping[str, str]) -> str:
    """Return a run's best candidate, with its standing where it is not champion; of sweeps and of older runs what they call their winner."""
    if "best" not in tags:
        return tags.get("winner", "")
    return tags["best"] if tags["standing"] == "champion" else f"{tags['best']}: {tags['standing']}"


def decision_figures(model: Mapping[str, Any], teacher: Mapping[str, Any], split: str) -> list[Any]:
    """Return the figures that a chooser compares, as MLflow metrics with names short enough for its cards; what is undefined is left out."""
    from mlflow.entities import Metric

    ours, theirs, retained = score_of(model, split), score_of(teacher, split), ((model["retained"] or {}).get(split) or {}).get("value")
    values = {
        "score": ours, "retained_pct": scaled(retained, 100), "params_m": scaled(model["parameters"], 1e-6), "size_mb": scaled(model["bytes"], 1e-6),
        "flops_g": scaled(model["flops"], 1e-9), **paces_of(model),
        "compression_x": teacher["bytes"] / model["bytes"] if model["bytes"] else None, "memory_mb": scaled(model.get("memory_bytes"), 1e-6),
        "quality_drop_pts": None if ours is None or theirs is None else 100 * (theirs - ours),
        "score_deviation": (model.get("deviation") or {}).get(split, {}).get(model["headline"]), **least_lead(model, split), **costs_of(model),
        **judged_figures(model),
    }  # fmt: skip
    now = int(time.time() * 1000)
    return [Metric(name, float(value), now, 0) for name, value in values.items() if value is not None]


def paces_of(model: Mapping[str, Any]) -> dict[str, float | None]:
    """Return latency and speed-up, and what follows from them; of unsteady ones only how far they spread, because a chooser would compare them."""
    latency, high = model["latency_ms"], model.get("latency_high_ms")
    spread = {"latency_spread": None if not latency or high is None else 100 * (high / latency - 1)}
    return spread if model.get("unsteady") else {"latency_ms": latency, "speedup_x": model["speedup"], **spread}


def words_against(model: Mapping[str, Any], split: str) -> dict[str, str]:
    """Return the tags that say how a candidate stands to the plain baselines of its size, where there are any, and that its speed is unsteady, where it is."""
    said = [f"{splits[split]['verdict']}: {baseline}" for baseline, splits in (model.get("against") or {}).items() if split in splits]
    shaky = {"speed": "unsteady"} if model.get("unsteady") else {}
    return {"against": "; ".join(said), **shaky} if said else shaky


def least_lead(model: Mapping[str, Any], split: str) -> dict[str, float]:
    """Return a candidate's difference to the baseline that is hardest to beat, with its interval, in points."""
    found = [splits[split] for splits in (model.get("against") or {}).values() if split in splits]
    least = min(found, key=lambda one: (WORDS.index(one["verdict"]), -one["p"]), default=None)
    return {} if least is None else {f"lead_{name}pts": 100 * least[part] for name, part in (("", "value"), ("low_", "low"), ("high_", "high"))}


def judged_figures(model: Mapping[str, Any]) -> dict[str, float | None]:
    """Return a model's figures on every judging set; MLflow shows each set in a section of its own."""
    found: dict[str, float | None] = {}
    for name, one in (model.get("judged") or {}).items():
        figures = {"score": one["metrics"][model["headline"]]["value"], "retained_pct": scaled((one.get("retained") or {}).get("value"), 100),
                   "drop_pts": scaled(one.get("drop"), 100)}  # fmt: skip
        found |= {f"judge/{name}/{figure}": value for figure, value in figures.items()}
        found |= {f"judge/{name}/{metric}": score["value"] for metric, score in one["metrics"].items()}
    return found


def costs_of(model: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what one inference draws, and what making a candidate took, shared stages left out; the run's own totals have other names."""
    cost = model.get("cost") or {}
    named = {
        "joules": "joules", "made_kwh": "kwh", "made_co2e_kg": "co2e_kg", "made_dollars": "dollars_on_demand", "made_dollar_spot": "dollars_spot",
    }  # fmt: skip
    return {name: (cost.get(part) or {}).get("value") for name, part in named.items() if name != "joules" or not model.get("unsteady")}


def scaled(value: float | None, factor: float) -> float | None:
    """Return a figure in other units, if there is one."""
    return None if value is None else value * factor


def score_of(model: Mapping[str, Any], split: str) -> float | None:
    """Return a model's headline score, if it is defined."""
    value = model["metrics"][split][model["headline"]]["value"]
    return None if value is None else float(value)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested values to dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def legal(name: str) -> str:
    """Return a name that MLflow takes."""
    return re.sub(r"[^\w/ .:-]", "_", name)[:250]


def is_number(value: Any) -> bool:
    """Tell a metric from other facts."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
