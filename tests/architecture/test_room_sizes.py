"""Sizes of rooms: how long a file and a function may be, how many files stand in a folder, where flows are.

The exceptions are what is left to do: a list may only become shorter, and a number in it only smaller.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, of_every, parsed

TESTS = sorted({path.parent for path in (ROOT / "tests").rglob("*.py")})
FOLDERS = sorted({path.parent for path in SOURCES}) + TESTS
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, FILES_OF_A_FOLDER = 350, 55, 15
LONGER_FILES: dict[str, int] = {}
FULLER_FOLDERS = {
    "tasks": 20,
    "tests": 21,
    "tests/benchmarks": 16,
    "tests/suites": 16,
}
"""The root of ``tasks/`` holds every stage task beside the ground, and may have 20."""
TYPE_ERRORS_PASSED_OVER = 7
UNTYPED_DICTS_PER_THOUSAND_LINES = 0.2
"""The goal of the house is 2."""
NO_FLOW = {"__init__.py", "home.py"}
"""Files in the root of ``flows/`` that hold no flow."""


def name_of(path: Path) -> str:
    """Return the path of a file or folder as the lists have it."""
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text().splitlines())


def files_of(folder: Path) -> int:
    """Count the Python files of a folder."""
    return len(list(folder.glob("*.py")))


@of_every(SOURCES)
def test_a_file_is_read_in_one_sitting(path: Path) -> None:
    assert lines_of(path) <= LONGER_FILES.get(name_of(path), LINES_OF_A_FILE)


@of_every(FOLDERS)
def test_a_folder_is_seen_at_a_glance(folder: Path) -> None:
    assert files_of(folder) <= FULLER_FOLDERS.get(name_of(folder), FILES_OF_A_FOLDER)


def test_the_exceptions_are_needed_and_no_larger_than_needed() -> None:
    assert {name: lines_of(ROOT / name) for name in LONGER_FILES} == LONGER_FILES
    assert {name: files_of(ROOT / name) for name in FULLER_FOLDERS} == FULLER_FOLDERS


@of_every(SOURCES)
def test_functions_fit_in_the_eye(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < LINES_OF_A_FUNCTION, f"{node.name} from line {node.lineno} on"


@pytest.mark.parametrize("path", sorted((ROOT / "flows").glob("*.py")), ids=name_of)
def test_the_root_of_flows_holds_flows(path: Path) -> None:
    """Deployments name flows by their file: what stands here does not move, and nothing else stands here."""
    decorators = [
        ast.unparse(decorator)
        for node in parsed(path).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for decorator in node.decorator_list
    ]
    assert any(one.startswith("flow(") for one in decorators) != (path.name in NO_FLOW)


def test_type_errors_that_are_passed_over_become_fewer() -> None:
    """mypy itself runs in ``make lint``; an error that is passed over names its kind, and there are no more of them."""
    ignored = [line for path in SOURCES for line in path.read_text().splitlines() if "# type: ignore" in line]
    assert len(ignored) == TYPE_ERRORS_PASSED_OVER and all("# type: ignore[" in line for line in ignored)


def test_untyped_dicts_become_fewer() -> None:
    """Between rooms go typed models: of ``dict[str, Any]`` mypy knows nothing, and a misspelt key is found by a run."""
    untyped = re.compile(r"\b(dict|Mapping)\[str, Any\]")
    found = sum(len(untyped.findall(path.read_text())) for path in SOURCES)
    share = 1000 * found / sum(map(lines_of, SOURCES))
    assert share <= UNTYPED_DICTS_PER_THOUSAND_LINES, "name a type"
    assert share > UNTYPED_DICTS_PER_THOUSAND_LINES - 0.5, "fewer than before: write the new number down"


def test_stage_tasks_stand_in_the_root() -> None:
    """Tests of keys, libraries and dispatch look for stages there."""
    elsewhere = [name_of(path) for path in SOURCES if path.parent != ROOT / "tasks" and "\n@stage(" in path.read_text()]
    assert not elsewhere
