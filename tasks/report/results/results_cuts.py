"""The reduction of a finished run or sweep to a results file: figures with few digits, and no paths of a machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from tasks.errors import RecipeError
from tasks.report.results.results_file import KINDS, Run, Sweep
from tasks.results.facts import HeldBackFacts
from tasks.results.record import Provenance
from tasks.results.row import UNDEFINED, Estimate, Means, ResultRow, SetScores
from tasks.results.run import RunResult
from tasks.results.search import SearchResult
from tasks.results.sweep import DroppedLayers, SweepCell, read_sweep

DIGITS = 5  # significant digits of a stored figure


PLACES = ("/", "~", "./", "../")


INSIDE = re.compile(r"(?<=[\s\[{,\"'])(/|~|\.\.?/)[^\s,\]}\"']*")
"""A path inside a list or a mapping."""


def trimmed(written: Any, note: str, where: str) -> Run | Sweep:
    """Reduce the output of ``--json`` to the content that the page needs."""
    if not isinstance(written, Mapping) or str(written.get("kind")) not in CUTS or "made" not in written:
        raise RecipeError(
            f"{where} is not a file that limbeck run --json or limbeck sweep --json writes for a finished run; name "
            f"such a file"
        )
    try:
        cut = CUTS[written["kind"]](written) | {
            "made": without_places(written["made"]),
            "note": note,
            "kind": written["kind"],
            "purged": purged_of(written),
        }
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise RecipeError(
            f"{where} lacks a part of a finished run ({error}); run it again with --json and add that file"
        ) from error
    return parsed(rounded(cut), where)


def parsed(values: Any, where: str) -> Run | Sweep:
    """Return the validated content of a results file. Raises RecipeError, with the first error in one sentence."""
    kind = str(values.get("kind")) if isinstance(values, Mapping) else None
    if kind not in KINDS:
        raise RecipeError(
            f"{where} is not a result of a run or a sweep; remove it, or add one with limbeck results FOLDER --add "
            f"OUT.json"
        )
    try:
        return KINDS[kind].model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
        raise RecipeError(
            f"{where} is not a result of a {kind}: {wrong}; add it again with limbeck results FOLDER --add OUT.json"
        ) from error


def purged_of(written: Mapping[str, object]) -> dict[str, object] | None:
    """Return the stored facts on the purge of training rows; None if they are unknown."""
    purged = HeldBackFacts.model_validate(written.get("held_back") or {}).purged
    return {"rows": purged.rows, "of": purged.of, "way": purged.way} if purged else None


def cut_run(written: Mapping[str, object]) -> dict[str, object]:
    """Return the stored part of a run."""
    result = RunResult.model_validate(written)
    models = result.models
    if any(model.deviation is None or model.parameters is None for model in models):
        raise KeyError("deviation")
    measured = models[0].measured_at
    if measured is None:
        raise KeyError("measured_at")
    return {
        **{name: written[name] for name in ("recipe", "task", "headline", "split", "rows", "synthetic")},
        "measured_at": measured.as_json(),
        "search": None if result.search is None else kept_search(result.search),
        "models": [entry_of(model) for model in models],
    }


def kept_search(search: SearchResult) -> dict[str, object]:
    """Return the stored part of a search over shapes."""
    table = search.table
    checked = {} if table is None else {name: getattr(table, name) for name in ("error", "rank_correlation")}
    return {
        **{name: getattr(search, name) for name in ("points", "fitting", "supernet_tau", "tau")},
        **checked,
        "checks": 0 if table is None else len(table.checks),
    }


def entry_of(model: ResultRow) -> dict[str, object]:
    """Return the stored part of one model: means over its seeds, for comparing methods, and the registered model's own
    figures."""
    means = model.means or {}
    scores = {split: {name: score_of(model, split, name) for name in found} for split, found in model.metrics.items()}
    kept = model.model_dump(mode="json", include=KEPT)
    over = {split: means.get(split) or Means() for split in {*(model.retained or ()), *(model.difference or ())}}
    retained = {split: mean_and_own(over[split].retained, own) for split, own in (model.retained or {}).items()}
    ahead = {split: mean_and_own(over[split].difference, own) for split, own in (model.difference or {}).items()}
    judged = {name: judged_of(found, model.headline) for name, found in (model.judged or {}).items()}
    return {
        **kept,
        "retained": retained,
        "difference": ahead,
        "scores": scores,
        **({"judged": judged} if judged else {}),
        **({"pooled": judged_of(model.pooled, model.headline)} if model.pooled else {}),
        **own_cost(model),
    }


def own_cost(model: ResultRow) -> dict[str, object]:
    """Return energy and price of a model's own stages, where the run knows them."""
    known = model.cost.amounts() if model.cost else {}
    named = {"kwh": known.get("kwh"), "dollars": known.get("dollars_on_demand")}
    return {name: amount.value for name, amount in named.items() if amount and amount.value is not None}


