"""The sources that the rules of the house are about, each parsed once for all rules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for room in ("flows", "tasks") for path in (ROOT / room).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text())


def of_every(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Make one test of all paths from a test of one: collecting and reporting a test for each of hundreds of files
    costs more than what it looks at."""

    def decorate(test: Callable[[Path], None]) -> Callable[[], None]:
        def test_all() -> None:
            found = []
            for path in paths:
                try:
                    test(path)
                except AssertionError as error:
                    found.append(f"{path.relative_to(ROOT)}: {error}")
            assert not found, "\n".join(found)

        test_all.__doc__ = test.__doc__
        return test_all

    return decorate
