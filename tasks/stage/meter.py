"""The meter of a stage: the resources of the machine that it uses while it is computed.

Wall seconds come from the clock. Each engine reports its CPU seconds, peak memory and GPUs in use before it ends.
Energy is read from the available counters, RAPL for the processor and NVML for GPUs; without a counter it is not
estimated here, but by the ledger from these facts. Stages run in parallel, so each gets a share of the machine by the
cores that it holds, and the shares at any moment add up to one, on a worker of a pool over all of its processes. Other
programs on a shared machine are not known here: RAPL's joules are divided by the CPU seconds of all processes, a GPU's
are not.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.contracts import Used
from tasks.engine.events import UsedEvent
from tasks.ports.machine import available_cores, cpu_model, gpu_class, gpu_model, used_gpus

POWERCAP = Path("/sys/class/powercap")
MICRO, MILLI = 1e-6, 1e-3


@dataclass
class Meter:
    """Resources that one stage has used so far."""

    threads: int
    processes: int
    started: float
    cores: int = 1
    """Cores that the stage holds."""
    machine_seconds: float = 0.0
    gpu_joules: float | None = 0.0
    cpu_joules: float | None = 0.0
    busy: float | None = 0.0
    """CPU seconds of all processes on the machine."""
    said: list[UsedEvent] = field(default_factory=list)
    ended: float | None = None

    def hear(self, event: UsedEvent) -> None:
        """Record an engine's report of its resources."""
        self.said.append(event)

    def used(self, machine: Machine, now: float) -> Used:
        """Return all figures as plain values; None for unknown ones."""
        seconds = (self.ended or now) - self.started
        cpu_seconds = sum(event["cpu_seconds"] for event in self.said) if self.said else None
        gpus = sum(event["gpus"] for event in self.said) if self.said or not machine.gpu else None
        # of a machine that other processes use, too, the stage has its part of all GPUs
        divided = machine.shared_gpus or gpus if gpus else gpus
        return {
            "seconds": round(seconds, 3),
            "machine_seconds": round(self.machine_seconds, 3),
            "held_seconds": round(seconds * self.cores, 3),
            "cpu_seconds": rounded(cpu_seconds),
            "peak_bytes": sum(event["peak_bytes"] for event in self.said) if self.said else None,
            "threads": self.threads,
            "processes": self.processes,
            "cpu": cpu_model(),
            "gpu": machine.gpu if gpus else None,
            "gpus": gpus,
            "gpu_seconds": None if divided is None else rounded(self.machine_seconds * divided),
            "gpu_joules": rounded(self.gpu_joules) if gpus else None,
            "cpu_joules": rounded(self.own_share(cpu_seconds)),
        }

    def own_share(self, cpu_seconds: float | None) -> float | None:
        """Return the stage's part of the processor's energy, in proportion to its part of all CPU seconds."""
        if self.cpu_joules is None or not self.busy or cpu_seconds is None:
            return None
        return self.cpu_joules * min(1.0, cpu_seconds / self.busy)


class Machine:
    """The machine as the stages of one run share it. Every start, end or reading closes a time slice, which is divided
    among the running stages.

    Where other processes compute stages beside this one (``shared``, as a worker of a pool has it), a stage has the
    part of the machine that it holds: of its GPUs, or of its cores where it has none.
    """

    def __init__(self, powercap: Path = POWERCAP, *, shared: bool = False) -> None:
        self.shared = shared
        self.meters: list[Meter] = []
        self.looked = time.monotonic()
        self.packages = Counters(packages(powercap))
        self.busy_before = busy_seconds()

    @cached_property
    def gpu(self) -> str | None:
        """The name of the GPU that stages use here."""
        return gpu_model()

    @cached_property
    def gpus(self) -> Gpus:
        """The energy counters of the GPUs; empty if stages use none."""
        return Gpus() if gpu_class() else Gpus(())

    @cached_property
    def shared_gpus(self) -> int:
        """GPUs of the machine, of which other processes may hold some; 0 where there are no others, or no GPUs."""
        return len(used_gpus()) if self.shared else 0

    @cached_property
    def whole(self) -> int:
        """The shared GPUs or cores of the machine; 0 where no other processes compute stages."""
        return self.shared_gpus or (available_cores() if self.shared else 0)

    def held(self, meter: Meter) -> int:
        """Return the GPUs that a stage holds, or the cores."""
        return meter.processes if self.shared_gpus else meter.cores

    def begin(self, threads: int, processes: int, cores: int | None = None) -> Meter:
        """Start to measure a stage that holds so many cores; by default, one for each thread."""
        self.close_slice()
        meter = Meter(threads, processes, self.looked, cores or threads * processes)
        self.meters.append(meter)
        return meter

    def end(self, meter: Meter) -> None:
        """Stop measuring a stage."""
        self.close_slice()
        meter.ended = self.looked
        self.meters.remove(meter)

    def close_slice(self) -> None:
        """Close a time slice: divide its seconds and its joules among the running stages."""
        before, self.looked = self.looked, time.monotonic()
        package, gpu, busy = self.packages.since(), self.gpus.since(), busy_seconds()
        whole = max(self.whole, sum(map(self.held, self.meters)))
        for meter in self.meters:
            share = self.held(meter) / whole
            meter.machine_seconds += (self.looked - before) * share
            meter.gpu_joules = add_known(meter.gpu_joules, None if gpu is None else gpu * share)
            # Not divided here: at the end, every stage gets its part by its CPU seconds, as do other programs on this
            # machine.
            meter.cpu_joules = add_known(meter.cpu_joules, package)
            meter.busy = add_known(
                meter.busy, None if busy is None or self.busy_before is None else busy - self.busy_before
            )
        self.busy_before = busy


