"""The ledger of a run: the cost of every stage, of the whole run and of each candidate, and the savings of the cache.

The label of a candidate's own stages is its name; stages that several candidates depend on are counted separately and
undivided (``shared``).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tasks.contracts import Used
from tasks.ports.store.collect import inputs_of
from tasks.recipe.chains import origins_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.running import Costs
from tasks.results.record import Basis, Billed, Ledger, StageCost
from tasks.results.row import Cost
from tasks.scoring.costs.figures import Figure, measured, scaled
from tasks.scoring.costs.ledger import cost_of, foreseen, nothing_known, sum_of
from tasks.scoring.costs.rates import Rates, rates_for
from tasks.stage.budget import RunBudget, machine_hours
from tasks.stage.session import Session, StageRecord

JUDGING = ("scorecard", "speed", "comparison", "inspection")
"""Kinds of stages that evaluate a model: their inputs, such as models compared with it, are no part of its cost."""
NO_ANCESTORS: Mapping[str, Sequence[str]] = {}
EXPORT_SUFFIXES = {"export-onnx": "-onnx", "quantize-onnx": "-int8"}
"""What an export's row adds to the label of its stage, the model's name; other stages have the row's name as label."""


def new_budget(costs: Costs) -> RunBudget:
    """Return the budget of a run and its rates; raises an error if no table has the given instance or region."""
    limits = {name: getattr(costs.budget, name) for name in ("dollars", "kwh", "hours")}
    return RunBudget(limits, rates_for(costs), costs.budget.by_estimate)


def ledger_of(session: Session) -> Ledger:
    """Return the ledger of a finished or stopped run."""
    budget = session.budget or RunBudget({})
    rows = [stage_cost(record, budget.rates) for record in session.records]
    ran, cached = ([cost for row, cost in rows if row.cache == cache and row.ran] for cache in ("miss", "hit"))
    return Ledger(
        stages=tuple(row for row, _ in rows),
        total=Cost.model_validate(sum_of(ran)),
        saved=Cost.model_validate(sum_of(cached)),
        billed=billed(budget, session.taken()),
        basis=basis(budget.rates),
        budget=dict(budget.limits),
        warnings=tuple(budget.rates.warnings),
    )


def stage_cost(record: StageRecord, rates: Rates) -> tuple[StageCost, dict[str, Figure]]:
    """Return one stage's row and its cost; the cost of a cached stage is that of its original computation."""
    ran = record.cache == "hit" or bool(record.used)
    cost = cost_of(record.used, rates) if ran else nothing_known("it did not run")
    row = StageCost(
        stage=record.display_name,
        state=record.state,
        cache=record.cache,
        ran=ran,
        cost=Cost.model_validate(cost),
        used=dict(record.used),
    )
    return row, cost


def billed(budget: RunBudget, useds: Iterable[Used]) -> Billed:
    """Return the price of the whole machine for the run's wall-clock time; its stages are busy for less, unless several
    machines compute them."""
    clock, computed = (time.monotonic() - budget.opened) / 3600, machine_hours(useds)
    hours = measured(max(clock, computed), "the run's wall clock" if clock >= computed else "the hours of all machines")
    dollars = {}
    for market in ("on-demand", "spot"):
        price = budget.rates.dollars_per_hour(market)
        by = "no price: set costs.instance and costs.region" if price is None else f"hours x {price:g} $ ({market})"
        dollars[f"dollars_{market.replace('-', '_')}"] = scaled(hours, price, by)
    return Billed.model_validate({"hours": hours, **dollars})


def basis(rates: Rates) -> Basis:
    """Return the rates behind the costs, with the date and source of prices."""
    price = rates.price
    return Basis(
        market=rates.market,
        instance=price.instance if price else None,
        region=price.region if price else rates.grid or None,
        kg_per_kwh=rates.kg_per_kwh,
        grid=rates.grid or None,
        pue=rates.pue,
        prices=price.model_dump(mode="json", include={"on_demand", "spot", "as_of", "source"}) if price else None,
    )


def ancestors_of(recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """Return the candidates behind each candidate that is made from another one, the nearest first."""
    known = {one.name: one for one in recipe.planned}
    found = {name: tuple(other.name for other in origins_of(one, known)) for name, one in known.items()}
    return {name: behind for name, behind in found.items() if behind}


def costs_of_candidates(
    names: Sequence[str], session: Session, ancestors: Mapping[str, Sequence[str]] = NO_ANCESTORS
) -> dict[str, Cost]:
    """Return by candidate the cost of its own stages, cached or not, and separately that of the shared stages that
    they depend on, and of the ``ancestors`` that it is made from."""
    makers = {record.artifact.sha256: record for record in reversed(session.records) if record.artifact is not None}
    return {name: candidate_cost(name, session, makers, ancestors.get(name, ())) for name in names}


def candidate_cost(name: str, session: Session, makers: Mapping[str, StageRecord], ancestors: Sequence[str]) -> Cost:
    """Return the cost of one candidate."""
    own = [record for record in session.records if record.artifact is not None and is_own(record, name)]
    seen = {record.number for record in own}
    others = list(behind([record for record in own if record.kind not in JUDGING], makers, seen))
    earlier = [record for record in others if any(is_own(record, ancestor) for ancestor in ancestors)]
    shared = [record for record in others if record not in earlier]
    beside = {"shared": shared} | ({"ancestors": earlier} if ancestors else {})
    parts = {
        part: {**cost_of_stages(some, own, session.rates), "stages": sorted(record.display_name for record in some)}
        for part, some in beside.items()
    }
    return Cost.model_validate({**cost_of_stages(own, own, session.rates), **parts})


def cost_of_stages(records: Sequence[StageRecord], own: Sequence[StageRecord], rates: Rates) -> dict[str, Figure]:
    """Return the summed cost of some stages; unknown if the candidate has no stages of its ``own``."""
    return sum_of(cost_of(record.used, rates) for record in records) if own else nothing_known("no stage has this name")


def is_own(record: StageRecord, name: str) -> bool:
    """Return whether a stage is one candidate's own: its label is the candidate's name, or it trains the teacher."""
    if record.kind == "export":
        return name == f"{record.label}{EXPORT_SUFFIXES.get(record.name, '')}"
    if name == "teacher":
        return record.label == "teacher" or (record.name, record.label) == ("finetune-teacher", "")
    return record.label == name or record.label.startswith(f"{name} ")


def behind(records: Sequence[StageRecord], makers: Mapping[str, StageRecord], seen: set[int]) -> Iterator[StageRecord]:
    """Yield all stages that the given ones depend on, directly or not, by the digests of their inputs."""
    for record in records:
        for digest in inputs_of([record.explanation]):
            maker = makers.get(digest)
            if maker is not None and maker.number not in seen:
                seen.add(maker.number)
                yield maker
                yield from behind([maker], makers, seen)


def planned_cost(record: StageRecord, rates: Rates) -> dict[str, Figure]:
    """Return the estimated cost of a planned stage; for a cached one, the cost that it saves."""
    if record.cache == "hit":
        return cost_of(record.used, rates)
    return (
        foreseen(cost_of(record.likely, rates))
        if record.likely
        else nothing_known("no earlier stage of this kind with a model of this size")
    )