KEPT = {
    "name",
    "role",
    "plain",
    "seeds",
    "against",
    "parameters",
    "bytes",
    "flops",
    "flops_length",
    "packed_bytes",
    "nonzero_share",
    "bits",
    "fertility",
    "fertility_elsewhere",
    "ms_per_text",
    "latency_ms",
    "speedup",
    "steps",
    "train_seconds",
    "teacher_rows_read",
    "teacher_rows_computed",
    "latency_low_ms",
    "latency_high_ms",
    "unsteady",
    "selected_seed",
}


def score_of(model: ResultRow, split: str, name: str) -> dict[str, object]:
    """Return the stored part of one metric."""
    spread = {"deviation": (model.deviation or {})[split][name], "per_seed": model.per_seed[split][name]}
    return with_own(model.score(split, name), (model.means or {}).get(split), name, spread)


def with_own(own: Estimate, means: Means | None, name: str, spread: Mapping[str, object]) -> dict[str, object]:
    """Return a metric's mean over seeds and the registered model's own figure; older results have only one figure."""
    if means is None:
        return {**own.as_json(), **spread}
    return {**means.metrics[name].as_json(), **spread, "own": own.as_json()}


def mean_and_own(mean: Estimate | None, own: Estimate | None) -> dict[str, object]:
    """Return a share or a difference of the mean over seeds and the registered model's own one; older results have only
    one figure."""
    if mean is None or own is None:
        return dict((mean or own or UNDEFINED).as_json())
    return {**mean.as_json(), "own": own.as_json()}


def judged_of(found: SetScores, headline: str) -> dict[str, object]:
    """Return the stored part of a model's scores on one judging set: means and its own figures, as on the task's
    rows; the set's metric is stated where it is not the task's ``headline``."""
    means = found.means or Means()
    scores = {
        name: with_own(own, found.means, name, {"deviation": found.deviation[name], "per_seed": found.per_seed[name]})
        for name, own in found.metrics.items()
    }
    over = {"retained": (means.retained, found.retained), "difference": (means.difference, found.difference)}
    drop = means.drop if "drop" in means.model_fields_set else found.drop
    stated = {what: mean_and_own(mean, own) for what, (mean, own) in over.items() if mean or own}
    own: dict[str, object] = {} if found.headline in ("", headline) else {"headline": found.headline}
    if found.chance is not None:
        own = {"headline": found.headline, "chance": found.chance}
    against = {other: one.as_json() for other, one in found.against.items()}
    compared = {"against": against} if against else {}
    return {"rows": found.rows, "merges": found.merges, "drop": drop, **own, **stated, "scores": scores, **compared}


def cut_sweep(written: Mapping[str, object]) -> dict[str, object]:
    """Return the stored part of a sweep."""
    sweep = read_sweep(written)
    return {
        **{name: written[name] for name in ("recipe", "task", "headline", "split", "rows", "layers", "seeds")},
        "teacher": sweep["teacher"]["score"],
        "cells": [cell_of(cell) for cell in sweep["cells"]],
        "answer": [
            {"points": one["points"], "holds": most_layers(one["holds"]), "mean": most_layers(one["mean"])}
            for one in sweep["answer"]
        ],
    }


def most_layers(found: DroppedLayers | None) -> int | None:
    """Return the number of layers of an answer."""
    return None if found is None else found["drop"]


def cell_of(cell: SweepCell) -> dict[str, object]:
    """Return the stored part of one cell of a sweep."""
    score = (
        {**cell["score"], "deviation": cell["deviation"], "per_seed": cell["per_seed"]} if cell.get("score") else None
    )
    return {"strategy": cell["strategy"], "drop": cell["drop"], "score": score, "chosen": bool(cell.get("chosen"))}


CUTS: dict[str, Callable[[Mapping[str, object]], dict[str, object]]] = {"run": cut_run, "sweep": cut_sweep}


def without_places(made: object) -> dict[str, object]:
    """Return the facts on how a result was produced, with the local paths in its command reduced to their last
    part."""
    known = Provenance.model_validate(made)
    if known.command is None:
        raise KeyError("command")
    return {**known.as_json(), "command": " ".join(shown_word(word) for word in shlex.split(known.command))}


def shown_word(word: str) -> str:
    """Return one word of a command with its local paths reduced to their last part."""
    names = (re.match(r"([\w.-]+=)*", word) or [""])[0]
    value = word.removeprefix(names)
    public = (
        f"FOLDER/{PurePath(value).name}"
        if value.startswith(PLACES)
        else INSIDE.sub(lambda found: f"FOLDER/{PurePath(found[0]).name}", value)
    )
    return shlex.quote(f"{names}{public}")


def rounded(value: Any) -> Any:
    """Return values with figures rounded to ``DIGITS`` significant digits, so that files are small and diffs
    readable."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: rounded(inner) for name, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def file_name(result: Run | Sweep) -> str:
    """Return the name of a result's file: the recipe's name, the task's name if it is not part of it, and "layers" for
    a sweep."""
    parts = [result.recipe]
    if result.task not in result.recipe.split("-"):
        parts.append(result.task)
    return "-".join([*parts, *(["layers"] if isinstance(result, Sweep) else [])]) + ".json"
