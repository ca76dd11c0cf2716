"""The registration of a metric of the owner's own: a copy of its files is tried in a process of its own, and kept."""

from __future__ import annotations

import ast
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flows.home import Home
from tasks.engine.events import EngineOrder
from tasks.engine.process import run_engine
from tasks.errors import RecipeError
from tasks.ports.own_metrics import (
    FILES,
    RegisteredMetric,
    copy_of,
    digest_of,
    metric_folder,
    new_copy,
    register_metric,
    registered_metric,
)
from tasks.task_types.types import METRICS_OF_SCORES_OF, OF_GROUPS, TASK_TYPES, task_type

if TYPE_CHECKING:
    from tasks.scoring.further.trial import TrialFacts

TRIAL_SECONDS = 120.0
METRIC_LIBRARIES = ("datasets", "evaluate", "numpy", "scipy", "sklearn")
"""Libraries that a metric may import: their versions are in the keys of its results."""
DIRECTIONS = ("higher", "lower")


def add(home: Home, path: Path, *, task: str, better: str, about: str, resamples: int, replace: bool) -> list[str]:
    """Register a metric, and return sentences about it.

    Raises RecipeError for files that are no module of ``evaluate``, for a metric that fails its trial, and for a name
    that is taken, unless ``replace`` is set.
    """
    kind, source = task_type(task), path.expanduser().resolve()
    if better not in DIRECTIONS:
        raise RecipeError(f"--better is {better!r}; write one of {', '.join(DIRECTIONS)}")
    if not source.exists():
        raise RecipeError(f"there is no file or folder {path}; check the path")
    fresh = new_copy(home.root)
    try:
        name = copy_of(source, fresh / FILES)
        require_known_imports(fresh / FILES, name)
        sha256 = digest_of(fresh / FILES)
        if metric_folder(home.root, name).exists() and not replace:
            require_new(home, name, sha256)
            return [f"own/{name} is registered already, with the same files"]
        found = asyncio.run(trial(fresh / FILES, name, sha256, kind.name))
        metric = RegisteredMetric(
            name=name,
            task=kind.name,
            better="lower" if better == "lower" else "higher",
            about=about,
            reads=found["reads"],
            two_classes=found["two_classes"],
            resamples=resamples,
            sha256=sha256,
            source=str(source),
        )
        register_metric(home.root, fresh, metric)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return sentences(metric, found["seconds"])


def module_of_metrics() -> Path:
    """Return the file of the module of ``evaluate`` with Limbeck's metrics."""
    return Path(__file__).with_name("limbeck_metric.py")


def limbeck_metrics() -> list[tuple[str, str, str, str, str, str]]:
    """Return the columns of Limbeck's metrics for a table: name, task types, direction, input, source, description."""
    from tasks.metrics.metrics import METRICS, METRICS_OF_SCORES

    of_scores = {name: type_name for type_name, names in METRICS_OF_SCORES_OF.items() for name in names}
    types: dict[str, str] = dict(of_scores)
    for kind in TASK_TYPES.values():
        types |= {name: ", ".join(filter(None, (types.get(name), kind.name))) for name in kind.metrics}
    inputs = dict.fromkeys(of_scores, "prediction_scores")
    return [
        (
            name,
            types[name],
            "lower" if one.lower_is_better else "higher",
            "groups of predictions" if name in OF_GROUPS else inputs.get(name, "predictions"),
            "Limbeck",
            one.description,
        )
        for name, one in (METRICS | METRICS_OF_SCORES).items()
    ]


def sentences(metric: RegisteredMetric, seconds: float) -> list[str]:
    """Return what is to be known of a new metric; ``seconds`` is the time of a call on 1,000 rows."""
    scope = " of two classes" if metric.two_classes else ""
    return [
        f"registered own/{metric.name} for {metric.task}{scope}; {metric.better} is better; "
        f"digest {metric.sha256[:12]}",
        f"a call on 1,000 rows took {1000 * seconds:.3g} ms here: about {seconds * metric.resamples:.2g} s for the "
        f"interval of a model with {metric.resamples:,} resamples; --resamples lowers that",
        f"use it in a recipe: scoring.metrics: [own/{metric.name}]",
    ]


def require_new(home: Home, name: str, sha256: str) -> None:
    """Raise RecipeError where another metric is registered under a name."""
    if registered_metric(home.root, name).sha256 != sha256:
        raise RecipeError(
            f"own/{name} is registered with other files; replace it with --replace, or rename the new one"
        )


def require_known_imports(folder: Path, name: str) -> None:
    """Raise RecipeError for files that cannot be read as Python, and that import libraries whose versions are in no
    key."""
    for path in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError as error:
            raise RecipeError(
                f"{path.name} of the metric {name} is not Python: {error.msg} in line {error.lineno}"
            ) from error
        except ValueError as error:
            raise RecipeError(f"{path.name} of the metric {name} is not Python: {error}") from error
        for module in imported_modules(tree):
            if module not in METRIC_LIBRARIES and module not in sys.stdlib_module_names:
                raise RecipeError(
                    f"{path.name} of the metric {name} imports {module}; it may import the standard library, "
                    f"{', '.join(METRIC_LIBRARIES)}; put all of its code into {name}.py"
                )


def imported_modules(tree: ast.Module) -> list[str]:
    """Return the first names of the modules that a file imports, dots included."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [one.name.split(".")[0] for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or "").split(".")[0])
    return found


async def trial(folder: Path, name: str, sha256: str, task: str) -> TrialFacts:
    """Run the trial of a metric in an engine, which inherits no password and no address."""
    with tempfile.TemporaryDirectory(prefix="limbeck-") as place:
        workspace = Path(place)
        order: EngineOrder = {
            "job": "try-metric",
            "knobs": {"name": name, "sha256": sha256, "task_type": task},
            "inputs": {"metric": str(folder)},
            "output": str(workspace / "output"),
            "threads": 1,
        }
        engine = run_engine("tasks.scoring.further", order, workspace, lambda event: None)
        try:
            return cast("TrialFacts", await asyncio.wait_for(engine, TRIAL_SECONDS))
        except TimeoutError:
            raise RecipeError(
                f"the trial of the metric {name} was ended after {TRIAL_SECONDS:.0f} seconds; make it faster, or try "
                f"again when the machine is less busy"
            ) from None
