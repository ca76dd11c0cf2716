"""The hardware of this machine: its class, which is part of keys, and its names, for tables and costs.

Two machines are in the same class if torch, oneDNN, MKL, OpenBLAS and ONNX Runtime choose the same kernels. The class
of a processor depends on its instruction set and its vendor (MKL uses other kernels on AMD), the class of a GPU on its
model, because cuBLAS chooses by architecture and by the number of multiprocessors. ``python -m tasks.ports.machine``
prints the class of this machine.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from tasks.errors import StoreError

CPUINFO = Path("/proc/cpuinfo")
DEVICES = Path("/dev")
DRIVER = Path("/proc/driver/nvidia/gpus")
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
LEVELS = {
    "amx": {"avx512f", "amx_bf16"},
    "avx512-bf16": {"avx512f", "avx512_bf16"},
    "avx512-vnni": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx2-vnni": {"avx2", "fma", "avx_vnni"},
    "avx2": {"avx2", "fma"},
    "avx": {"avx"},
}
"""Instruction sets by which x86 kernels are chosen, newest first."""
VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "amd"}
ARM_FEATURES = ("asimddp", "bf16", "i8mm", "sve", "sve2")
OTHER_NUMBERS = re.compile(r"@.*|\bversion [\d.]+|\b\d+-core", re.IGNORECASE)
"""Numbers in a processor's name that do not tell its model: a clock, a program's version, a count of cores."""
CLASS = r"(cpu|cuda)-[a-z0-9.+-]+"
"""Pattern of a class."""


class Gpu(NamedTuple):
    """A GPU in the driver's terms: number, UUIDs (with those of its MIG slices), model (with the slices' sizes)."""

    number: str
    names: tuple[str, ...]
    model: str


def device_class() -> str:
    """Return the class of the device for models on this machine, without importing torch; raises StoreError if a GPU
    cannot be identified."""
    return gpu_class() or cpu_class()


def gpu_class() -> str | None:
    """Return the class of the GPUs that stages use, or None if they use none."""
    models = sorted({slug(gpu.model.removeprefix("NVIDIA ").removeprefix("Tesla ")) for gpu in used_gpus()})
    return f"cuda-{'+'.join(models)}" if models else None


def cpu_class() -> str:
    """Return the class of this processor, such as ``cpu-avx512-bf16-amd``; on ARM by its part number, on a Mac by its
    chip."""
    machine, info = platform.machine().lower(), fields()
    if platform.system() == "Darwin":
        return f"cpu-{slug(mac_chip())}"
    if "flags" in info:
        flags = set(info["flags"].split())
        level = next((name for name, needed in LEVELS.items() if needed <= flags), "x86")
        vendor = info.get("vendor_id", "")
        return f"cpu-{level}-{VENDORS.get(vendor, slug(vendor) or 'unknown')}"
    if "Features" in info:
        flags = set(info["Features"].split())
        part = [info.get(name, "unknown") for name in ("CPU implementer", "CPU part")]
        return f"cpu-{slug('-'.join([machine, *part, *(name for name in ARM_FEATURES if name in flags)]))}"
    return f"cpu-{slug(f'{machine} {platform.system()}')}"


def hardware() -> str:
    """Return a description of this machine for speed measurements."""
    return f"{cpu_model()} x {os.cpu_count()} {device_class()}"


def cpu_model() -> str:
    """Return the processor's name; where it names no model, as in some virtual machines, with the numbers of its family
    and model, by which its speeds differ."""
    info = fields()
    name = info.get("model name") or (mac_chip() if platform.system() == "Darwin" else "unknown")
    if "cpu family" not in info or "model" not in info or re.search(r"\d", re.sub(OTHER_NUMBERS, "", name)):
        return name
    return f"{name} family {info['cpu family']} model {info['model']}"


def available_cores() -> int:
    """Return the number of cores that this process may use; the machine may have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory() -> int:
    """Return the memory of this machine in bytes, or of its container if that has less."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([pages, *(int(said) for said in map(limit_in, CGROUP_LIMITS) if said.isdecimal())])


def limit_in(path: Path) -> str:
    """Return the text of a limit of this process's control group; empty if there is none."""
    with suppress(OSError):
        return path.read_text().strip()
    return ""


