"""The READMEs of the rooms name every room, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("flows", "tasks")
EXAMPLE = "distances"
"""The method that a README adds as an example; its files are not there."""


def table_of(package: str) -> dict[str, str]:
    """Return the lines of a README's table by the room that they are about."""
    text = (ROOT / package / "README.md").read_text()
    return dict(re.findall(r"^\| `([\w*./]+)` \| (.*) \|$", text, re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_is_in_the_table_and_every_line_is_a_room(package: str) -> None:
    rooms = {f"{path.name}/" for path in (ROOT / package).iterdir() if (path / "__init__.py").is_file()}
    assert sorted(table_of(package)) == sorted({*rooms, "*.py"})


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_inside_of_a_room_is_in_its_line(package: str) -> None:
    """Somebody who looks for pruning finds it by the table, without opening every folder."""
    for room, line in table_of(package).items():
        inside = [path.parent.name for path in (ROOT / package / room.removesuffix("*.py")).glob("*/__init__.py")]
        if room != "*.py":
            assert not [name for name in inside if f"`{name}/`" not in line], room


@pytest.mark.parametrize("package", PACKAGES)
def test_every_path_that_is_named_is_there(package: str) -> None:
    """A path begins in the package, or at the top; in a line of the table, in the room of that line."""
    text = (ROOT / package / "README.md").read_text()
    for room, line in table_of(package).items():
        text = text.replace(line, "")
        for name in re.findall(r"`([\w/]+(?:/|\.py))`", line):
            assert (ROOT / package / room.removesuffix("*.py") / name).exists(), f"{room}: {name}"
    named = [name for name in re.findall(r"`([\w/]+(?:/|\.py))`", text) if EXAMPLE not in name]
    assert len(named) >= 1
    for name in named:
        assert (ROOT / name).exists() or (ROOT / package / name).exists(), name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_that_the_root_s_line_names_is_there(package: str) -> None:
    named = re.findall(r"`(\w+)`", table_of(package)["*.py"])
    assert named and all((ROOT / package / f"{name}.py").is_file() for name in named)
