"""Metrics of this machine: the disks that hold data, and the GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from flows.home import Home
from flows.stack.programs import find

MEASURED_FOLDERS = "LIMBECK_METRICS_FOLDERS"
"""The variable with the folders whose disks are measured, joined by colons; by default the home's."""
GPU_FIELDS = ("index", "name", "utilization.gpu", "memory.used", "memory.total", "power.draw", "temperature.gpu")
GPU_METRICS = {
    "utilization.gpu": ("limbeck_gpu_utilization_ratio", "Share of the time in which a GPU computed.", 0.01),
    "memory.used": ("limbeck_gpu_memory_used_bytes", "Memory of a GPU in use.", 2.0**20),
    "memory.total": ("limbeck_gpu_memory_size_bytes", "Memory of a GPU.", 2.0**20),
    "power.draw": ("limbeck_gpu_power_watts", "Power that a GPU draws.", 1.0),
    "temperature.gpu": ("limbeck_gpu_temperature_celsius", "Temperature of a GPU.", 1.0),
}


def disk_metrics() -> Iterator[Metric]:
    """Yield size and free space of the disks that hold data; of two folders on one disk, the first stands for it."""
    free = GaugeMetricFamily("limbeck_disk_free_bytes", "Free bytes of a disk.", labels=["path"])
    size = GaugeMetricFamily("limbeck_disk_size_bytes", "Size of a disk.", labels=["path"])
    named = os.environ.get(MEASURED_FOLDERS, "") or str(Home.from_environment().root)
    seen = set()
    for path in map(Path, named.split(":")):
        place = next(folder for folder in (path, *path.parents) if folder.exists())
        if place.stat().st_dev not in seen:
            seen.add(place.stat().st_dev)
            usage = shutil.disk_usage(place)
            free.add_metric([str(path)], usage.free)
            size.add_metric([str(path)], usage.total)
    yield from (free, size)


def gpu_metrics() -> Iterator[Metric]:
    """Yield the figures of this machine's GPUs as nvidia-smi reads them; nothing on a machine without."""
    tool = find("nvidia-smi")
    if tool is None:
        return
    command = [tool, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    if done.returncode == 0:
        yield from read_gpus(done.stdout)


def read_gpus(table: str) -> Iterator[Metric]:
    """Yield the figures of nvidia-smi's table. A figure that a GPU does not know (``[N/A]``) is left out."""
    rows = [dict(zip(GPU_FIELDS, map(str.strip, line.split(",")), strict=True)) for line in table.splitlines() if line]
    for field, (name, said, unit) in GPU_METRICS.items():
        metric = GaugeMetricFamily(name, said, labels=["gpu", "model"])
        for row in rows:
            if row[field].replace(".", "", 1).isdecimal():
                metric.add_metric([row["index"], row["name"]], float(row[field]) * unit)
        yield metric