class Counters:
    """Energy counters in files, in microjoules, each of which wraps around to 0 at its range."""

    def __init__(self, zones: list[Path]) -> None:
        self.ranges = {zone: readable(zone / "max_energy_range_uj") for zone in zones}
        self.before = {zone: readable(zone / "energy_uj") for zone in zones}

    def since(self) -> float | None:
        """Return the joules since the last reading, or None if a counter is missing or cannot be read."""
        now = {zone: readable(zone / "energy_uj") for zone in self.before}
        before, self.before = self.before, now
        if not now or None in (*now.values(), *before.values()):
            return None
        return (
            sum(
                counter_difference(before[zone] or 0, value or 0, self.ranges[zone] or 0) for zone, value in now.items()
            )
            * MICRO
        )


def counter_difference(before: int, now: int, limit: int) -> int:
    """Return the increase of a counter that may have wrapped around once."""
    return now - before if now >= before else now + limit - before


def packages(powercap: Path) -> list[Path]:
    """Return the RAPL zones of whole packages, and of their memory if it is counted separately."""
    zones = sorted(powercap.glob("intel-rapl:*"))  # AMD's have this name, too
    return [zone for zone in zones if named(zone).startswith("package") or named(zone) == "dram"]


def named(zone: Path) -> str:
    """Return a zone's name; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return (zone / "name").read_text().strip()
    return ""


def readable(file: Path) -> int | None:
    """Return the number in a file; None if the file is missing, or only root may read it."""
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return None


class Gpus:
    """NVML's energy counters, of GPUs since Volta; none without the optional ``nvidia-ml-py``."""

    def __init__(self, handles: tuple[Any, ...] | None = None) -> None:
        self.handles = open_gpus() if handles is None else handles
        self.before = self.joules()

    def since(self) -> float | None:
        """Return the joules of all GPUs since the last reading, or None."""
        before, self.before = self.before, self.joules()
        return None if self.before is None or before is None else self.before - before

    def joules(self) -> float | None:
        """Return the sum of the counters, in joules; None if there are none."""
        if not self.handles:
            return None
        import pynvml

        try:
            return float(sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in self.handles)) * MILLI
        except pynvml.NVMLError:
            return None


def open_gpus() -> tuple[Any, ...]:
    """Return NVML's handles of the GPUs that this process may use."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return tuple(pynvml.nvmlDeviceGetHandleByIndex(number) for number in visible(pynvml.nvmlDeviceGetCount()))
    except Exception:  # no library, no driver, or an incompatible one: then there are no counters, which is no error
        return ()


def visible(count: int) -> list[int]:
    """Return the indices of the GPUs that stages may use, by CUDA_VISIBLE_DEVICES; names that are no numbers count as
    all."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    chosen = [int(word) for word in given.split(",") if word.strip().isdecimal()]
    return [number for number in chosen if number < count] or list(range(count))


def busy_seconds() -> float | None:
    """Return the CPU seconds that all processes of this machine have used since it started."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _waiting, irq, soft = (int(word) for word in fields[:7])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def add_known(so_far: float | None, more: float | None) -> float | None:
    """Add to a figure; a figure that is unknown once stays unknown."""
    return None if so_far is None or more is None else so_far + more


def rounded(value: float | None) -> float | None:
    """Round a figure to 3 decimals; None stays None."""
    return None if value is None else round(value, 3)
