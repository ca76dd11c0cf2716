"""The meter: a real child process's own CPU seconds, shares that add up, and counters that start again at 0."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.engine import environment as engine_environment
from tasks.engine.process import run_engine
from tasks.engine.sources import sources_folder
from tasks.errors import EngineError
from tasks.ports.machine import Gpu
from tasks.stage import meter as meters
from tasks.stage.meter import Counters, Gpus, Machine, busy_seconds, packages, visible

WORKING = """
import json, os, sys, time
from pathlib import Path
from tasks.engine.job import serve

def busy(job):
    if os.fork() == 0:
        burn(job.values["child"])
        os._exit(0)
    os.wait()
    burn(job.values["own"])
    if job.values["fails"]:
        raise RuntimeError("on purpose")
    (job.output / "made.txt").write_text("made")
    return {"made": 1}

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

sys.exit(serve({"busy": busy}, sys.argv[1]))
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a real engine that computes for so long, and so long in a child of its own; return what it said."""
    (tmp_path / "working.py").write_text(textwrap.dedent(WORKING))
    monkeypatch.setattr(engine_environment, "module_path", lambda: f"{sources_folder()}{os.pathsep}{tmp_path}")

    def run(**knobs: Any) -> list[dict[str, Any]]:
        said: list[dict[str, Any]] = []
        order = {
            "job": "busy",
            "knobs": {"fails": False, **knobs},
            "inputs": {},
            "lists": {},
            "output": str(tmp_path / "out"),
            "threads": 1,
        }
        try:
            assert asyncio.run(run_engine("working", order, tmp_path, said.append)) == {"made": 1}
        except EngineError:
            assert knobs["fails"]
        return said

    return run


@pytest.mark.parametrize("fails", [False, True])
def test_a_process_says_its_own_cpu_seconds_and_its_childrens_also_when_it_fails(engine: Any, fails: bool) -> None:
    said = engine(own=0.2, child=0.3, fails=fails)
    (used,) = (event for event in said if event["event"] == "used")
    assert used["cpu_seconds"] >= 0.5 and used["gpus"] == 0
    assert 2**20 < used["peak_bytes"] < 2**34, "a Python takes megabytes, whatever the system's unit is"
    assert said[-1]["event"] in ("result", "error")


def test_shares_of_the_machine_add_up_to_the_time_that_passed() -> None:
    machine = Machine()
    first = machine.begin(1, 1)
    time.sleep(0.05)
    second = machine.begin(3, 1)
    time.sleep(0.05)
    machine.end(first)
    machine.end(second)
    assert first.machine_seconds + second.machine_seconds == pytest.approx((second.ended or 0) - first.started)
    both = (first.ended or 0) - second.started
    assert first.machine_seconds == pytest.approx(second.started - first.started + both / 4)
    assert machine.meters == []


@pytest.mark.parametrize(("gpus", "held", "part"), [(4, (8, 1), 1 / 4), (4, (8, 2), 1 / 2), (0, (4, 1), 4 / 16)])
def test_a_stage_of_a_pool_has_the_part_of_the_machine_that_it_holds(
    gpus: int, held: tuple[int, int], part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four that ran beside each other in processes of their own were charged four machines."""
    there = [Gpu(str(number), (f"GPU-{number}",), "NVIDIA A10G") for number in range(gpus)]
    monkeypatch.setattr(meters, "used_gpus", lambda: there)
    monkeypatch.setattr(meters, "available_cores", lambda: 16)
    machine = Machine(shared=True)
    cores, processes = held
    one = machine.begin(cores, processes, cores)
    time.sleep(0.02)
    machine.end(one)
    seconds = (one.ended or 0) - one.started
    assert one.machine_seconds == pytest.approx(part * seconds)
    machine.__dict__.update(gpu="NVIDIA A10G" if gpus else None, gpus=Gpus(()))
    one.hear({"cpu_seconds": 1.0, "peak_bytes": 1, "gpus": processes if gpus else 0})
    assert one.used(machine, machine.looked)["gpu_seconds"] == pytest.approx(
        bool(gpus) * processes * seconds, abs=0.002
    )


def test_what_no_engine_said_stays_unknown() -> None:
    machine = Machine()
    meter = machine.begin(2, 2)
    machine.end(meter)
    used = meter.used(machine, machine.looked)
    assert used["cpu_seconds"] is None and used["peak_bytes"] is None and used["cpu_joules"] is None
    assert used["held_seconds"] == pytest.approx(4 * used["seconds"], abs=0.01)
    assert json.loads(json.dumps(used, allow_nan=False)) == used


