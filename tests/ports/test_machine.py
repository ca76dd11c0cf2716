"""The class of hardware: different where libraries choose other kernels, the same where they do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.errors import StoreError
from tasks.ports import machine
from tasks.ports.machine import CLASS, cpu_class, device_class, gpu_model, listed

HASWELL = "sse4_2 avx f16c fma avx2"
SKYLAKE = f"{HASWELL} avx512f avx512dq avx512cd avx512bw avx512vl"
CASCADE_LAKE = f"{SKYLAKE} avx512_vnni"
COOPER_LAKE = f"{CASCADE_LAKE} avx512_bf16"
SAPPHIRE_RAPIDS = f"{COOPER_LAKE} amx_tile amx_int8 amx_bf16"
ALDER_LAKE = f"{HASWELL} avx_vnni"
H200 = "GPU 0: NVIDIA H200 (UUID: GPU-11111111-aaaa)\n"
SLICED = f"{H200}  MIG 1g.18gb     Device  0: (UUID: MIG-2222)\n  MIG 1g.18gb     Device  1: (UUID: MIG-3333)\n"
MIXED = f"{H200}GPU 1: Tesla T4 (UUID: GPU-44444444-bbbb)\n"


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Put the functions on another machine: its processor, its driver's list of GPUs, its system."""
    monkeypatch.setattr(machine, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "driver")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("LIMBECK_DEVICE", raising=False)
    (tmp_path / "dev").mkdir()

    def place(
        *, cpuinfo: str = "", gpus: str = "", torch: str = "2.13.0+cu130", system: str = "Linux", arch: str = "x86_64"
    ) -> None:
        monkeypatch.setattr(machine, "cpuinfo", lambda: cpuinfo)
        monkeypatch.setattr(machine, "driver_list", lambda: gpus)
        monkeypatch.setattr(machine, "mac_chip", lambda: "Apple M2 Pro")
        monkeypatch.setattr(machine, "version", lambda name: torch)
        monkeypatch.setattr(machine.platform, "system", lambda: system)
        monkeypatch.setattr(machine.platform, "machine", lambda: arch)
        machine.gpus_here.cache_clear()
        if gpus:
            (tmp_path / "dev" / "nvidia3").touch()  # a container may be given the fourth GPU alone

    yield place
    machine.gpus_here.cache_clear()


def x86(flags: str, vendor: str = "GenuineIntel") -> str:
    """Return what Linux says of two cores."""
    core = (
        f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: A Processor\nflags\t\t: fpu {flags}\nbugs\t\t: "
        f"spectre_v1\n"
    )
    return f"{core}\n{core}"


def arm(part: str, features: str) -> str:
    return f"processor\t: 0\nFeatures\t: fp asimd {features}\nCPU implementer\t: 0x41\nCPU part\t: {part}\n\n"


def test_processors_that_choose_other_kernels_are_of_other_classes(on) -> None:
    every = [
        x86(flags)
        for flags in (HASWELL, ALDER_LAKE, SKYLAKE, CASCADE_LAKE, COOPER_LAKE, SAPPHIRE_RAPIDS, "sse4_2", "sse4_2 avx")
    ]
    every += [
        x86(HASWELL, "AuthenticAMD"),
        x86(COOPER_LAKE, "AuthenticAMD"),
        arm("0xd0c", "asimddp"),
        arm("0xd40", "asimddp sve bf16"),
        "",
    ]
    found = []
    for cpuinfo in every:
        on(cpuinfo=cpuinfo)
        found.append(device_class())
    assert len(set(found)) == len(every), found
    assert all(re.fullmatch(CLASS, one) for one in found)
    assert (
        found[:3] == ["cpu-avx2-intel", "cpu-avx2-vnni-intel", "cpu-avx512-intel"] and found[9] == "cpu-avx512-bf16-amd"
    )


