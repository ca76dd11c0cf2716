"""The ledger of a run: what every stage took, what the run spent, what the cache saved it, and what each candidate cost
to make.

A candidate's own stages bear its name; what they were made from, and others were too, is counted apart and undivided
(``shared``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks.ports.store.collect import inputs_of
from tasks.recipe.running import Costs
from tasks.scoring.costs.figures import Figure, measured, scaled
from tasks.scoring.costs.ledger import cost_of, foreseen, nothing_known, sum_of
from tasks.scoring.costs.rates import Rates, rates_for
from tasks.stage.budget import Purse
from tasks.stage.session import Session, StageRecord

JUDGING = ("scorecard", "speed", "comparison", "inspection")
"""Kinds that say how good a model is: it is not made of them, nor of what they compare it with."""
GRAPHS = {"export-onnx": "onnx", "quantize-onnx": "int8"}
"""How the row of an export is called after its model's: the stage that makes it bears the name of the model."""


def new_purse(costs: Costs) -> Purse:
    """Return what a run may spend, and what it counts with; a name that no table knows is refused here."""
    limits = {name: getattr(costs.budget, name) for name in ("dollars", "kwh", "hours")}
    return Purse(limits, rates_for(costs), costs.budget.by_estimate)


def ledger_of(session: Session) -> dict[str, Any]:
    """Return the ledger as ``--json`` writes it, of a run that has ended or was ended."""
    purse = session.purse or Purse({})
    rows = [stage_cost(record, purse.rates) for record in session.records]
    ran = [row["cost"] for row in rows if row["cache"] == "miss" and row["ran"]]
    return {
        "stages": rows,
        "total": sum_of(ran),
        "saved": sum_of(row["cost"] for row in rows if row["cache"] == "hit"),
        "billed": billed(purse),
        "basis": basis(purse.rates),
        "budget": dict(purse.limits),
        "warnings": list(purse.rates.warnings),
    }


def stage_cost(record: StageRecord, rates: Rates) -> dict[str, Any]:
    """Return one stage's line; what a cached one took, it took when it was made."""
    ran = record.cache == "hit" or bool(record.used)
    cost = cost_of(record.used, rates) if ran else nothing_known("it did not run")
    return {
        "stage": record.shown,
        "state": record.state,
        "cache": record.cache,
        "ran": ran,
        "cost": cost,
        "used": dict(record.used),
    }


def billed(purse: Purse) -> dict[str, Figure]:
    """Return what the whole machine costs for as long as the run took: stages are busy for less."""
    hours = measured((time.monotonic() - purse.opened) / 3600, "the run's wall clock")
    dollars = {}
    for market in ("on-demand", "spot"):
        price = purse.rates.dollars_per_hour(market)
        by = "no price: set costs.instance and costs.region" if price is None else f"hours x {price:g} $ ({market})"
        dollars[f"dollars_{market.replace('-', '_')}"] = scaled(hours, price, by)
    return {"hours": hours, **dollars}


def basis(rates: Rates) -> dict[str, Any]:
    """Return what was counted with, and from when and where it is."""
    price = rates.price
    return {
        "market": rates.market,
        "instance": price.instance if price else None,
        "region": price.region if price else rates.grid or None,
        "kg_per_kwh": rates.kg_per_kwh,
        "grid": rates.grid or None,
        "pue": rates.pue,
        "prices": price.model_dump(mode="json", include={"on_demand", "spot", "as_of", "source"}) if price else None,
    }


def costs_of_candidates(names: Sequence[str], session: Session) -> dict[str, dict[str, Any]]:
    """Return by candidate what its own stages took, cached or not, and apart what the shared stages took that they were
    made from."""
    makers = {record.parcel.sha256: record for record in reversed(session.records) if record.parcel is not None}
    return {name: candidate_cost(name, session, makers) for name in names}


def candidate_cost(name: str, session: Session, makers: Mapping[str, StageRecord]) -> dict[str, Any]:
    """Return what one candidate took."""
    own = [record for record in session.records if record.parcel is not None and is_own(record, name)]
    seen = {id(record) for record in own}
    shared = list(behind([record for record in own if record.kind not in JUDGING], makers, seen))
    rates = session.rates
    ours, others = (
        sum_of(cost_of(record.used, rates) for record in some) if own else nothing_known("no stage bears its name")
        for some in (own, shared)
    )
    return ours | {"shared": others | {"stages": sorted(record.shown for record in shared)}}


def is_own(record: StageRecord, name: str) -> bool:
    """Tell whether a stage is one candidate's own: it bears its name, or is the teacher's training."""
    if record.kind == "export":
        return name == f"{record.label}-{GRAPHS.get(record.name)}"
    if name == "teacher":
        return record.label == "teacher" or (record.name, record.label) == ("finetune-teacher", "")
    return record.label == name or record.label.startswith(f"{name} ")


def behind(records: Sequence[StageRecord], makers: Mapping[str, StageRecord], seen: set[int]) -> Iterator[StageRecord]:
    """Yield every stage that some were made from, by the digests of their inputs."""
    for record in records:
        for digest in inputs_of([record.explanation]):
            maker = makers.get(digest)
            if maker is not None and id(maker) not in seen:
                seen.add(id(maker))
                yield maker
                yield from behind([maker], makers, seen)


def planned_cost(record: StageRecord, rates: Rates) -> dict[str, Figure]:
    """Return what a stage of a plan would take; of a cached one, what it took and need not take again."""
    if record.cache == "hit":
        return cost_of(record.used, rates)
    return (
        foreseen(cost_of(record.likely, rates)) if record.likely else nothing_known("nothing like it was made before")
    )
