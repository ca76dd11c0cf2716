"""From what a machine did to kWh, and from kWh to what the grid gave off for them.

Paper: Strubell, Ganesh, McCallum 2019, "Energy and Policy Considerations for Deep Learning in NLP", arXiv:1906.02243.
Its table gives kWh with the overhead of a data centre in them (1.58 times what the machine drew) and multiplies them by
0.954 lb of CO2e. Here kWh are what the machine drew, and the overhead (``pue``) comes in with the grid's factor; the
table is reproduced with ``pue=1``.
"""

from __future__ import annotations

JOULES = 3.6e6  # in a kWh
POUND = 0.45359237  # kg, by definition
STRUBELL = 0.954 * POUND  # kg CO2e per kWh: the mean of the grid of the USA, EPA 2018
GIB = 2**30


def kwh_of(joules: float) -> float:
    """Return joules as kWh."""
    return joules / JOULES


def emitted_kg(kwh: float, *, kg_per_kwh: float, pue: float = 1.0) -> float:
    """Return the kg of CO2e that a grid gives off for what a machine drew and its data centre needed beside it."""
    return kwh * pue * kg_per_kwh


def pounds(kg: float) -> float:
    """Return kg as pounds."""
    return kg / POUND


def cpu_joules(*, cpu_seconds: float, held_seconds: float, rest_watts: float, load_watts: float) -> float:
    """Estimate what cores drew: each at rest for as long as it was held, and what load adds to that for as long as it
    computed."""
    return held_seconds * rest_watts + cpu_seconds * (load_watts - rest_watts)


def memory_joules(*, peak_bytes: float, seconds: float, watts_per_gb: float) -> float:
    """Estimate what memory drew, had all of the peak been in use from the start."""
    return peak_bytes / GIB * watts_per_gb * seconds
