"""The READMEs of the rooms name every room, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("package", ["flows", "tasks"])
def test_every_room_is_in_the_table_and_every_line_is_a_room(package: str) -> None:
    lines = re.findall(r"^\| `([\w*./]+)` \|", (ROOT / package / "README.md").read_text(), re.MULTILINE)
    rooms = {f"{path.name}/" for path in (ROOT / package).iterdir() if (path / "__init__.py").is_file()}
    assert sorted(lines) == sorted({*rooms, "*.py"})


@pytest.mark.parametrize("package", ["flows", "tasks"])
def test_every_file_that_is_named_is_there(package: str) -> None:
    text = (ROOT / package / "README.md").read_text().partition("## To add")[0]
    named = re.findall(r"`((?:[\w]+/)+(?:\w+\.py)?)`", text)
    assert named
    for name in named:
        places = [ROOT / name, ROOT / package / name, *(room / name for room in (ROOT / package).iterdir())]
        assert any(place.exists() for place in places), name
