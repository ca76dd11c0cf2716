"""What is installed is what was tested, byte for byte: the lock is whole, agrees with pyproject.toml, and is what every
installation goes by."""

from __future__ import annotations

import ast
import importlib
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
IMAGES = "cpu", "dispatcher", "gpu"
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


@pytest.mark.parametrize("lock", ["stack", "test", "cpu", "cuda", "dispatcher", "sbom"])
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
        (EXTRAS["search"], ["stack", "test"]),
    ],
    ids=["build", "base", "stack", "test", "energy", "search"],
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
    for lines, locks in ((base, ["stack"]), ([*base, *EXTRAS["test"], *EXTRAS["search"]], ["stack", "test"])):
        here = {name for name, found in locked(*locks).items() if found.marker is None or found.marker.evaluate()}
        assert needed(lines) - cuda == here, f"run `make lock`: {needed(lines) ^ here}"


def test_the_dispatcher_has_the_versions_that_its_pools_were_made_with() -> None:
    pins = locked("dispatcher")
    wanted = (ROOT / "deployments" / "pools" / "requirements.txt").read_text()
    for line in re.findall(r"^\w.*", wanted, re.MULTILINE):
        assert Requirement(line).specifier.contains(pin(pins[Requirement(line).name])), f"{line}: run `make lock`"
    assert pin(pins["prefect"]) == pin(locked("stack")["prefect"]), "servers and workers have one version"


def test_either_build_of_torch_is_known_by_its_hash() -> None:
    """An index may serve the build for processors or the default one under the same pin."""
    both, cpu = hashes("torch", "stack"), hashes("torch", "cpu")
    assert cpu < both, "the entry has the builds for processors, and PyPI's"
    assert pin(locked("cpu")["torch"]) == f"{pin(locked('stack')['torch'])}+cpu"
    assert {"triton", "nvidia-cudnn-cu13"} <= set(locked("cuda")), "PyPI's build for Linux asks for them"


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "Makefile",
        *(ROOT / "infra" / "containers" / f"Containerfile.{name}" for name in ("cpu", "dispatcher", "gpu")),
    ],
    ids=lambda path: path.name,
)
def test_every_installation_goes_by_the_lock(path: Path) -> None:
    text = (
        path.read_text()
        .replace("\\\n", " ")
        .replace("$(HASHED)", "".join(re.findall(r"^HASHED := (.*)", path.read_text(), re.MULTILINE)))
    )
    places = (
        "$(BIN)/",
        "/opt/limbeck/bin/",
        "/opt/sbom/bin/",
    )  # tools in environments of their own are no part of the product
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


@pytest.fixture
def bump(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that tries newer versions."""
    monkeypatch.syspath_prepend(str(LOCK))
    return importlib.import_module("bump")


def test_newer_versions_are_tried_beyond_our_bounds_but_torch_is_held(bump: Any) -> None:
    """A bound may be there for a reason that is over; a torch without a build for processors could not be tried."""
    text = bump.lifted_project((ROOT / "pyproject.toml").read_text(), [])
    found = {
        Requirement(line).name: Requirement(line).specifier for line in tomllib.loads(text)["project"]["dependencies"]
    }
    assert found["prefect"].contains("99") and found["whenever"].contains("99") and not found["prefect"].contains("1")
    assert (
        found["torch"]
        == Requirement(next(one for one in PROJECT["project"]["dependencies"] if "torch" in one)).specifier
    )
    alone = tomllib.loads(bump.lifted_project((ROOT / "pyproject.toml").read_text(), ["mlflow"]))["project"]
    changed = set(alone["dependencies"]) - set(PROJECT["project"]["dependencies"])
    assert {Requirement(line).name for line in changed} == {"mlflow"}


def test_the_report_names_versions_bounds_reasons_and_tests(bump: Any) -> None:
    project = '[project]\ndependencies = ["prefect==3.8.8", "rich>=14"]\n[project.optional-dependencies]\n'
    newer = bump.upgrades(
        {"prefect": "3.8.8", "rich": "14.0", "old": "1"}, {"prefect": "3.9.1", "rich": "15.0"}, project
    )
    left = [
        bump.Excluded(
            "mlflow",
            "3.18.0",
            bump.reason_in(
                "x Because a needs b, we can conclude that a cannot be "
                "used.\n And because limbeck depends on a, your requirements are unsatisfiable."
            ),
        )
    ]
    lines = "\n".join(bump.versions(newer, left))
    assert re.search(r"prefect +3\.8\.8 +3\.9\.1 +pyproject\.toml has ==3\.8\.8", lines)
    assert re.search(r"rich +14\.0 +15\.0$", lines, re.MULTILINE) and re.search(r"old +1 +gone", lines)
    assert "because a needs b, a cannot be used." in lines and "unsatisfiable" not in lines
    results = (
        '<testsuites><testsuite><testcase classname="tests.gate.test_row" name="test_one[a-1]"><failure message="no\n">'
        '</failure></testcase><testcase classname="tests.gate.test_row" name="test_two"/><testcase classname="" '
        'name="tests.gate.test_x"><error message="import"/></testcase></testsuite></testsuites>'
    )
    failed = bump.failures_in(results)
    assert [one.test for one in failed] == ["tests/gate/test_row.py::test_one[a-1]", "tests/gate/test_x.py"]
    lines = "\n".join(bump.outcome(["x 1 requires y"], [failed[0], bump.Failure("t", "why", fails_on_lock=True)]))
    assert re.search(r"test_one\[a-1\] +passes +no", lines) and re.search(r"^t +fails, too +why", lines, re.MULTILINE)
    assert "conflict: x 1 requires y" in lines and bump.outcome([], []) == ["all of these tests pass"]


def test_a_lock_has_one_version_of_each_package(bump: Any) -> None:
    """Of two entries for two Pythons, the second replaced the first in silence, and one Python had none."""
    twice = (
        'numpy==2.4.6 ; python_full_version < "3.12" \\\n    --hash=sha256:a\nnumpy==2.5.5 \\\n    --hash=sha256:b\n'
    )
    with pytest.raises(ValueError, match="several of numpy"):
        bump.generate.entries(twice)
    for lock in bump.generate.LOCKS:
        assert bump.generate.entries((LOCK / f"{lock}.txt").read_text())


NOT_IMPORTED = {
    "onnxscript": "torch.onnx.export imports it",
    "protobuf": "transformers reads vocabularies by it",
    "whenever": "bounded for the scheduler of Prefect, which makes no cron runs with an older one",
    "scikit-learn": "metrics of one's own may import it, and their keys have its version",
    "flask-wtf": "MLflow's accounts import it",
    "prefect-redis": "settings of the servers name its modules",
    "httptools": "uvicorn parses requests by it",
}
MODULES = {"huggingface-hub": "huggingface_hub", "psycopg2-binary": "psycopg2", "ruamel.yaml": "ruamel"}


def test_nothing_is_installed_that_nothing_uses() -> None:
    """Each dependency of a run or of the servers is imported by the product, or stands above with its reason."""
    trees = (ast.parse(path.read_text()) for room in ("flows", "tasks") for path in (ROOT / room).rglob("*.py"))
    imported = {name.split(".")[0] for tree in trees for node in ast.walk(tree) for name in modules_of(node)}
    names = [Requirement(line).name for line in (*PROJECT["project"]["dependencies"], *EXTRAS["stack"])]
    assert {name for name in names if MODULES.get(name, name.replace("-", "_")) not in imported} == set(NOT_IMPORTED)


def modules_of(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


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
        "bad 1.0: CVE-1, fixed in 2.0",
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
