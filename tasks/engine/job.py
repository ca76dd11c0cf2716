"""The wire between the house and its engines: one JSON file in, lines of JSON out.

A stage that computes runs in a process of its own (``python -m tasks.training JOB.json`` or ``python -m tasks.scoring
JOB.json``): thread counts are set before torch is imported, memory goes back to the system when it ends, and the flow's
process never imports torch.
"""

from __future__ import annotations

import ctypes
import json
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tasks.engine.environment import require_libraries
from tasks.errors import EngineError, LimbeckError, OutOfMemory, RecipeError, StoreError

if TYPE_CHECKING:
    from pydantic import BaseModel

K = TypeVar("K", bound="BaseModel")
PR_SET_PDEATHSIG = 1
KIB = 1 if sys.platform == "darwin" else 1024  # bytes in the unit in which the system tells the peak of memory


class Job:
    """One order to an engine: what to do, with which knobs, from which folders, into which folder."""

    def __init__(self, order: Mapping[str, Any], *, silent: bool = False) -> None:
        self.name: str = order["job"]
        self.values: Mapping[str, Any] = order.get("knobs", {})
        self.inputs: dict[str, Path] = {name: Path(folder) for name, folder in order.get("inputs", {}).items()}
        self.lists: dict[str, list[Path]] = {name: [Path(f) for f in fs] for name, fs in order.get("lists", {}).items()}
        self.output = Path(order["output"])
        # An order that names no place keeps them to itself: in a folder beside its own, the next order would go on from
        # where this one stopped.
        self.checkpoints = Path(order.get("checkpoints", self.output / "checkpoints"))
        self.threads: int = order.get("threads", 1)
        self.last_report = 0.0
        self.say = mute if silent else emit

    def read(self, kind: type[K]) -> K:
        """Return the knobs as the slice of the recipe that the stage sent.

        Raises pydantic's ValidationError where they are not that slice.
        """
        return kind.model_validate(self.values)

    def log(self, message: str) -> None:
        """Say one sentence to the person who watches."""
        self.say("log", message=message)

    def progress(self, done: int, total: int, *, unit: str = "steps", force: bool = False, **figures: float) -> None:
        """Report progress at most once a second; ``figures`` are shown beside the bar (loss, examples_per_s)."""
        now = time.monotonic()
        if force or done >= total or now - self.last_report >= 1:
            self.last_report = now
            self.say("progress", done=done, total=total, unit=unit, figures=figures)

    def curve(self, step: int, **figures: float) -> None:
        """Record points of training curves; they become MLflow metrics of the stage's run."""
        self.say("curve", step=step, figures=figures)


def emit(event: str, **content: Any) -> None:
    """Write one event for the parent process.

    In one write: processes that torchrun starts share one pipe without a buffer, and a line's end of its own would fall
    into another's line.
    """
    assert sys.__stdout__ is not None
    sys.__stdout__.write(json.dumps({"event": event, **content}) + "\n")
    sys.__stdout__.flush()


def mute(event: str, **content: Any) -> None:
    """Write nothing."""


def serve(jobs: Mapping[str, Callable[[Job], dict[str, Any]]], path: str) -> int:
    """Run the job named in the JSON file at ``path``; report its facts or its one-sentence error; return the exit
    status."""
    return serve_order(jobs, json.loads(Path(path).read_text()))


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Ask Linux to end this process when its parent dies, so that none works on for nobody."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def serve_beside(jobs: Mapping[str, Callable[[Job], dict[str, Any]]], path: str) -> int:
    """Run a job as one of several processes that share it, but not the one that is heard: only its error is, and what
    it writes is dropped."""
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as scratch:
        return serve_order(jobs, {**json.loads(Path(path).read_text()), "output": f"{scratch}/output"}, silent=True)


def serve_order(
    jobs: Mapping[str, Callable[[Job], dict[str, Any]]], order: Mapping[str, Any], *, silent: bool = False
) -> int:
    """Run a job that was read."""
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
        emit("error", kind=kind.__name__, message=f"stage {order['job']!r}: {advice}")
        return 2
    return 0


def emit_used() -> None:
    """Tell the parent process what this one took so far: for the ledger. Each of several processes that share a job
    tells its own."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_seconds = sum(usage.ru_utime + usage.ru_stime for usage in (own, children))
    torch = sys.modules.get("torch")
    on_gpu = torch is not None and torch.cuda.is_initialized()
    emit("used", cpu_seconds=round(cpu_seconds, 3), peak_bytes=own.ru_maxrss * KIB, gpus=int(on_gpu))


def shortage_of(error: Exception) -> tuple[type[LimbeckError], str] | None:
    """Tell a machine that ran short of memory or disk, which a user can mend, from a mistake of ours; libraries say it
    in several ways."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(words in text for words in ("out of memory", "can't allocate memory")):
        return OutOfMemory, "memory ran out; lower batch_size or batch_tokens, or max_length"
    if any(words in text for words in ("no space left", "quota exceeded", "file too large")):
        return StoreError, "the disk is full; nothing was published; make room and run again"
    return None
