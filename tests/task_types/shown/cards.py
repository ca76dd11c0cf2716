"""The programs on the card of a pulled model, which its users copy."""

from __future__ import annotations

from pathlib import Path


def snippets_of(folder: Path, count: int) -> list[str]:
    """Return the programs on the card of a pulled model, with its folder in them. Fails where their number is not the
    expected one: 1 asks the checkpoint, 2 the graph as well."""
    card = (folder / "README.md").read_text()
    found = [part.split("```")[0].replace("FOLDER", str(folder)) for part in card.split("```python\n")[1:]]
    assert len(found) == count, f"the card has {len(found)} programs"
    return found
