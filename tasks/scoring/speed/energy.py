"""The energy of a machine in kWh, and the grid's emissions for it.

Paper: Strubell, Ganesh, McCallum 2019, "Energy and Policy Considerations for Deep Learning in NLP", arXiv:1906.02243.
Its table gives kWh including the overhead of a data centre (1.58 times the machine's energy) and multiplies them by
0.954 lb of CO2e. Here kWh are the machine's own energy, and the overhead (``pue``) is applied with the grid's factor;
the table is reproduced with ``pue=1``.
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
    """Return the grid's emissions in kg of CO2e for the energy of a machine and the overhead of its data centre."""
    return kwh * pue * kg_per_kwh


def pounds(kg: float) -> float:
    """Return kg as pounds."""
    return kg / POUND


def cpu_joules(*, cpu_seconds: float, held_seconds: float, rest_watts: float, load_watts: float) -> float:
    """Return an estimate of the energy of cores in joules: power at rest for the time that they were held, and the
    additional power under load for their CPU seconds."""
    return held_seconds * rest_watts + cpu_seconds * (load_watts - rest_watts)


def memory_joules(*, peak_bytes: float, seconds: float, watts_per_gb: float) -> float:
    """Return an estimate of the energy of memory in joules, assuming that the peak was in use all the time."""
    return peak_bytes / GIB * watts_per_gb * seconds
