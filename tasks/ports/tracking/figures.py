"""The results of a run as MLflow metrics and tags, with names short enough for MLflow's cards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

WORDS = ("worse", "inside the noise", "not known by one seed", "better")


def best_of(tags: Mapping[str, str]) -> str:
    """Return a run's best candidate, with its gate result if it is not champion; for sweeps and older runs, return the
    ``winner`` tag."""
    if "best" not in tags:
        return tags.get("winner", "")
    return tags["best"] if tags["standing"] == "champion" else f"{tags['best']}: {tags['standing']}"


def decision_figures(model: Mapping[str, Any], teacher: Mapping[str, Any], split: str) -> list[Any]:
    """Return the metrics for the choice between candidates, with names short enough for MLflow's cards; undefined
    values are left out."""
    from mlflow.entities import Metric

    ours, theirs, retained = (
        score_of(model, split),
        score_of(teacher, split),
        ((model["retained"] or {}).get(split) or {}).get("value"),
    )
    values = {
        "score": ours,
        "retained_pct": scaled(retained, 100),
        "params_m": scaled(model["parameters"], 1e-6),
        "size_mb": scaled(model["bytes"], 1e-6),
        "flops_g": scaled(model["flops"], 1e-9),
        **paces_of(model),
        "compression_x": teacher["bytes"] / model["bytes"] if model["bytes"] else None,
        "memory_mb": scaled(model.get("memory_bytes"), 1e-6),
        "quality_drop_pts": None if ours is None or theirs is None else 100 * (theirs - ours),
        "score_deviation": (model.get("deviation") or {}).get(split, {}).get(model["headline"]),
        **least_lead(model, split),
        **costs_of(model),
        **judged_figures(model),
    }
    now = int(time.time() * 1000)
    return [Metric(name, float(value), now, 0) for name, value in values.items() if value is not None]


def paces_of(model: Mapping[str, Any]) -> dict[str, float | None]:
    """Return latency in ms, speed-up, and spread of the latency in percent; for unsteady measurements only the spread,
    because people would compare the other two."""
    latency, high = model["latency_ms"], model.get("latency_high_ms")
    spread = {"latency_spread": None if not latency or high is None else 100 * (high / latency - 1)}
    return spread if model.get("unsteady") else {"latency_ms": latency, "speedup_x": model["speedup"], **spread}


def words_against(model: Mapping[str, Any], split: str) -> dict[str, str]:
    """Return the tags for a candidate's comparison with the baselines of its size, if there are any, and for an
    unsteady speed."""
    said = [
        f"{splits[split]['verdict']}: {baseline}"
        for baseline, splits in (model.get("against") or {}).items()
        if split in splits
    ]
    shaky = {"speed": "unsteady"} if model.get("unsteady") else {}
    return {"against": "; ".join(said), **shaky} if said else shaky


def least_lead(model: Mapping[str, Any], split: str) -> dict[str, float]:
    """Return a candidate's difference to the baseline that is hardest to beat, with its confidence interval, in
    points."""
    found = [splits[split] for splits in (model.get("against") or {}).values() if split in splits]
    least = min(found, key=lambda one: (WORDS.index(one["verdict"]), -one["p"]), default=None)
    return (
        {}
        if least is None
        else {
            f"lead_{name}pts": 100 * least[part] for name, part in (("", "value"), ("low_", "low"), ("high_", "high"))
        }
    )


def judged_figures(model: Mapping[str, Any]) -> dict[str, float | None]:
    """Return a model's metrics on every judging set; MLflow displays each set in a separate section."""
    found: dict[str, float | None] = {}
    for name, one in (model.get("judged") or {}).items():
        figures = {
            "score": one["metrics"][model["headline"]]["value"],
            "retained_pct": scaled((one.get("retained") or {}).get("value"), 100),
            "drop_pts": scaled(one.get("drop"), 100),
        }
        found |= {f"judge/{name}/{figure}": value for figure, value in figures.items()}
        found |= {f"judge/{name}/{metric}": score["value"] for metric, score in one["metrics"].items()}
    return found


def costs_of(model: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the energy of one inference, and the cost of training a candidate without shared stages; the run's totals
    have other names."""
    cost = model.get("cost") or {}
    named = {
        "joules": "joules",
        "made_kwh": "kwh",
        "made_co2e_kg": "co2e_kg",
        "made_dollars": "dollars_on_demand",
        "made_dollar_spot": "dollars_spot",
    }
    return {
        name: (cost.get(part) or {}).get("value")
        for name, part in named.items()
        if name != "joules" or not model.get("unsteady")
    }


def scaled(value: float | None, factor: float) -> float | None:
    """Return a value in other units, or None for None."""
    return None if value is None else value * factor


def score_of(model: Mapping[str, Any], split: str) -> float | None:
    """Return a model's headline score, or None if it is undefined."""
    value = model["metrics"][split][model["headline"]]["value"]
    return None if value is None else float(value)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values as one flat mapping with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and thus a metric."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
