"""What is installed is what was tested, byte for byte: the lock is whole, agrees with pyproject.toml, and is what every
installation goes by."""

from __future__ import annotations

import re
import runpy
import sys
import time
import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "infra" / "lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
AUDIT = runpy.run_path(str(LOCK / "audit.py"))


def locked(*names: str) -> dict[str, Requirement]:
    """Return what locks pin, by name."""
    lines = [line for name in names for line in re.findall(r"^\w.*", (LOCK / f"{name}.txt").read_text(), re.MULTILINE)]
    return {canonicalize_name(found.name): found for found in (Requirement(line.removesuffix(" \\")) for line in lines)}


def pin(found: Requirement) -> str:
    return next(iter(found.specifier)).version


def hashes(name: str, lock: str) -> set[str]:
    entry = re.search(rf"^{name}==.*(?:\n    .*)*", (LOCK / f"{lock}.txt").read_text(), re.MULTILINE)
    assert entry is not None
    return set(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry[0]))


def needed(requirements: Iterable[str]) -> set[str]:
    """Return everything that is needed here, by what the installed packages say that they need."""
    waiting, found = [(Requirement(line), "") for line in requirements], set[tuple[str, str]]()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras} - {had for one, had in found if one == name}:
            found.add((name, wanted))
            waiting += [(Requirement(line), wanted) for line in distribution(name).requires or []]
    return {name for name, _ in found}


@pytest.mark.parametrize("lock", ["stack", "test", "cpu", "cuda"])
def test_nothing_can_be_installed_without_its_hash(lock: str) -> None:
    entries = locked(lock)
    assert entries
    for name, found in entries.items():
        assert [one.operator for one in found.specifier] == ["=="] and "*" not in pin(found), f"{name} is not pinned"
        assert hashes(found.name, lock), f"{name} has no hash"


@pytest.mark.parametrize(
    ("requirements", "locks"),
    [
        (PROJECT["build-system"]["requires"], ["stack"]),
        (PROJECT["project"]["dependencies"], ["stack"]),
        (EXTRAS["stack"], ["stack"]),
        (EXTRAS["test"], ["stack", "test"]),
        (EXTRAS["energy"], ["cuda"]),
    ],
    ids=["build", "base", "stack", "test", "energy"],
)
def test_the_lock_is_within_the_bounds_of_the_project(requirements: list[str], locks: list[str]) -> None:
    pins = locked(*locks)
    for wanted in map(Requirement, requirements):
        there = pins.get(canonicalize_name(wanted.name))
        assert there is not None, f"{wanted.name} is not in the lock: run `make lock`"
        assert wanted.specifier.contains(pin(there)), (
            f"the lock has {there}, the project wants {wanted}: run `make lock`"
        )


def test_the_lock_has_everything_that_is_needed_and_nothing_else() -> None:
    base = [*PROJECT["project"]["dependencies"], *EXTRAS["stack"], *PROJECT["build-system"]["requires"]]
    cuda = set(locked("cuda"))
    for lines, locks in ((base, ["stack"]), ([*base, *EXTRAS["test"]], ["stack", "test"])):
        here = {name for name, found in locked(*locks).items() if found.marker is None or found.marker.evaluate()}
        assert needed(lines) - cuda == here, f"run `make lock`: {needed(lines) ^ here}"


def test_either_build_of_torch_is_known_by_its_hash() -> None:
    """An index may serve the build for processors or the default one under the same pin."""
    both, cpu = hashes("torch", "stack"), hashes("torch", "cpu")
    assert cpu < both, "the entry has the builds for processors, and PyPI's"
    assert pin(locked("cpu")["torch"]) == f"{pin(locked('stack')['torch'])}+cpu"
    assert {"triton", "nvidia-cudnn-cu13"} <= set(locked("cuda")), "PyPI's build for Linux asks for them"


@pytest.mark.parametrize(
    "path",
    [ROOT / "Makefile", *sorted((ROOT / "infra" / "containers").glob("Containerfile.*pu"))],
    ids=lambda path: path.name,
)
def test_every_installation_goes_by_the_lock(path: Path) -> None:
    text = (
        path.read_text()
        .replace("\\\n", " ")
        .replace("$(HASHED)", "".join(re.findall(r"^HASHED := (.*)", path.read_text(), re.MULTILINE)))
    )
    places = ("$(BIN)/", "/opt/limbeck/bin/")  # tools in environments of their own are no part of the product
    installs = [
        command
        for command in re.split(r"\n|&&|\|\||;", text)
        if "pip install" in command and any(place in command for place in places)
    ]
    assert len(installs) >= 2
    for command in installs:
        assert "--no-deps" in command
        ours = command.split()[-1] == "." and "--no-build-isolation" in command
        assert ours or (
            "--require-hashes" in command
            and "--only-binary :all:" in command
            and "infra/lock" in command.replace("$(LOCK)", "infra/lock")
        )


def package(name: str, *vulnerabilities: str, **more: Any) -> dict[str, Any]:
    flaws = [{"id": one, "fix_versions": ["2.0"]} for one in vulnerabilities]
    return {"name": name, "version": "1.0", "vulns": flaws} | more


def test_an_audit_without_a_database_does_not_call_anything_safe() -> None:
    lines, status = AUDIT["summary"]([{"name": "torch", "skip_reason": "Dependency not found"}])
    assert status == 0 and lines[0].startswith("AUDIT SKIPPED") and AUDIT["summary"]([])[0] == lines


def test_a_known_vulnerability_is_named_with_its_mend() -> None:
    lines, status = AUDIT["summary"](
        [package("safe"), package("bad", "CVE-1"), {"name": "unknown", "skip_reason": "no"}]
    )
    assert status == 1
    assert lines == [
        "bad 1.0: CVE-1, mended in 2.0",
        "NOT AUDITED: unknown",
        "2 packages audited, 1 with known vulnerabilities",
    ]


def test_an_audit_ends_though_no_database_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(silent))
    started = time.monotonic()
    assert AUDIT["packages"]("pypi", "cpu.txt", 0.2) == []
    assert time.monotonic() - started < 30
