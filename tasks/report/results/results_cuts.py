"""A finished run or sweep cut down to a results file: figures in few digits, no places of a machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from tasks.errors import RecipeError
from tasks.report.results.results_file import KINDS, Run, Sweep

DIGITS = 5  # significant digits that are kept of a measured figure


PLACES = ("/", "~", "./", "../")


INSIDE = re.compile(r"(?<=[\s\[{,\"'])(/|~|\.\.?/)[^\s,\]}\"']*")
"""A place within a list or a mapping."""


def trimmed(written: Any, note: str, where: str) -> Run | Sweep:
    """Cut what ``--json`` wrote to what the page needs."""
    if not isinstance(written, Mapping) or written.get("kind") not in CUTS or "made" not in written:
        raise RecipeError(
            f"{where} is not what limbeck run --json or limbeck sweep --json writes of a finished run; name such a file"
        )
    try:
        cut = CUTS[written["kind"]](written) | {
            "made": without_places(written["made"]),
            "note": note,
            "kind": written["kind"],
            "purged": purged_of(written),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise RecipeError(
            f"{where} lacks something that a finished run has ({error}); run it again with --json and add that file"
        ) from error
    return parsed(rounded(cut), where)


def parsed(values: Any, where: str) -> Run | Sweep:
    """Read a small file's values, or say in one sentence what is wrong with them."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if kind not in KINDS:
        raise RecipeError(
            f"{where} is no result of a run or a sweep; remove it, or add one with limbeck results FOLDER --add "
            f"OUT.json"
        )
    try:
        return KINDS[kind].model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
        raise RecipeError(
            f"{where} is no result of a {kind}: {wrong}; add it anew with limbeck results FOLDER --add OUT.json"
        ) from error


def purged_of(written: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is kept of how the rows were divided."""
    purged = (written.get("held_back") or {}).get("purged")
    return {name: purged[name] for name in ("rows", "of", "way")} if purged else None


def cut_run(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a run."""
    models = written["models"]
    return {
        **{name: written[name] for name in ("recipe", "task", "headline", "split", "rows", "synthetic")},
        "measured_at": models[0]["measured_at"],
        "models": [entry_of(model) for model in models],
    }


def entry_of(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of one model: means over its seeds, by which methods are compared, and beside them the
    figures of the registered one."""
    means = model.get("means") or {}
    scores = {
        split: {name: score_of(model, means, split, name) for name in metrics}
        for split, metrics in model["metrics"].items()
    }
    over = {
        what: {split: (means.get(split) or {}).get(what, found) for split, found in (model[what] or {}).items()}
        for what in ("retained", "difference")
    }
    kept = (
        "name",
        "role",
        "plain",
        "seeds",
        "against",
        "parameters",
        "bytes",
        "latency_ms",
        "speedup",
        "steps",
        "train_seconds",
    )
    timed = {name: model.get(name) for name in ("latency_low_ms", "latency_high_ms", "unsteady")}
    judged = {name: judged_of(found) for name, found in (model.get("judged") or {}).items()}
    return {
        **{name: model[name] for name in kept},
        **timed,
        **over,
        "selected_seed": model.get("selected_seed"),
        "scores": scores,
        **({"judged": judged} if judged else {}),
    }


def score_of(model: Mapping[str, Any], means: Mapping[str, Any], split: str, name: str) -> dict[str, Any]:
    """Return what is kept of one metric."""
    spread = {"deviation": model["deviation"][split][name], "per_seed": model["per_seed"][split][name]}
    return with_own(model["metrics"][split][name], means.get(split) or {}, name, spread)


def with_own(own: Mapping[str, Any], means: Mapping[str, Any], name: str, spread: Mapping[str, Any]) -> dict[str, Any]:
    """Return a metric's mean over seeds and beside it the registered model's own; older results have one figure."""
    return {**means["metrics"][name], **spread, "own": own} if means else {**own, **spread}


def judged_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a model's scores on one judging set: means, and its own beside them, as on the task's
    rows."""
    means = found.get("means") or {}
    scores = {
        name: with_own(own, means, name, {"deviation": found["deviation"][name], "per_seed": found["per_seed"][name]})
        for name, own in found["metrics"].items()
    }
    over = {what: means.get(what, found[what]) for what in ("retained", "difference", "drop")}
    return {**{name: found[name] for name in ("rows", "merges")}, **over, "scores": scores}


def cut_sweep(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a sweep."""
    most = lambda found: None if found is None else found["drop"]  # noqa: E731 - used twice here
    return {
        **{name: written[name] for name in ("recipe", "task", "headline", "split", "rows", "layers", "seeds")},
        "teacher": written["teacher"]["score"],
        "cells": [cell_of(cell) for cell in written["cells"]],
        "answer": [
            {"points": one["points"], "holds": most(one["holds"]), "mean": most(one["mean"])}
            for one in written["answer"]
        ],
    }


def cell_of(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of one cell of a sweep."""
    score = (
        {**cell["score"], "deviation": cell["deviation"], "per_seed": cell["per_seed"]} if cell.get("score") else None
    )
    return {"strategy": cell["strategy"], "drop": cell["drop"], "score": score, "chosen": bool(cell.get("chosen"))}


CUTS = {"run": cut_run, "sweep": cut_sweep}


def without_places(made: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a command the folders of the machine that it ran on; their last part says what was there."""
    return {**made, "command": " ".join(shown_word(word) for word in shlex.split(made["command"]))}


def shown_word(word: str) -> str:
    """Return one word of a command as it may be published."""
    names = (re.match(r"([\w.-]+=)*", word) or [""])[0]
    value = word.removeprefix(names)
    public = (
        f"FOLDER/{PurePath(value).name}"
        if value.startswith(PLACES)
        else INSIDE.sub(lambda found: f"FOLDER/{PurePath(found[0]).name}", value)
    )
    return shlex.quote(f"{names}{public}")


def rounded(value: Any) -> Any:
    """Keep the digits of a figure that mean something, so that files stay small and differences readable."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def file_name(result: Run | Sweep) -> str:
    """Return the name of a result's file: the recipe's, with the task where the recipe's name does not say it, and a
    word for sweeps."""
    parts = [result.recipe]
    if result.task not in result.recipe.split("-"):
        parts.append(result.task)
    return "-".join([*parts, *(["layers"] if isinstance(result, Sweep) else [])]) + ".json"
