"""One meaning a name: names at the top level of several modules become fewer, and limits say what they bound."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.sources import ROOT, SOURCES, parsed

IN_SEVERAL_MODULES = 255
"""Names that are defined at the top level of more than one module; the number may only become smaller."""
EXPECTED = {"main", "JOBS"}
"""Names that every program, and every engine, has."""
VAGUE = {"PATIENCE", "LOOK"}
"""Names of limits that do not say what they bound; where they are left."""
VAGUE_LEFT = {"tasks/training/distributed.py"}


def names_of(tree: ast.Module) -> Iterator[str]:
    """Yield what a module defines at its top level."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def in_several_modules() -> dict[str, set[str]]:
    """Return the names that several modules define, and the modules."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        for name in names_of(parsed(path)):
            found[name].add(path.relative_to(ROOT).as_posix())
    return {name: places for name, places in found.items() if len(places) > 1 and name not in EXPECTED}


def test_names_of_several_modules_become_fewer() -> None:
    """A reader, and a search, should find one definition of a name."""
    found = in_several_modules()
    commonest = sorted(found, key=lambda name: -len(found[name]))[:10]
    assert len(found) <= IN_SEVERAL_MODULES, f"{len(found)} names; the commonest are {', '.join(commonest)}"


def test_limits_say_what_they_bound() -> None:
    vague = {path.relative_to(ROOT).as_posix() for path in SOURCES if VAGUE & set(names_of(parsed(path)))}
    assert vague == VAGUE_LEFT


def test_definitions_are_found() -> None:
    code = "A = B, C = 1, 2\nD: int = 3\ndef e(): f = 1\nclass G:\n    h = 1\nimport i"
    assert sorted(names_of(ast.parse(code))) == ["A", "B", "C", "D", "G", "e"]
