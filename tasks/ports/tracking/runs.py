"""The current run in MLflow: the parent run, a child run for every executed stage, curves, notes and files."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from tasks.contracts import TrackedRun
from tasks.ports.markdown import escaped
from tasks.ports.processes import this_process
from tasks.ports.tracking.client import legal, without_secrets
from tasks.ports.tracking.figures import flatten, is_number
from tasks.ports.tracking.history import RunHistory
from tasks.ports.tracking.run_context import (
    FLOW_RUN,
    STAGE_RUN,
    TRAINING_PAGES,
    DataSource,
    candidates_page,
    data_inputs,
    file_page,
    flat_parameters,
    page_of_run,
    shared_tags,
)
from tasks.results.record import Ledger

ROOT = Path(__file__).resolve().parents[3]
CURVE_SECONDS = 20.0  # seconds between two uploads of a curve, so that MLflow shows the progress of a long stage
METRICS_AT_ONCE, PARAMS_AT_ONCE = 900, 90  # MLflow accepts 1,000 and 100 in one call


class RunLog(RunHistory):
    """One parent run and its children."""

    def __init__(
        self,
        uri: str,
        artifact_root: Path | None,
        *,
        experiment: str = "",
        run_name: str = "",
        tags: Mapping[str, str] | None = None,
        recipe: Mapping[str, object] | None = None,
        data: Sequence[DataSource] = (),
    ) -> None:
        super().__init__(uri, artifact_root)
        self.experiment, self.run_name, self.tags = experiment, run_name, dict(tags or {})
        self.recipe, self.data = recipe or {}, tuple(data)
        self.parent = self.experiment_id = ""
        self.joined = self.lent = False
        self.children: dict[int, str] = {}
        self.unfinished: dict[str, None] = {}
        self.points: dict[int, list[tuple[str, float, int]]] = {}
        self.sent: dict[int, float] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.found: dict[str | None, str] | None = None
        self.sender: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """Start the parent run; an unreachable or read-only tracker raises an error here, before any stage runs."""
        with self.asking("start a run"):
            found = self.client.get_experiment_by_name(self.experiment)
            self.experiment_id = found.experiment_id if found else self.new_experiment()
            tags = {"limbeck": FLOW_RUN, "limbeck.process": this_process(), **made_with(), **self.tags}
            self.parent = self.client.create_run(self.experiment_id, run_name=self.run_name, tags=tags).info.run_id
            if self.recipe:
                self.client.log_dict(self.parent, dict(self.recipe), "run/recipe.json")
                self.send(self.parent, params=flat_parameters(self.recipe))
            if self.data:
                self.client.log_inputs(self.parent, datasets=data_inputs(self.data))
        atexit.register(self.abandon)

    def lend_run(self) -> TrackedRun:
        """Reserve the next number of a stage for a worker elsewhere; return it with experiment and parent run."""
        self.lent = True
        return {"experiment": self.experiment_id, "run": self.parent, "number": next(self.numbers)}

    def join(self, experiment: str, run: str, number: int) -> None:
        """Log a stage below a parent run that another process has opened and will end."""
        with self.asking(f"find the run {run[:8]} that a stage belongs to"):
            self.tags = dict(self.client.get_run(run).data.tags)
        self.experiment_id, self.parent, self.numbers, self.joined = experiment, run, itertools.count(number), True
        atexit.register(self.abandon)

    def abandon(self) -> None:
        """End the open runs if the process ends without ``close``, so that none stays RUNNING for ever."""
        with contextlib.suppress(Exception):
            self.close("KILLED")

    def new_experiment(self) -> str:
        """Create the experiment of this task and teacher."""
        where = None
        if self.artifact_root is not None and not self.uri.startswith("http"):
            where = (self.artifact_root / self.experiment.replace("/", "-")).as_uri()
        tags = {
            "mlflow.experimentKind": "custom_model_development",
            "mlflow.note.content": f"Limbeck: small models for {escaped(self.experiment)}. "
            "Parent runs are flow runs; below each are its candidates, its stages, and scores of registered models. "
            "The search `tags.limbeck = 'candidate'` lists only the candidates of all runs; the registry holds the "
            "models.",
        }
        return str(self.client.create_experiment(self.experiment, artifact_location=where, tags=tags))

    def new_child(self, name: str, tags: Mapping[str, str]) -> str:
        """Start a child run, with the tags that all runs of a flow run share, and record that it is open."""
        run: str = self.client.create_run(
            self.experiment_id,
            run_name=name,
            tags={"mlflow.parentRunId": self.parent, **shared_tags(self.tags), **tags},
        ).info.run_id
        self.unfinished[run] = None
        return run

    def terminate(self, run: str, status: str) -> None:
        """End a child run."""
        self.client.set_terminated(run, status)
        self.unfinished.pop(run, None)
        self.found = None

    def stage_started(self, record: Any) -> None:
        """Start a child run for an executed stage; the number in its name shows the order, because MLflow lists the
        newest first."""
        tags = {"limbeck": STAGE_RUN, "stage": record.name, "cache": "miss", "cache.key": record.key}
        tags |= {"prefect.task_run_id": record.task_run}
        self.sent[record.number] = time.monotonic()
        with self.asking("start a stage's run"):
            run = self.new_child(f"{next(self.numbers)}-{record.name} {record.label}".rstrip(), tags)
            self.children[record.number] = run
            self.send(
                run,
                params={
                    f"{record.name}.{name}": value
                    for name, value in flatten(record.explanation.get("knobs", {})).items()
                },
            )

    def send(
        self, run: str, *, metrics: Sequence[tuple[str, float, int]] = (), params: Mapping[str, object] | None = None
    ) -> None:
        """Send metrics (name, value, step) and parameters in as few calls as possible."""
        from mlflow.entities import Metric, Param

        now = int(time.time() * 1000)
        points = [Metric(legal(name), float(value), now, step) for name, value, step in metrics]
        knobs = [Param(legal(name), str(value)[:5000]) for name, value in (params or {}).items()]
        for start in range(0, len(points), METRICS_AT_ONCE):
            self.client.log_batch(run, metrics=points[start : start + METRICS_AT_ONCE])
        for start in range(0, len(knobs), PARAMS_AT_ONCE):
            self.client.log_batch(run, params=knobs[start : start + PARAMS_AT_ONCE])

    def curve(self, record: Any, step: int, figures: Mapping[str, float]) -> None:
        """Buffer points of a curve; another thread sends them in batches, so that the caller does not wait for
        MLflow."""
        with self.lock:
            self.points.setdefault(record.number, []).extend((name, value, step) for name, value in figures.items())
        now = time.monotonic()
        if record.number in self.children and now - self.sent.get(record.number, 0.0) >= CURVE_SECONDS:
            self.sent[record.number] = now
            self.sender = self.sender or ThreadPoolExecutor(max_workers=1, thread_name_prefix="curves")
            self.sender.submit(self.deliver, record)

    def deliver(self, record: Any) -> None:
        """Send the buffered points of a stage; after an error they stay in the buffer for the next attempt."""
        with self.lock:
            points = self.points.pop(record.number, [])
        try:
            self.send(self.children[record.number], metrics=points)
        except BaseException:
            with self.lock:
                self.points[record.number] = points + self.points.get(record.number, [])
            raise

    def stage_finished(self, record: Any) -> None:
        """Send the curves and facts of a stage and end its run."""
        with self.asking("end a stage's run"):
            self.client.set_tag(self.children[record.number], "blob.sha256", record.artifact.sha256)
            self.end(record, "FINISHED")

    def stage_failed(self, record: Any, error: str, killed: bool) -> None:
        """End the run of a stage that failed or was stopped; an error of MLflow must not hide the reason."""
        if record.number not in self.children:
            return
        try:
            self.client.set_tag(self.children[record.number], "error", error[:5000])
            self.end(record, "KILLED" if killed else "FAILED")
        except Exception as trouble:
            logging.getLogger("limbeck").warning(
                "MLflow did not record the end of %s: %s", record.display_name, trouble
            )

    def end(self, record: Any, status: str) -> None:
        """Send the buffered points and final metrics of a stage and set its status."""
        run, facts = self.children[record.number], dict(record.artifact.facts) if record.artifact else {}
        self.deliver(record)
        figures = [(name, value, 0) for name, value in flatten(facts).items() if is_number(value)]
        took = [(name, value, 0) for name, value in record.figures.items()]
        self.send(run, metrics=[*figures, *took, ("stage_seconds", record.seconds, 0)])
        self.terminate(run, status)

    def log_stages(self, records: Sequence[Any]) -> None:
        """Log the state of every stage on the parent, for a cache hit with the run that computed it; this takes one
        search and one call for any number of stages."""
        if not records:
            return
        with self.asking("record the outcomes of the stages"):
            makers = self.makers() if any(record.cache == "hit" for record in records) else {}
            rows = [
                {
                    "stage": record.display_name,
                    "state": record.state,
                    "cache": record.cache,
                    "why": record.why,
                    "seconds": round(record.seconds, 3),
                    "key": record.key,
                    "sha256": record.artifact.sha256 if record.artifact else None,
                    "made_by_run": makers.get(record.key) if record.cache == "hit" else None,
                }
                for record in records
            ]
            self.client.log_dict(self.parent, {"stages": rows}, "run/stages.json")

    def ledger(self, ledger: Ledger | None) -> None:
        """Log the costs of the run and the savings by its cache: the full ledger as a file, the known totals as metrics
        of the parent."""
        if ledger is None or ledger.basis is None:
            return
        market = f"dollars_{ledger.basis.market.replace('-', '_')}"
        named = {"kwh": "kwh", "co2e_kg": "co2e_kg", "dollars": market}
        parts = {"": ledger.total.amounts(), "saved_": ledger.saved.amounts()}
        known = [
            (f"{before}{name}", value, 0)
            for before, part in parts.items()
            for name, figure in named.items()
            if (value := part[figure].value) is not None
        ]
        with self.asking("log the ledger"):
            self.client.log_dict(self.parent, ledger.as_json(), "run/ledger.json")
            self.send(self.parent, metrics=known)

    def makers(self) -> dict[str | None, str]:
        """Return the run that computed each key; of two runs with the same key, the newer one, which computed the
        present result. The search is cached until a stage ends."""
        if self.found is None:
            # Only this experiment is searched: a search over all experiments would be slow, and nearly every result
            # comes from its own experiment.
            found = self.client.search_runs(
                [self.experiment_id], "tags.cache = 'miss' and attributes.status = 'FINISHED'", max_results=5000
            )
            self.found = {run.data.tags.get("cache.key"): run.info.run_id for run in reversed(found)}
        return self.found

    def close(self, status: str) -> None:
        """End every open child run, and the parent if this process has opened it."""
        if self.sender is not None:
            self.sender.shutdown(wait=True)
        if not self.parent:
            return
        with self.asking("end the run"):
            for run in list(self.unfinished):
                self.terminate(run, "KILLED" if status == "KILLED" else "FAILED")
            # A dead worker on another machine leaves its child run open. If a worker still runs after this run was cut
            # off, it ends its child run itself later.
            for run in self.open_below(self.parent, self.experiment_id) if self.lent else []:
                self.client.set_terminated(run, "KILLED")
            if not self.joined:
                self.client.set_terminated(self.parent, status)
        atexit.unregister(self.abandon)

    def urls(self, base: str | None) -> dict[str, str]:
        """Return links to the run and to the registry; empty if MLflow is not a server."""
        root = self.root(base)
        return {"run": self.url_of(self.parent, base), "registry": f"{root}/#/models?{TRAINING_PAGES}"} if root else {}

    def url_of_candidates(self) -> str:
        """Return the address of a list of this run's candidates; empty if MLflow is not a server."""
        return candidates_page(self.root(), self.experiment_id, self.parent) if self.root() else ""

    def root(self, base: str | None = None) -> str:
        """Return the address of MLflow's pages; empty if MLflow is not a server."""
        return without_secrets(base or (self.uri if self.uri.startswith("http") else "")).rstrip("/")

    def url_of(self, run: str, base: str | None = None) -> str:
        """Return the address of a run's page."""
        return page_of_run(self.root(base), self.experiment_id, run)

    def url_of_stage(self, record: Any) -> str | None:
        """Return the address of a stage's page, or None if MLflow is not a server."""
        run = self.children.get(record.number)
        return self.url_of(run) if run and self.root() else None

    def note(self, name: str, values: Mapping[str, object]) -> None:
        """Log a JSON file about the run, for ``recall``."""
        with self.asking(f"record the {name}"):
            self.client.log_dict(self.parent, dict(values), f"run/{name}.json")

    def describe(self, text: str) -> None:
        """Set the description at the top of the run's page."""
        with self.asking("describe the run"):
            self.client.set_tag(self.parent, "mlflow.note.content", text)

    def report_files(self) -> dict[str, str]:
        """Return the addresses of the run's report files by name: for a picture the file itself, for others MLflow's
        page of the file.

        The addresses are empty if MLflow is not a server.
        """
        with self.asking("list the report"):
            names = [
                Path(entry.path).name for entry in self.client.list_artifacts(self.parent, "report") if not entry.is_dir
            ]
        root, page = self.root(), self.url_of(self.parent)
        picture = f"{root}/get-artifact?run_uuid={self.parent}&path=report%2F"
        return {
            name: "" if not root else f"{picture}{name}" if name.endswith(".svg") else file_page(page, f"report/{name}")
            for name in names
        }

    def report_file(self, name: str) -> bytes:
        """Return one file of the run's report."""
        with self.asking(f"read report/{name}"), tempfile.TemporaryDirectory(prefix="limbeck-") as folder:
            return Path(self.client.download_artifacts(self.parent, f"report/{name}", folder)).read_bytes()


@cache
def made_with() -> Mapping[str, str]:
    """Return tags with the version of Limbeck, and the commit if it runs from a checkout; git is asked once."""
    with contextlib.suppress(PackageNotFoundError):
        tags = {"limbeck.version": installed("limbeck")}
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if (ROOT / ".git").exists():
                words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
                asked = subprocess.run(words, check=True, capture_output=True, text=True, timeout=5)
                tags["mlflow.source.git.commit"] = asked.stdout.strip()
        return tags
    return {}