def gpu_model() -> str | None:
    """Return the driver's name of the GPU that stages use, or None if they use none."""
    return next((gpu.model for gpu in used_gpus()), None)


def fields() -> dict[str, str]:
    """Return Linux's information about the first core, by name."""
    pairs = (line.split(":", 1) for line in cpuinfo().split("\n\n")[0].splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


@cache
def cpuinfo() -> str:
    """Return Linux's information about the processor; empty on other systems."""
    return CPUINFO.read_text() if CPUINFO.is_file() else ""


@cache
def mac_chip() -> str:
    """Return the name of a Mac's chip."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], check=True, capture_output=True, text=True, timeout=20
        ).stdout.strip()
    return "unknown mac"


def used_gpus() -> list[Gpu]:
    """Return the GPUs that torch can see and may use on this machine."""
    if os.environ.get("LIMBECK_DEVICE") == "cpu" or not has_gpu_driver() or not torch_can_use_gpus():
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return gpus_here()
    chosen = [word.strip() for word in given.split(",")]
    return [
        gpu
        for gpu in gpus_here()
        if any(word == gpu.number or (word[:4] in ("GPU-", "MIG-") and by_name(gpu, word)) for word in chosen)
    ]


def by_name(gpu: Gpu, word: str) -> bool:
    """Return whether a UUID of a GPU, or of one of its slices, starts with ``word``."""
    return any(name.startswith(word) for name in gpu.names)


def has_gpu_driver() -> bool:
    """Return whether an NVIDIA GPU is available: in a container with any number, or the GPU of Windows in WSL."""
    return any(re.fullmatch(r"nvidia\d+", path.name) for path in DEVICES.glob("nvidia*")) or (DEVICES / "dxg").exists()


def torch_can_use_gpus() -> bool:
    """Return whether the installed torch may be built for GPUs; if its version does not say so, return True and leave
    the test to an engine."""
    with suppress(PackageNotFoundError):
        return not version("torch").endswith("+cpu")
    return True


@cache
def gpus_here() -> list[Gpu]:
    """Return the GPUs that the driver lists; raises StoreError if it lists none, because a key needs a device class."""
    found = listed(driver_list())
    if not found and not (DEVICES / "dxg").exists():
        raise StoreError(
            "there is a GPU, and neither nvidia-smi nor /proc reports its model, which is part of keys; install "
            "nvidia-smi (in containers NVIDIA_DRIVER_CAPABILITIES=compute,utility), "
            "or set LIMBECK_DEVICE=cpu"
        )
    return found


def driver_list() -> str:
    """Return the GPUs in the format of ``nvidia-smi -L``, from the driver's own files if there is no nvidia-smi."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True, timeout=20).stdout
    lines = []
    for number, file in enumerate(sorted(DRIVER.glob("*/information"))):
        known = dict(re.findall(r"^(Model|GPU UUID):\s*(.+?)\s*$", file.read_text(), re.MULTILINE))
        lines.append(f"GPU {number}: {known.get('Model', 'unknown')} (UUID: {known.get('GPU UUID', '')})")
    return "\n".join(lines)


def listed(text: str) -> list[Gpu]:
    """Parse ``nvidia-smi -L``: one line for each GPU, and below it one line for each of its MIG slices."""
    found: list[Gpu] = []
    for line in text.splitlines():
        if whole := re.match(r"GPU (\d+): (.+?) \(UUID: (.*?)\)", line):
            found.append(Gpu(whole[1], (whole[3],), whole[2]))
        elif (slice_ := re.match(r"\s+MIG (\S+)\s.*\(UUID: (.*?)\)", line)) and found:
            gpu = found.pop()
            model = gpu.model if f" {slice_[1]}" in gpu.model else f"{gpu.model} {slice_[1]}"
            found.append(Gpu(gpu.number, (*gpu.names, slice_[2]), model))
    return found


def slug(text: str) -> str:
    """Return a name in lower-case letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


if __name__ == "__main__":
    print(device_class())
