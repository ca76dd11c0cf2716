"""Try newer versions than those of the lock, in an environment of their own, and report what breaks: ``make bump``.

    python infra/lock/bump.py [--only NAME ...] [--tests PATH ...]

1. The upper bounds of pyproject.toml are lifted, except those of ``HELD``; uv resolves the newest versions that fit together. With ``--only``
   the named packages alone may become newer, and all others only as far as these require it.
2. They are installed in ``.venv-bump`` by the rules of every installation: by hash, without a build of anything of others.
3. The tests run there. A test that fails is run again in the environment of the lock, so that a defect of today is not blamed on an upgrade.

Nothing of the repository is changed. What works is taken by a wider bound in pyproject.toml and ``make lock UPGRADE=1``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import generate
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HELD = {"torch": "newer ones have no build for processors in every index that this project is tested with"}
"""Packages whose bound is never lifted, each with the reason."""
ENVIRONMENT = generate.ROOT / ".venv-bump"
HASHED = ("--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:")
LONGEST_REASON = 110


@dataclass(frozen=True)
class Upgrade:
    """A package that becomes newer."""

    name: str
    locked: str
    newer: str
    bound: str
    """The bound of pyproject.toml that excludes the newer version; empty where none does."""


@dataclass(frozen=True)
class Excluded:
    """A newer version of a requirement that does not fit the other packages, with uv's reason."""

    name: str
    version: str
    reason: str


@dataclass(frozen=True)
class Failure:
    """A test that fails with the newer versions."""

    test: str
    reason: str
    fails_on_lock: bool = False


# --- versions ---------------------------------------------------------------------------------------------------------


def lifted(requirement: str, only: Sequence[str]) -> str:
    """Return a requirement without its upper bound; unchanged where it is held, or where others alone are lifted."""
    found = Requirement(requirement)
    name = canonicalize_name(found.name)
    if name in HELD or (only and name not in only):
        return requirement
    lower = [f">={one.version}" for one in found.specifier if one.operator in (">=", "==", "~=")]
    extras = f"[{','.join(sorted(found.extras))}]" if found.extras else ""
    return f"{found.name}{extras}{','.join(lower)}"


def lifted_project(text: str, only: Sequence[str]) -> str:
    """Return the requirements of pyproject.toml, with lifted bounds, as a project of their own."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    lines = ["[project]", 'name = "limbeck"', 'version = "0"', f'requires-python = "{project["requires-python"]}"']
    lines += [f"dependencies = {json.dumps([lifted(one, only) for one in project['dependencies']])}"]
    lines += ["[project.optional-dependencies]"]
    lines += [f"{name} = {json.dumps([lifted(one, only) for one in wanted])}" for name, wanted in extras.items()]
    return "\n".join(lines) + "\n"


def write_newer_locks(folder: Path, only: Sequence[str]) -> dict[str, dict[str, str]]:
    """Resolve the newer versions, write their locks to a folder, and return the entries of each."""
    former = {lock: generate.entries((generate.HERE / f"{lock}.txt").read_text()) for lock in generate.LOCKS}
    with tempfile.TemporaryDirectory() as place:
        project = Path(place) / "pyproject.toml"
        project.write_text(lifted_project((generate.ROOT / "pyproject.toml").read_text(), only))
        found = generate.locks(former, upgrade=not only, project=project, packages=only)
    folder.mkdir(parents=True, exist_ok=True)
    for lock, pinned in found.items():
        (folder / f"{lock}.txt").write_text("\n".join(pinned.values()) + "\n")
    return found


def excluded(chosen: Mapping[str, str], only: Sequence[str]) -> list[Excluded]:
    """Return the newest versions of our requirements that were not chosen, each with the reason."""
    text = lifted_project((generate.ROOT / "pyproject.toml").read_text(), only)
    with tempfile.TemporaryDirectory() as place:
        (project := Path(place) / "pyproject.toml").write_text(text)
        newest = {name: version for name, version in generate.newest(project).items() if version != chosen[name]}
        newest = {name: version for name, version in newest.items() if not only or name in only}
        found = []
        for name, version in sorted(newest.items()):
            (wanted := Path(place) / "wanted.in").write_text(f"{name}=={version}")
            words = [*generate.COMPILE, "--universal", *(f"--extra={one}" for one in generate.EXTRAS)]
            done = subprocess.run([*words, str(project), str(wanted)], capture_output=True, text=True, cwd=place)
            reason = reason_in(done.stderr) if done.returncode else "it fits, at the price of older versions of others"
            found.append(Excluded(name, version, reason))
    return found


def reason_in(said: str) -> str:
    """Return uv's reason why versions do not fit, without its last step: that this project is then unsatisfiable."""
    words = " ".join(said.partition("Because")[2].replace("we can conclude that", "").split())
    return f"because {words.partition(' And because limbeck depends on')[0]}"


