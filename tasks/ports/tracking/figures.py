"""The results of a run as MLflow metrics and tags, with names short enough for MLflow's cards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

from tasks.results.row import Amount, Cost, ResultRow

if TYPE_CHECKING:
    from mlflow.entities import Metric

WORDS = ("worse", "inside the noise", "not known by so few groups", "not known by one seed", "better")


def best_of(tags: Mapping[str, str]) -> str:
    """Return a run's best candidate, with its gate result if it is not champion; for sweeps and older runs, return the
    ``winner`` tag."""
    if "best" not in tags:
        return tags.get("winner", "")
    return tags["best"] if tags["standing"] == "champion" else f"{tags['best']}: {tags['standing']}"


def decision_figures(model: ResultRow, teacher: ResultRow, split: str) -> list[Metric]:
    """Return the metrics for the choice between candidates, with names short enough for MLflow's cards; undefined
    values are left out."""
    from mlflow.entities import Metric

    ours, theirs = score_of(model, split), score_of(teacher, split)
    values = {
        "score": ours,
        **scores_by_name(model, split),
        "retained_pct": scaled(model.share(split).value, 100),
        "params_m": scaled(model.parameters, 1e-6),
        "size_mb": scaled(model.bytes, 1e-6),
        "flops_g": scaled(model.flops, 1e-9),
        **paces_of(model),
        "compression_x": teacher.bytes / model.bytes if teacher.bytes and model.bytes else None,
        "memory_mb": scaled(model.memory_bytes, 1e-6),
        "token_ms": None if model.unsteady else model.token_ms,
        "token_bytes": model.token_bytes,
        "fertility": model.fertility,
        "fertility_elsewhere": model.fertility_elsewhere,
        "ms_per_text": None if model.unsteady else model.ms_per_text,
        "packed_mb": scaled(model.packed_bytes, 1e-6),
        "nonzero_pct": scaled(model.nonzero_share, 100),
        "bits": model.bits,
        "quality_drop_pts": None if ours is None or theirs is None else 100 * (theirs - ours),
        "score_deviation": model.spread(split),
        **least_lead(model, split),
        **costs_of(model),
        **judged_figures(model),
    }
    now = int(time.time() * 1000)
    return [Metric(name, float(value), now, 0) for name, value in values.items() if value is not None]


def scores_by_name(model: ResultRow, split: str) -> dict[str, float | None]:
    """Return all scores under the names of their metrics; those on other splits than the gate's follow the split's
    name, as a section of their own on MLflow's page."""
    return {
        metric if where == split else f"{where}/{metric}": score.value
        for where, metrics in model.metrics.items()
        for metric, score in metrics.items()
    }


def paces_of(model: ResultRow) -> dict[str, float | None]:
    """Return latency in ms, speed-up, and spread of the latency in percent; for unsteady measurements only the spread,
    because people would compare the other two."""
    latency, high = model.latency_ms, model.latency_high_ms
    spread = {"latency_spread": None if not latency or high is None else 100 * (high / latency - 1)}
    return spread if model.unsteady else {"latency_ms": latency, "speedup_x": model.speedup, **spread}


def words_against(model: ResultRow, split: str) -> dict[str, str]:
    """Return the tags for a candidate's comparison with the baselines of its size, if there are any, and for an
    unsteady speed."""
    said = [f"{one.verdict}: {baseline}" for baseline, one in model.compared(split)]
    shaky = {"speed": "unsteady"} if model.unsteady else {}
    return {"against": "; ".join(said), **shaky} if said else shaky


def least_lead(model: ResultRow, split: str) -> dict[str, float]:
    """Return a candidate's difference to the baseline that is hardest to beat, with its confidence interval, in
    points."""
    found = [one for _, one in model.compared(split)]
    least = min(found, key=lambda one: (WORDS.index(one.verdict), -one.p), default=None)
    parts = {} if least is None else {"": least.value, "low_": least.low, "high_": least.high}
    return {f"lead_{name}pts": 100 * value for name, value in parts.items() if value is not None}


def judged_figures(model: ResultRow) -> dict[str, float | None]:
    """Return a model's metrics on every judging set; MLflow displays each set in a separate section."""
    found: dict[str, float | None] = {}
    for name, one in (model.judged or {}).items():
        figures = {
            "score": one.metrics[one.headline or model.headline].value,
            "retained_pct": scaled(one.retained.value if one.retained else None, 100),
            "drop_pts": scaled(one.drop, 100),
        }
        found |= {f"judge/{name}/{figure}": value for figure, value in figures.items()}
        found |= {f"judge/{name}/{metric}": score.value for metric, score in one.metrics.items()}
    return found


def costs_of(model: ResultRow) -> dict[str, float | None]:
    """Return the energy of one inference, and the cost of training a candidate without shared stages; the run's totals
    have other names."""
    cost = model.cost or Cost()
    named: dict[str, Amount | None] = {
        **({} if model.unsteady else {"joules": cost.joules}),
        "made_kwh": cost.kwh,
        "made_co2e_kg": cost.co2e_kg,
        "made_dollars": cost.dollars_on_demand,
        "made_dollar_spot": cost.dollars_spot,
    }
    return {name: amount.value if amount else None for name, amount in named.items()}


def scaled(value: float | None, factor: float) -> float | None:
    """Return a value in other units, or None for None."""
    return None if value is None else value * factor


def score_of(model: ResultRow, split: str) -> float | None:
    """Return a model's headline score, or None if it is undefined."""
    value = model.score(split).value
    return None if value is None else float(value)


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested values as one flat mapping with dotted names."""
    flat: dict[str, object] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, and thus a metric."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
