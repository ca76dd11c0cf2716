"""The hardware that numbers are made on: its class, which is part of keys, and its names, for tables and costs.

Two machines are of one class where torch, oneDNN, MKL, OpenBLAS and ONNX Runtime choose the same kernels: for a
processor by its instructions and its vendor (MKL goes other ways on AMD), for a GPU by its model, because cuBLAS
chooses by architecture and by the number of multiprocessors. ``python -m tasks.ports.machine`` prints the class of this
machine.
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
LEVELS = {
    "amx": {"avx512f", "amx_bf16"},
    "avx512-bf16": {"avx512f", "avx512_bf16"},
    "avx512-vnni": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx2-vnni": {"avx2", "fma", "avx_vnni"},
    "avx2": {"avx2", "fma"},
    "avx": {"avx"},
}
"""Instructions by which kernels for x86 are chosen, the newest first."""
VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel", "HygonGenuine": "amd"}
ARM_FEATURES = ("asimddp", "bf16", "i8mm", "sve", "sve2")
CLASS = r"(cpu|cuda)-[a-z0-9.+-]+"
"""What a class looks like."""


class Gpu(NamedTuple):
    """A GPU as its driver names it: number, universal names (its slices' too), model (with the slices' sizes)."""

    number: str
    names: tuple[str, ...]
    model: str


def device_class() -> str:
    """Return the class of what models run on here, without importing torch; StoreError where a GPU cannot be told."""
    return gpu_class() or cpu_class()


def gpu_class() -> str | None:
    """Return the class of the GPUs that stages use; None where they use none."""
    models = sorted({slug(gpu.model.removeprefix("NVIDIA ").removeprefix("Tesla ")) for gpu in used_gpus()})
    return f"cuda-{'+'.join(models)}" if models else None


def cpu_class() -> str:
    """Return the class of this processor: ``cpu-avx512-bf16-amd``; by its part on ARM, by its chip on a Mac."""
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
    """Say which machine figures of speed belong to."""
    return f"{cpu_model()} x {os.cpu_count()} {device_class()}"


def cpu_model() -> str:
    """Return the processor's name."""
    return fields().get("model name") or (mac_chip() if platform.system() == "Darwin" else "unknown")


def gpu_model() -> str | None:
    """Return the name of the GPU that stages use here, as its driver gives it; None where they use none."""
    return next((gpu.model for gpu in used_gpus()), None)


def fields() -> dict[str, str]:
    """Return what Linux says of the first core, by name."""
    pairs = (line.split(":", 1) for line in cpuinfo().split("\n\n")[0].splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


@cache
def cpuinfo() -> str:
    """Return what Linux says of the processor; elsewhere nothing."""
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
    """Return the GPUs that torch would see here and may use."""
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
    """Tell whether a GPU, or a slice of it, has a name that begins so."""
    return any(name.startswith(word) for name in gpu.names)


def has_gpu_driver() -> bool:
    """Tell whether a GPU of NVIDIA's may be used here; in a container any of several, or one of Windows."""
    return any(re.fullmatch(r"nvidia\d+", path.name) for path in DEVICES.glob("nvidia*")) or (DEVICES / "dxg").exists()


def torch_can_use_gpus() -> bool:
    """Tell whether the installed torch was built for GPUs; what its version does not say, an engine finds out."""
    with suppress(PackageNotFoundError):
        return not version("torch").endswith("+cpu")
    return True


@cache
def gpus_here() -> list[Gpu]:
    """Return the GPUs as the driver lists them; StoreError where it does not: without a class there is no key."""
    found = listed(driver_list())
    if not found and not (DEVICES / "dxg").exists():
        raise StoreError(
            "there is a GPU here, and neither nvidia-smi nor /proc says which: its model is part of keys; "
            "give this machine nvidia-smi (in containers NVIDIA_DRIVER_CAPABILITIES=compute,utility), "
            "or set LIMBECK_DEVICE=cpu"
        )
    return found


def driver_list() -> str:
    """Return the GPUs as ``nvidia-smi -L`` prints them, from the driver's own files where there is no nvidia-smi."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True, timeout=20).stdout
    lines = []
    for number, file in enumerate(sorted(DRIVER.glob("*/information"))):
        known = dict(re.findall(r"^(Model|GPU UUID):\s*(.+?)\s*$", file.read_text(), re.MULTILINE))
        lines.append(f"GPU {number}: {known.get('Model', 'unknown')} (UUID: {known.get('GPU UUID', '')})")
    return "\n".join(lines)


def listed(text: str) -> list[Gpu]:
    """Read ``nvidia-smi -L``: a line a GPU, and below it one for each of its slices (MIG)."""
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
    """Return a name in small letters, digits, dots and dashes."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


if __name__ == "__main__":
    print(device_class())
