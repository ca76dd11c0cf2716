"""A registered metric of the owner's own, as the code that scores sees it.

It is a module of ``evaluate``: a class derived from ``evaluate.Metric``, in a file of the metric's name. The class is
imported from the registered files and instantiated directly; ``evaluate.load`` would ask hubs, and copy the code
elsewhere. Its ``_compute`` is called directly, too: ``compute`` writes its inputs to an Arrow table first, a hundred
times as slow, and an interval takes a thousand calls; that both agree is tried when the metric is registered. Shape
letters: N rows, U distinct rows, R resamples.
"""

from __future__ import annotations

import contextlib
import io
import math
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import RecipeError
from tasks.ports.own_metrics import ADD, digest_of

OUTSIDE_EVENTS = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "urllib.")
"""Beginnings of the names of Python's audit events by which code leaves its process."""


class MetricGuard:
    """Lets no code of a metric leave its process or write to the standard output, which carries the engine's events.

    It finds mistakes, such as a metric that downloads something. It is no sandbox: the code is the owner's.
    """

    def __init__(self, name: str) -> None:
        self.name, self.asked, self.is_watching, self.printed = name, "", False, io.StringIO()
        sys.addaudithook(self.refuse_outside)

    def refuse_outside(self, event: str, details: tuple[Any, ...]) -> None:
        """Refuse what leaves the process while code of the metric runs."""
        if self.is_watching and event.startswith(OUTSIDE_EVENTS) and event != "socket.__new__":
            self.asked = event
            raise OSError(f"a metric may not use {event}")

    @contextlib.contextmanager
    def __call__(self, doing: str) -> Iterator[None]:
        """Run a piece of a metric's code; raise RecipeError, in one sentence, for each of its mistakes."""
        self.is_watching = True
        try:
            with contextlib.redirect_stdout(self.printed):
                yield
        except RecipeError:
            raise
        except (Exception, SystemExit) as error:
            self.require_inside()
            said = " ".join(str(error).split())[:200] or "no message"
            raise RecipeError(f"the metric {self.name} raised {type(error).__name__} {doing}: {said}") from error
        finally:
            self.is_watching = False
        self.require_inside()

    def require_inside(self) -> None:
        """Raise RecipeError if the code tried to leave its process, even if it went on without."""
        if self.asked:
            raise RecipeError(
                f"the metric {self.name} wants the network or another process ({self.asked}); a metric computes from "
                f"its inputs alone: put what it needs into its folder"
            )


def load_metric(folder: Path, name: str, digest: str, scratch: Path) -> tuple[Any, MetricGuard]:
    """Import a registered metric from its folder, and return an instance of its class, and its guard.

    Raises RecipeError where the files have another digest than the one in the stage's key, and where the module has not
    exactly one class derived from ``evaluate.Metric``.
    """
    import evaluate

    if digest_of(folder) != digest:
        raise RecipeError(f"the files of own/{name} were changed during the run; register it again: {ADD} --replace")
    guard, run_name = MetricGuard(f"own/{name}"), f"own_{name}"
    with guard("when it was imported"):
        defined = runpy.run_path(str(folder / f"{name}.py"), run_name=run_name)  # writes no compiled file
        found = [one for one in defined.values() if is_class_of(run_name, one, evaluate.Metric)]
        if len(found) != 1:
            raise RecipeError(f"{name}.py has {len(found)} classes derived from evaluate.Metric; it needs exactly one")
        return found[0](keep_in_memory=True, cache_dir=str(scratch)), guard


def is_class_of(run_name: str, one: Any, base: type) -> bool:
    """Tell whether a name of the module is a class that it derives from ``base`` itself."""
    return isinstance(one, type) and issubclass(one, base) and one.__module__ == run_name


def figure_in(found: Any, name: str) -> float:
    """Return the figure in a metric's result; raise RecipeError where there is none, or where it is not finite."""
    if not isinstance(found, Mapping) or name not in found:
        shown = f"a dict with {sorted(map(str, found))}" if isinstance(found, Mapping) else type(found).__name__
        raise RecipeError(
            f"the metric own/{name} returns {shown}; return a dict with the figure under its name: {name}"
        )
    try:
        value = float(found[name])
    except (TypeError, ValueError):
        kind = type(found[name]).__name__
        raise RecipeError(f"the metric own/{name} returns {kind} under {name}; return one number") from None
    if not math.isfinite(value):
        raise RecipeError(
            f"the metric own/{name} is {value} on some rows, such as resamples without one of the classes; return a "
            f"number there, for example 0"
        )
    return value


class CalledMetric:
    """A registered metric with the interface of ours; one call for each resample."""

    def __init__(
        self, metric: Any, guard: MetricGuard, name: str, reads: str, lower_is_better: bool, report: Callable[[], None]
    ) -> None:
        self.metric, self.guard, self.name, self.reads, self.report = metric, guard, name, reads, report
        self.lower_is_better, self.description = lower_is_better, name

    def __call__(self, predictions_N: np.ndarray, truth_N: np.ndarray) -> float:
        """Return the metric of all rows."""
        given = {self.reads: predictions_N.tolist(), "references": truth_N.tolist()}
        self.report()
        with self.guard(f"on {len(truth_N):,} rows"):
            found = self.metric._compute(**given)
        return figure_in(found, self.name)

    def weighted(self, predictions_U: np.ndarray, truth_U: np.ndarray, weights_RU: np.ndarray) -> np.ndarray:
        """Return the metric [R] of every resample, whose rows are in no particular order."""
        counts_RU = weights_RU.astype(int)
        return np.asarray([self(predictions_U.repeat(row_U), truth_U.repeat(row_U)) for row_U in counts_RU])