def test_processors_that_choose_the_same_kernels_share_results(on) -> None:
    """Neither the clock nor the number of cores, nor instructions that nobody computes with, make another class."""
    on(cpuinfo=x86(SKYLAKE))
    before = cpu_class()
    on(cpuinfo=x86(f"{SKYLAKE} rdpid la57").replace("A Processor", "Another Processor @ 3 GHz") * 8)
    assert cpu_class() == before == "cpu-avx512-intel"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD EPYC", "AMD EPYC family 6 model 207"),
        ("Intel(R) Xeon(R) Processor", "Intel(R) Xeon(R) Processor family 6 model 207"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) Xeon(R) CPU @ 2.20GHz family 6 model 207"),
        ("AMD Eng Sample 32-Core Processor", "AMD Eng Sample 32-Core Processor family 6 model 207"),
        ("QEMU Virtual CPU version 2.5+", "QEMU Virtual CPU version 2.5+ family 6 model 207"),
        ("AMD EPYC 7R32", "AMD EPYC 7R32"),
        ("Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz"),
    ],
)
def test_a_processor_whose_name_tells_no_model_is_told_by_its_numbers(on, name: str, expected: str) -> None:
    """Speeds of two generations are no results of one machine; a name that tells its model stays, in keys, too."""
    cpuinfo = x86(SKYLAKE).replace("model name", "cpu family\t: 6\nmodel\t\t: 207\nmodel name")
    on(cpuinfo=cpuinfo.replace("A Processor", name))
    assert machine.cpu_model() == expected and machine.hardware().startswith(f"{expected} x ")
    on(cpuinfo=x86(SKYLAKE).replace("A Processor", name))
    assert machine.cpu_model() == name, "of a system that states no numbers"


def test_a_mac_and_an_unknown_system_have_a_class(on) -> None:
    on(system="Darwin", arch="arm64")
    assert device_class() == "cpu-apple-m2-pro" and machine.cpu_model() == "Apple M2 Pro"
    on(system="FreeBSD", arch="riscv64")
    assert device_class() == "cpu-riscv64-freebsd"


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [
        (H200, None, "cuda-h200"),
        (H200, "0", "cuda-h200"),
        (H200, "GPU-1111", "cuda-h200"),
        (SLICED, None, "cuda-h200-1g.18gb"),
        (SLICED, "MIG-3333", "cuda-h200-1g.18gb"),
        (MIXED, None, "cuda-h200+t4"),
        (MIXED, "1", "cuda-t4"),
        (H200, "", "cpu-avx2-intel"),
        (H200, "-1", "cpu-avx2-intel"),
    ],
)
def test_gpus_are_told_apart_by_model_slice_and_what_is_visible(
    on, monkeypatch: pytest.MonkeyPatch, gpus: str, visible: str | None, expected: str
) -> None:
    on(cpuinfo=x86(HASWELL), gpus=gpus)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device_class() == expected
    assert (gpu_model() is None) == expected.startswith("cpu")


def test_where_no_gpu_is_used_the_class_is_the_processors(on, monkeypatch: pytest.MonkeyPatch) -> None:
    on(cpuinfo=x86(HASWELL), gpus=H200, torch="2.13.0+cpu")
    assert device_class() == "cpu-avx2-intel", "this torch computes on the processor, whatever is in the machine"
    on(cpuinfo=x86(HASWELL), gpus=H200)
    assert device_class() == "cuda-h200"
    monkeypatch.setenv("LIMBECK_DEVICE", "cpu")
    assert device_class() == "cpu-avx2-intel"


def test_a_gpu_that_cannot_be_told_is_an_error_and_no_class(on, tmp_path: Path) -> None:
    on(cpuinfo=x86(HASWELL))
    (tmp_path / "dev" / "nvidia0").touch()
    with pytest.raises(
        StoreError,
        match="neither nvidia-smi nor /proc reports .*; install nvidia-smi .* LIMBECK_DEVICE=cpu",
    ):
        device_class()


def test_the_drivers_own_files_name_a_gpu_too(on, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "DRIVER", tmp_path / "driver")
    (tmp_path / "driver" / "0000:00:1e.0").mkdir(parents=True)
    (tmp_path / "driver" / "0000:00:1e.0" / "information").write_text(
        "Model: \t\t NVIDIA A10G\nIRQ:   \t\t 10\nGPU UUID: \t GPU-5555\n"
    )
    [gpu] = listed(machine.driver_list())
    assert gpu == ("0", ("GPU-5555",), "NVIDIA A10G")
