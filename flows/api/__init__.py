"""Limbeck from Python: ``from flows.api import compress, plan, predict, pull, report``.

Every function does the work of the command of the same name, with the same checks and messages, and works in scripts,
in notebooks and under a running event loop: commands run in a process of their own, because Prefect and MLflow read
their settings at import, which the caller's process may have done with other settings. A mistake raises
``tasks.errors.LimbeckError`` with the sentence that the command line would print.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.api.commands import recipe_words, run_command
from tasks.results.record import PlannedRun
from tasks.results.run import RunResult
from tasks.task_types.interfaces import Printed

__all__ = ["compress", "metric", "metrics_module", "plan", "predict", "pull", "report"]

RecipeSource = str | Path | Mapping[str, object]
"""A recipe: the name of one on the shelf, a YAML file, or its content as a dict."""


def compress(
    recipe: RecipeSource, *, changes: Mapping[str, object] | None = None, force: Sequence[str] = (), quiet: bool = False
) -> RunResult:
    """Run a recipe like ``limbeck run`` and return its results: one row per model, verdicts and registered versions.

    ``changes`` are knobs by their path, for example ``{"students.half.layers": 2}``; ``force`` names stages to compute
    again. Progress is printed unless ``quiet``. An interrupt (Ctrl-C, or the button of a notebook) stops the run in
    order; the same call continues it.
    """
    with tempfile.TemporaryDirectory(prefix="limbeck-api-") as folder:
        output = Path(folder) / "answer.json"
        words = [*recipe_words(recipe, changes, Path(folder)), *(f"--force={stage}" for stage in force)]
        run_command("run", *words, "--json", str(output), quiet=quiet)
        return RunResult.model_validate(json.loads(output.read_text()))


def plan(recipe: RecipeSource, *, changes: Mapping[str, object] | None = None) -> PlannedRun:
    """Return the stages of a run without running it, like ``limbeck plan``: cached or not, why, and estimated costs."""
    with tempfile.TemporaryDirectory(prefix="limbeck-api-") as folder:
        output = Path(folder) / "answer.json"
        run_command("plan", *recipe_words(recipe, changes, Path(folder)), "--json", str(output), quiet=True)
        return PlannedRun.model_validate(json.loads(output.read_text()))


def pull(name: str, folder: str | Path) -> Path:
    """Write a registered model, ``NAME`` or ``NAME@alias``, as a new plain Hugging Face folder, like ``limbeck pull``;
    return the folder. A version that the gate refused is printed as REFUSED."""
    run_command("pull", "--", name, str(folder))
    return Path(folder)


def predict(
    model: str | Path,
    texts: str | Sequence[str],
    pairs: str | Sequence[str] | None = None,
    *,
    max_length: int | None = None,
    export_format: str | None = None,
    new_tokens: int | None = None,
) -> list[Printed]:
    """Return the prediction of each text, like a pipeline of transformers: ``[{"label": "positive", "score": 0.98}]``.

    ``model`` is a folder, or a registered model as ``NAME@alias``, which is fetched for this call alone; ``pairs`` are
    second texts. ``max_length`` in tokens is by default that of the model's evaluation. ``export_format`` chooses an
    exported graph: onnx, int8, int8-table4 or four-bit. With ``new_tokens`` a language model continues each text:
    ``[{"continuation": " and so on"}]``.
    """
    from flows.inference.inputs import inputs_of_texts
    from flows.inference.predictions import answers_to

    inputs = inputs_of_texts(as_list(texts), None if pairs is None else as_list(pairs))
    with tempfile.TemporaryDirectory(prefix="limbeck-api-") as place:
        folder = Path(model).expanduser()
        if not folder.is_dir():
            folder = Path(place) / "model"
            printed = run_command("pull", "--", str(model), str(folder), quiet=True)
            print(*(line for line in printed.splitlines() if "REFUSED" in line), sep="\n", end="", file=sys.stderr)
        return answers_to(folder, inputs, max_length, export_format, new_tokens)


def report(run: str | None = None, *, output: str | Path | None = None, texts: bool = True) -> Path:
    """Write the report of a run, by default of the newest finished one, like ``limbeck report``; return its path."""
    words = [*([] if output is None else [f"--output={output}"]), *([] if texts else ["--no-texts"])]
    printed = run_command("report", *words, *([] if run is None else ["--", run]), quiet=True)
    return Path(printed.strip().splitlines()[-1])


def metric(name: str) -> Any:
    """Return one of Limbeck's metrics as a module of ``evaluate``, with ``add_batch`` and ``compute``.

    It is the definition by which models are scored; classes are whole numbers. Raises RecipeError for an unknown name.
    The first call imports ``evaluate``, which takes seconds.
    """
    from flows.recipes.limbeck_metric import LimbeckMetric, known_name

    return LimbeckMetric(config_name=known_name(name), keep_in_memory=True)


def metrics_module() -> str:
    """Return the path of the module of ``evaluate`` with Limbeck's metrics, for ``evaluate.load(path, name)``."""
    from flows.recipes.own_metrics import module_of_metrics

    return str(module_of_metrics())


def as_list(texts: str | Sequence[str]) -> list[str]:
    """Return one text, or several, as a list."""
    return [texts] if isinstance(texts, str) else list(texts)
