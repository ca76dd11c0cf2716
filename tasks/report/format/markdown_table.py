"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(names: Sequence[str]) -> list[str]:
    """Return the header lines of a table."""
    return [line(names), "|" + "---|" * len(names)]


def line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