def pins(locks: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the version of each package of the locks, without that of torch's build."""
    entries = {name: entry for lock in ("stack", "test", "cuda") for name, entry in locks.get(lock, {}).items()}
    return {name: re.split(r"[ ;]", entry.split("==")[1], maxsplit=1)[0] for name, entry in entries.items()}


def upgrades(former: Mapping[str, str], newer: Mapping[str, str], project: str) -> list[Upgrade]:
    """Return the packages that differ, those that pyproject.toml names first."""
    about = tomllib.loads(project)["project"]
    named = [
        Requirement(line) for line in (*about["dependencies"], *sum(about["optional-dependencies"].values(), start=[]))
    ]
    bounds = {canonicalize_name(one.name): one.specifier for one in named}
    found = [
        Upgrade(
            name,
            former.get(name, "new"),
            newer.get(name, "gone"),
            str(bounds[name]) if name in bounds and name in newer and not bounds[name].contains(newer[name]) else "",
        )
        for name in sorted({*former, *newer}, key=lambda name: (name not in bounds, name))
        if former.get(name) != newer.get(name)
    ]
    return found


# --- environment and tests --------------------------------------------------------------------------------------------


def install(locks: Path) -> list[str]:
    """Build the environment from the newer locks; return conflicts among its packages, except with our own bounds."""
    venv.create(ENVIRONMENT, clear=True, with_pip=True)
    pip = [str(ENVIRONMENT / "bin" / "pip"), "install"]
    cpu = subprocess.run([*pip, *HASHED, "--requirement", str(locks / "cpu.txt")], stderr=subprocess.DEVNULL)
    files = ["stack", "test", *([] if cpu.returncode == 0 else ["cuda"])]
    subprocess.run([*pip, *HASHED, *(f"--requirement={locks / name}.txt" for name in files)], check=True)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, *quiet, "--editable", str(generate.ROOT)], check=True)
    checked = subprocess.run([pip[0], "check"], capture_output=True, text=True)
    return [line for line in checked.stdout.splitlines() if checked.returncode and not line.startswith("limbeck ")]


def run_tests(environment: Path, tests: Sequence[str], *options: str) -> list[Failure]:
    """Run tests in an environment and return those that fail."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [str(environment / "bin" / "python"), "-m", "pytest", "-q", f"--junitxml={results}", *options, *tests]
        ended = subprocess.run(command, cwd=generate.ROOT)
        if not results.exists():
            return [Failure("pytest", f"ended with status {ended.returncode} before it had run a test")]
        return failures_in(results.read_text())


def failures_in(results: str) -> list[Failure]:
    """Return the failed tests in a file of JUnit's format, each under the name by which pytest runs it again."""
    found = []
    for case in ElementTree.fromstring(results).iter("testcase"):
        problem = next((one for one in case if one.tag in ("failure", "error")), None)
        if problem is not None:
            reason = " ".join((problem.get("message") or problem.text or "").split())
            found.append(Failure(test_id(case.get("classname", ""), case.get("name", "")), reason))
    return found


def test_id(module: str, name: str) -> str:
    """Return the id of a test from its dotted module; a module that fails to be imported has no name beside its own."""
    if not module:
        return f"{name.replace('.', '/')}.py"
    return f"{module.replace('.', '/')}.py::{name}"


def with_lock(failures: Iterable[Failure], environment: Path) -> list[Failure]:
    """Return failures after each was tried in the environment of the lock."""
    failures = list(failures)
    if not failures or not (environment / "bin" / "python").exists():
        return failures
    still = {one.test for one in run_tests(environment, [one.test for one in failures], "-n0")}
    return [Failure(one.test, one.reason, one.test in still) for one in failures]


# --- report -----------------------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of text."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = [header, ["─" * width for width in widths], *rows]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines]


def versions(newer: Sequence[Upgrade], left: Sequence[Excluded]) -> list[str]:
    """Return the lines of the report on versions."""
    rows = [(one.name, one.locked, one.newer, one.bound and f"pyproject.toml has {one.bound}") for one in newer]
    lines = table(("package", "lock", "newer", "excluded by"), rows) if rows else ["nothing is newer than the lock"]
    lines += [f"held: {name}, because {reason}" for name, reason in HELD.items()]
    if left:
        lines += ["", *table(("left out", "version", "reason"), [(one.name, one.version, one.reason) for one in left])]
    return lines


def outcome(conflicts: Sequence[str], failures: Sequence[Failure]) -> list[str]:
    """Return the lines of the report on what breaks."""
    rows = [
        (one.test, "fails, too" if one.fails_on_lock else "passes", one.reason[:LONGEST_REASON]) for one in failures
    ]
    lines = table(("test that fails", "on the lock", "reason"), rows) if rows else ["all of these tests pass"]
    return [*(f"conflict: {line}" for line in conflicts), *lines]


def main() -> int:
    """Try newer versions; return 1 if a test fails with them that passes with the lock, or if packages conflict."""
    options = argparse.ArgumentParser(prog="infra/lock/bump.py")
    options.add_argument("--only", nargs="*", default=[], help="packages that may become newer; by default all")
    options.add_argument("--tests", nargs="*", default=[], help="files and folders of tests; by default the suite")
    given = options.parse_args()
    only = [canonicalize_name(name) for name in given.only]
    project = (generate.ROOT / "pyproject.toml").read_text()
    former = {lock: generate.entries((generate.HERE / f"{lock}.txt").read_text()) for lock in generate.LOCKS}
    unknown = sorted({*only} - {*pins(former)})
    if unknown:
        options.error(f"{unknown[0]} is not in the lock")
    with tempfile.TemporaryDirectory() as place:
        locks = Path(place)
        chosen = pins(write_newer_locks(locks, only))
        newer = upgrades(pins(former), chosen, project)
        print("\n".join(versions(newer, excluded(chosen, only))), flush=True)
        if not newer:
            return 0
        conflicts = install(locks)
    failures = with_lock(run_tests(ENVIRONMENT, given.tests), generate.ROOT / ".venv")
    print("\n".join(["", *outcome(conflicts, failures)]))
    return int(bool(conflicts) or any(not one.fails_on_lock for one in failures))


if __name__ == "__main__":
    sys.exit(main())
