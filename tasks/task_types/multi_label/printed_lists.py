"""Lists of labels that a table of texts holds as a program printed them: Python's, and numpy's, which has no commas."""

from __future__ import annotations

import ast
import io
from tokenize import NUMBER, STRING, TokenError, generate_tokens
from typing import Any


def list_of_text(cell: str) -> list[Any]:
    """Return a list that a table of texts holds as its author's program printed it. Raises ValueError for another
    text."""
    try:
        found = ast.literal_eval(with_commas(cell.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TokenError):
        found = None
    if not isinstance(found, list):
        raise ValueError(f"the text {cell[:60]!r} begins like a list and is none; close it, and quote its labels")
    return found


def with_commas(cell: str) -> str:
    """Return a printed list with a comma between two values: of a list without commas, Python would read all texts as
    one."""
    pieces, before = list[str](), -1
    for token in generate_tokens(io.StringIO(cell.replace("\n", " ")).readline):
        if {before, token.type} <= {STRING, NUMBER}:
            pieces.append(",")
        pieces.append(token.string)
        before = token.type
    return " ".join(pieces).strip()
