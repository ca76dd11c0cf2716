"""The context in which the function of a stage runs: its inputs as folders, its output folder, and the engine that it
may start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasks.contracts import Artifact
from tasks.engine.events import EngineOrder, Event, ProgressEvent
from tasks.engine.process import run_engine
from tasks.ports.store.inputs import HeldInputs
from tasks.stage.gpu_slots import own_gpus
from tasks.stage.keys import StageSpec
from tasks.stage.progress import ProgressPage
from tasks.stage.session import Session, StageRecord


@dataclass
class StageContext:
    """Context of a running stage: its inputs as folders, its output folder, and the engine that it may start."""

    spec: StageSpec
    session: Session
    record: StageRecord
    workspace: Path
    checkpoints: Path
    held: HeldInputs
    facts: dict[str, object] = field(default_factory=dict)
    heard: float = 0.0
    page: ProgressPage | None = None

    @property
    def output(self) -> Path:
        """The folder that is published when the stage succeeds."""
        folder = self.workspace / "output"
        folder.mkdir(exist_ok=True)
        return folder

    def folder(self, artifact: Artifact) -> Path:
        """Return the folder of an input; for a source, the copy in the store."""
        return self.held.folder(artifact)

    async def run(
        self,
        knobs: Mapping[str, object],
        *,
        inputs: Mapping[str, Artifact | None] | None = None,
        lists: Mapping[str, Sequence[Artifact]] | None = None,
        folders: Mapping[str, Path] | None = None,
    ) -> None:
        """Run the stage's engine on its inputs; inputs that are None are left out."""
        given = {name: str(self.folder(artifact)) for name, artifact in (inputs or {}).items() if artifact is not None}
        order: EngineOrder = {
            "job": self.spec.engine or "",
            "knobs": dict(knobs),
            "inputs": given | {name: str(folder) for name, folder in (folders or {}).items()},
            "lists": {
                name: [str(self.folder(artifact)) for artifact in artifacts]
                for name, artifacts in (lists or {}).items()
            },
            "output": str(self.output),
            "checkpoints": str(self.checkpoints),
            "threads": self.record.threads,
            "processes": self.record.processes,
            "device": self.spec.device.split("-")[0],
            "libraries": self.record.explanation["libraries"],
        }
        with own_gpus(self.record.processes if self.spec.on_gpu else 0) as gpus:
            order["gpus"] = gpus
            self.facts |= await run_engine(self.spec.module, order, self.workspace, self.listen, self.session.engines)

    def listen(self, event: Event) -> None:
        """Forward an engine's event to the watcher, the tracker, the Prefect log and the meter."""
        from prefect.logging import get_run_logger

        watcher, tracker = self.session.watcher, self.session.tracker
        if event["event"] != "used":  # a thread of its own counts resources, also while the engine hangs
            self.note_report()
        if event["event"] == "log":
            get_run_logger().info(event["message"])
            if watcher is not None:
                watcher.log(self.record, event["message"])
        elif event["event"] == "progress":
            if watcher is not None:
                watcher.progress(self.record, event["done"], event["total"], event["unit"], event["figures"])
            self.log_progress(event)
            if self.page is not None:
                self.page.move(event["done"], event["total"])
        elif event["event"] == "curve" and tracker is not None:
            tracker.curve(self.record, event["step"], event["figures"])
        elif event["event"] == "used" and self.record.meter is not None:
            self.record.meter.hear(event)

    def note_report(self) -> None:
        """Begin the limit of silence anew."""
        silence = self.record.silence
        if silence is not None and not silence.expired():
            silence.reschedule(asyncio.get_running_loop().time() + self.session.silent_minutes * 60)

    def log_progress(self, event: ProgressEvent) -> None:
        """Log every tenth of the progress, so that the page in the Prefect UI stays readable."""
        from prefect.logging import get_run_logger

        share = event["done"] / max(1, event["total"])
        if share >= self.heard + 0.1 or share >= 1 > self.heard:
            self.heard = share
            figures = ", ".join(f"{name} {value:.4g}" for name, value in event["figures"].items())
            get_run_logger().info(
                f"{event['done']:,} of {event['total']:,} {event['unit']}{', ' + figures if figures else ''}"
            )
