"""Protocol between the flow's process and its engines: one JSON file in, lines of JSON out.

A stage that computes runs in a process of its own (``python -m tasks.training JOB.json``, ``tasks.scoring`` or
``tasks.exports``): thread counts are set before torch is imported, memory returns to the system when the process ends,
and the flow's process never imports torch.
"""

from __future__ import annotations

import ctypes
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tasks.engine.environment import require_libraries
from tasks.engine.events import EngineOrder
from tasks.errors import EngineError, LimbeckError, OutOfMemory, RecipeError, StoreError
from tasks.modeling.registration import register_if_own

if TYPE_CHECKING:
    from pydantic import BaseModel

K = TypeVar("K", bound="BaseModel")
PR_SET_PDEATHSIG = 1
KIB = 1 if sys.platform == "darwin" else 1024  # bytes in the system's unit of peak memory (``ru_maxrss``)


class StoredBlocks(NamedTuple):
    """A result that is computed in blocks, each of which stays on the disk."""

    files: str
    """The pattern of their names, in a job's folder of checkpoints."""
    copies: int
    """How often the whole result is on the disk while it is published."""


class Job:
    """One job of an engine: its name, knobs, input folders and output folder."""

    def __init__(self, order: EngineOrder, *, silent: bool = False) -> None:
        self.name: str = order["job"]
        self.values: Mapping[str, object] = order.get("knobs", {})
        self.inputs: dict[str, Path] = {name: Path(folder) for name, folder in order.get("inputs", {}).items()}
        self.lists: dict[str, list[Path]] = {name: [Path(f) for f in fs] for name, fs in order.get("lists", {}).items()}
        register_if_own([*self.inputs.values(), *(folder for each in self.lists.values() for folder in each)])
        self.output = Path(order["output"])
        # By default, checkpoints stay inside the output folder: from a folder beside it, the next job would resume this
        # one's training.
        self.checkpoints = Path(order.get("checkpoints", self.output / "checkpoints"))
        self.threads: int = order.get("threads", 1)
        self.last_report = 0.0
        self.done, self.total = 0, 0
        self.blocks: StoredBlocks | None = None
        self.say = mute if silent else emit

    def read(self, kind: type[K]) -> K:
        """Return the knobs as the slice of the recipe that the stage sent.

        Raises pydantic's ValidationError where they are not that slice.
        """
        return kind.model_validate(self.values)

    def log(self, message: str) -> None:
        """Send one sentence to the user."""
        self.say("log", message=message)

    def progress(self, done: int, total: int, *, unit: str = "steps", force: bool = False, **figures: float) -> None:
        """Report progress at most once a second, and at the end; ``figures`` are displayed beside the bar (loss,
        examples_per_s)."""
        now, self.done, self.total = time.monotonic(), done, total
        if force or done >= total or now - self.last_report >= 1:
            self.last_report = now
            self.say("progress", done=done, total=total, unit=unit, figures=figures)

    def curve(self, step: int, **figures: float) -> None:
        """Record points of training curves; they become MLflow metrics of the stage's run."""
        self.say("curve", step=step, figures=figures)


def emit(event: str, **content: Any) -> None:
    """Write one event for the parent process.

    Use a single write: processes that torchrun starts share one pipe without a buffer, and a line end written
    separately could fall into another process's line.
    """
    assert sys.__stdout__ is not None
    sys.__stdout__.write(json.dumps({"event": event, **content}) + "\n")
    sys.__stdout__.flush()


def mute(event: str, **content: Any) -> None:
    """Discard an event."""


Jobs = Mapping[str, Callable[[Job], Mapping[str, object]]]
"""The jobs of an engine by name; each returns the facts of its result."""


def serve(jobs: Jobs, path: str) -> int:
    """Run the job in the JSON file at ``path``, report its facts or its one-sentence error, and return the exit
    status."""
    return serve_order(jobs, json.loads(Path(path).read_text()))


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask Linux to end this process when its parent dies, so that no orphan keeps working."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def serve_beside(jobs: Jobs, path: str) -> int:
    """Run a job in one of several processes that share it, but not in the main one: report only an error, and discard
    the output."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as scratch:
        order: EngineOrder = json.loads(Path(path).read_text())
        return serve_order(jobs, {**order, "output": f"{scratch}/output"}, silent=True)


def serve_order(jobs: Jobs, order: EngineOrder, *, silent: bool = False) -> int:
    """Run a parsed job; return the exit status."""
    job: Job | None = None
    try:
        if order["job"] not in jobs:
            raise RecipeError(f"unknown job {order['job']!r}; choose one of {', '.join(sorted(jobs))}")
        require_libraries(order.get("libraries", {}))
        job = Job(order, silent=silent)
        job.output.mkdir(parents=True, exist_ok=True)
        facts = jobs[order["job"]](job)
        emit_used()
        job.say("result", facts=facts)
    except LimbeckError as error:
        emit_used()
        emit("error", kind=type(error).__name__, message=str(error))
        return 2
    except Exception as error:
        traceback.print_exc()
        emit_used()
        kind, advice = shortage_of(error) or (
            EngineError,
            f"{type(error).__name__}: {str(error).strip() or 'no message'}",
        )
        kept = blocks_told(job) if job is not None and kind is StoreError else ""
        emit("error", kind=kind.__name__, message=f"stage {order['job']!r}: {advice}{kept}")
        return 2
    return 0


def emit_used() -> None:
    """Report the resources that this process has used, for the ledger. Each of several processes that share a job
    reports its own."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    torch = sys.modules.get("torch")
    on_gpu = torch is not None and torch.cuda.is_initialized()
    emit("used", cpu_seconds=round(cpu_seconds, 3), peak_bytes=own.ru_maxrss * KIB, gpus=int(on_gpu))


def blocks_told(job: Job) -> str:
    """Return how much of a result that is computed in blocks is on the full disk, and what the rest needs; empty for
    other jobs. Half a block is removed."""
    (job.checkpoints / "unfinished").unlink(missing_ok=True)
    blocks = [*job.checkpoints.glob(job.blocks.files)] if job.blocks is not None else []
    if not blocks or job.blocks is None or not job.done:
        return ""
    written, free = sum(file.stat().st_size for file in blocks), shutil.disk_usage(job.checkpoints).free
    whole = written * job.total / job.done
    needed = job.blocks.copies * whole
    return (
        f", which goes on behind what is there: {written / 1e9:.3g} of some {whole / 1e9:.3g} GB are written and stay, "
        f"{needed / 1e9:.3g} GB are needed in all while they are published, and {free / 1e9:.3g} GB are free"
    )


def shortage_of(error: Exception) -> tuple[type[LimbeckError], str] | None:
    """Return error class and advice if a machine ran out of memory or disk, which a user can fix; None for a bug of
    ours. Libraries report shortages in several ways."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(words in text for words in ("out of memory", "can't allocate memory")):
        return OutOfMemory, "memory ran out; lower batch_size or batch_tokens, or max_length"
    if any(words in text for words in ("no space left", "quota exceeded", "file too large")):
        return StoreError, "the disk is full; nothing was published; free some space and run again"
    return None
