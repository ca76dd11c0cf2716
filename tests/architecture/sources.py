"""The sources that the rules of the house are about, each parsed once for all rules."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for room in ("flows", "tasks") for path in (ROOT / room).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text())
