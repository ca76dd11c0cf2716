"""The cost of a stage in seconds, kWh, CO2e and dollars, computed from the meter's record (``used``) and the rates of
the run.

The meter's record is taken while a stage runs and is stored with its result; rates are looked up when the ledger is
written. So a result computed by another worker, or a year ago, is priced at today's rates, and figures that were not
recorded stay unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tasks.contracts import Used
from tasks.scoring.costs.figures import Figure, estimated, measured, scaled, total, unknown
from tasks.scoring.costs.rates import Rates
from tasks.scoring.speed.energy import JOULES, cpu_joules, emitted_kg, kwh_of, memory_joules, pounds

PARTS = ("seconds", "gpu_seconds", "kwh", "co2e_kg", "co2e_lb", "dollars_on_demand", "dollars_spot")
NOT_NOTED = "not recorded when it was computed"


def cost_of(used: Used, rates: Rates) -> dict[str, Figure]:
    """Return the cost of one stage."""
    kwh = energy_of(used, rates)
    kg = emissions_of(kwh, rates)
    return {
        "seconds": noted(used, "seconds", "wall clock"),
        "gpu_seconds": noted(
            used, "gpu_seconds", "GPUs in use, divided among parallel stages" if number(used, "gpus") else "no GPU used"
        ),
        "kwh": kwh,
        "co2e_kg": kg,
        "co2e_lb": scaled(kg, pounds(1.0), kg["by"]),
        **{f"dollars_{market.replace('-', '_')}": dollars_of(used, rates, market) for market in ("on-demand", "spot")},
    }


def sum_of(costs: Iterable[Mapping[str, Figure]]) -> dict[str, Figure]:
    """Return the summed cost of several stages."""
    all_of = list(costs)
    return {part: total(cost[part] for cost in all_of) for part in PARTS}


def foreseen(cost: Mapping[str, Figure]) -> dict[str, Figure]:
    """Return the cost of a similar stage as an estimate of a future stage's cost."""
    return {
        part: figure
        if figure["value"] is None
        else estimated(figure["value"], "as for earlier stages of the same kind")
        for part, figure in cost.items()
    }


def headline_figures(cost: Mapping[str, Figure], market: str) -> dict[str, float]:
    """Return the figures of a cost by which candidates are compared, under the short names shown in MLflow. Unknown
    figures are left out."""
    named = {"kwh": "kwh", "co2e_kg": "co2e_kg", "dollars": f"dollars_{market.replace('-', '_')}"}
    values = {name: cost[part]["value"] for name, part in named.items() if part in cost}
    return {name: value for name, value in values.items() if value is not None}


def nothing_known(by: str) -> dict[str, Figure]:
    """Return a cost whose figures are all unknown."""
    return {part: unknown(by) for part in PARTS}


def energy_of(used: Used, rates: Rates) -> Figure:
    """Return the kWh drawn for a stage by the processor, the memory and the GPUs."""
    return total([processor_kwh(used, rates), *([gpu_kwh(used, rates)] if number(used, "gpus") != 0 else [])])


def processor_kwh(used: Used, rates: Rates) -> Figure:
    """Return the processor's energy: from its own counter (RAPL), else estimated from CPU seconds and watts, plus
    memory."""
    counted, seconds, load = number(used, "cpu_joules"), number(used, "seconds"), number(used, "cpu_seconds")
    if counted is not None:
        return measured(kwh_of(counted), "RAPL of the whole package, times this stage's share of all CPU seconds")
    held = number(used, "held_seconds")
    row = rates.drawn_by("cpu", str(used.get("cpu", "")))
    if seconds is None or held is None or (row is None and rates.core_watts is None):
        return unknown(NOT_NOTED if seconds is None or held is None else "unknown power of this processor")
    watts = rates.core_watts if rates.core_watts is not None else row.load if row else 0.0
    rest = (row.rest or 0.0) if row and rates.core_watts is None else 0.0
    joules = cpu_joules(
        cpu_seconds=held if load is None else load, held_seconds=held, rest_watts=rest, load_watts=watts
    )
    memory, peak = rates.drawn_by("memory", ""), number(used, "peak_bytes")
    in_memory = (
        memory_joules(peak_bytes=peak, seconds=seconds, watts_per_gb=memory.load)
        if memory and peak is not None
        else 0.0
    )
    sure = (
        "the recipe's"
        if rates.core_watts is not None
        else "by model"
        if row and row.name
        else "default, within a factor of 2.5"
    )
    return estimated(
        (joules + in_memory) / JOULES,
        f"{'cores in use' if load is None else 'CPU seconds'} x {watts:g} W per core ({sure}), and memory",
    )


def inference_joules(latency_ms: float | None, threads: int, cpu: str, rates: Rates) -> Figure:
    """Return the processor's energy for one inference in joules: an estimate, its latency times a constant."""
    row = rates.drawn_by("cpu", cpu)
    watts = rates.core_watts if rates.core_watts is not None else row.load if row else None
    if latency_ms is None or not math.isfinite(latency_ms) or watts is None:
        return unknown("no latency was measured" if watts is not None else "unknown power of this processor")
    held = f"{threads} {'thread' if threads == 1 else 'threads'}"
    return estimated(latency_ms / 1000 * threads * watts, f"latency times a constant ({held} x {watts:g} W per core)")


def gpu_kwh(used: Used, rates: Rates) -> Figure:
    """Return the energy of the GPUs: from their own counter (NVML), else their seconds at full load, which is an upper
    bound."""
    counted, seconds, model = number(used, "gpu_joules"), number(used, "gpu_seconds"), str(used.get("gpu") or "")
    if counted is not None:
        return measured(kwh_of(counted), "NVML's energy counter, divided among parallel stages")
    row = rates.drawn_by("gpu", model)
    watts = rates.gpu_watts if rates.gpu_watts is not None else row.load if row else None
    if seconds is None or watts is None:
        return unknown(NOT_NOTED if seconds is None else f"unknown power of the GPU {model or 'without a name'}")
    return estimated(kwh_of(seconds * watts), f"GPU seconds x {watts:g} W (full load)")


def emissions_of(kwh: Figure, rates: Rates) -> Figure:
    """Return the kg of CO2e emitted for some kWh."""
    if rates.kg_per_kwh is None:
        return unknown("no grid factor: set costs.region")
    factor = emitted_kg(1.0, kg_per_kwh=rates.kg_per_kwh, pue=rates.pue)
    return scaled(kwh, factor, f"kWh x {rates.kg_per_kwh:g} kg ({rates.grid}) x {rates.pue:g} (PUE)")


def dollars_of(used: Used, rates: Rates, market: str) -> Figure:
    """Return a stage's share of the instance's price: for the machine seconds attributed to it among the stages that
    ran at the same time."""
    price, seconds = rates.dollars_per_hour(market), number(used, "machine_seconds")
    if price is None:
        return unknown("no price: set costs.instance and costs.region")
    if seconds is None:
        return unknown(NOT_NOTED)
    return estimated(seconds / 3600 * price, f"share of the machine's hours x {price:g} $ ({market})")


def noted(used: Used, name: str, by: str) -> Figure:
    """Return a recorded measurement, or an unknown figure."""
    value = number(used, name)
    return unknown(NOT_NOTED) if value is None else measured(value, by)


def number(used: Used, name: str) -> float | None:
    """Return a number from a manifest, or None unless it is finite and not negative: the manifest may come from an
    untrusted source."""
    value = used.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        return None
    return float(value)