def zone(folder: Path, name: str, joules: float, limit: float = 1000.0) -> Path:
    """Write a zone as the kernel shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in (
        ("name", name),
        ("energy_uj", str(int(joules * 1e6))),
        ("max_energy_range_uj", str(int(limit * 1e6))),
    ):
        (folder / file).write_text(text + "\n")
    return folder


def test_packages_are_counted_and_their_parts_are_not(tmp_path: Path) -> None:
    for number, name in enumerate(("package-0", "package-1")):
        zone(tmp_path / f"intel-rapl:{number}", name, 10)
        zone(tmp_path / f"intel-rapl:{number}:0", "core", 5)
        zone(tmp_path / f"intel-rapl:{number}:1", "dram", 1)
    assert [path.name for path in packages(tmp_path)] == [
        "intel-rapl:0",
        "intel-rapl:0:1",
        "intel-rapl:1",
        "intel-rapl:1:1",
    ]


def test_a_counter_that_starts_again_does_not_run_backwards(tmp_path: Path) -> None:
    place = zone(tmp_path / "intel-rapl:0", "package-0", 990)
    counters = Counters(packages(tmp_path))
    zone(place, "package-0", 15)
    assert counters.since() == pytest.approx(25)
    (place / "energy_uj").unlink()
    assert counters.since() is None, "what cannot be read is unknown, not 0"


@pytest.mark.skipif(busy_seconds() is None, reason="the system does not tell what all processes used")
def test_a_stage_gets_its_part_of_the_package_by_its_part_of_all_cpu_seconds(tmp_path: Path) -> None:
    place = zone(tmp_path / "intel-rapl:0", "package-0", 0)
    machine = Machine(tmp_path)
    meter = machine.begin(1, 1)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    zone(place, "package-0", 100)
    machine.end(meter)
    meter.hear({"cpu_seconds": 0.15, "peak_bytes": 1, "gpus": 0})
    assert meter.busy is not None and meter.busy > 0.15
    assert meter.used(machine, machine.looked)["cpu_joules"] == pytest.approx(100 * 0.15 / meter.busy, rel=0.01)


def test_an_unreadable_counter_is_no_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "nothing")
    meter = machine.begin(1, 1)
    machine.end(meter)
    assert meter.cpu_joules is None and meter.gpu_joules is None


NVML = """
class NVMLError(Exception):
    pass

counters = {0: 1000, 1: 5000}

def nvmlInit():
    pass

def nvmlDeviceGetCount():
    return 2

def nvmlDeviceGetHandleByIndex(number):
    return number

def nvmlDeviceGetTotalEnergyConsumption(handle):
    if handle not in counters:
        raise NVMLError("not supported")
    return counters[handle]
"""


def test_gpus_count_their_own_millijoules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library here is a stand-in: no machine of these tests has a GPU."""
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)  # a library may have loaded the real one
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    gpus = Gpus()
    import pynvml

    pynvml.counters.update({0: 99_000, 1: 7500})
    assert gpus.since() == pytest.approx(2.5), "another's GPU is not ours"
    pynvml.counters.clear()
    assert gpus.since() is None, "an older GPU has no counter"
    del sys.modules["pynvml"]


def test_two_stages_on_one_gpu_share_its_joules(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.__dict__.update(gpu="Tesla T4", gpus=Ticking())
    first, second = machine.begin(1, 1), machine.begin(1, 1)
    for meter in (first, second):
        meter.hear({"cpu_seconds": 1.0, "peak_bytes": 1, "gpus": 1})
    machine.end(second)
    machine.end(first)
    joules = [meter.used(machine, machine.looked)["gpu_joules"] for meter in (first, second)]
    assert joules == [10 + 5 + 10, 5]
    unsaid = machine.begin(1, 1)
    machine.end(unsaid)
    used = unsaid.used(machine, machine.looked)
    assert used["gpus"] is None and used["gpu_seconds"] is None, (
        "whether it used the GPU is not known, and unknown is not 0"
    )


class Ticking:
    """GPUs that draw 10 joules between any two looks."""

    def since(self) -> float:
        return 10.0


def test_gpus_of_others_are_not_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, found in (("", [0, 1, 2]), ("2,0", [2, 0]), ("GPU-uuid", [0, 1, 2]), ("7", [0, 1, 2])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert visible(3) == found
