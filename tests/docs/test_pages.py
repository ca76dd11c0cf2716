"""The pages themselves: links lead somewhere, the front page is short, worked changes fit the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.readmes import PAGES, READMES, ROOT, anchors_of, blocks, links_of, name_of, text_of

MOST_WORDS = 1200
ELSEWHERE = ("https://", "http://", "mailto:")


def broken(path: Path, text: str) -> list[str]:
    """Return the links of a page that lead to no file, or to no heading of it."""
    return [link for link in links_of(text) if not link.startswith(ELSEWHERE) and not leads(path, link)]


def leads(path: Path, link: str) -> bool:
    """Tell whether a relative link leads to a file of this repository, and to a heading of it."""
    place, _, anchor = link.partition("#")
    target = (path.parent / place).resolve() if place else path
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors_of(text_of(target)))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_are_there(path: Path) -> None:
    assert broken(path, text_of(path)) == []


def test_links_that_lead_nowhere_are_found() -> None:
    text = "[a](tasks/README.md) [b](tasks/nothing.md) [c](tasks/README.md#nothing) [d](#here) [e](../x)\n\n## Here\n"
    assert broken(ROOT / "README.md", text) == ["tasks/nothing.md", "tasks/README.md#nothing", "#here", "../x"]


def test_the_front_page_leads_to_every_room() -> None:
    front = {(ROOT / link.partition("#")[0]).resolve() for link in links_of(text_of(ROOT / "README.md"))}
    assert {path for path in READMES if path != ROOT / "README.md"} <= front


def test_the_front_page_is_short() -> None:
    words = len(text_of(ROOT / "README.md").split())
    assert words <= MOST_WORDS, f"README.md has {words} words; move what is about one room to the README of that room"


# --- worked changes ---------------------------------------------------------------------------------------------------


def changes_of(path: Path) -> list[tuple[str, str, str]]:
    """Return every change of the diffs of a page: the file, the lines before, and the lines after it."""
    found = []
    for block in blocks(text_of(path), "diff"):
        head, *hunks = re.split(r"^@@.*\n", block, flags=re.MULTILINE)
        name = re.findall(r"^\+\+\+ b/(\S+)$", head, re.MULTILINE)[0]
        is_new = "--- /dev/null" in head
        for hunk in hunks:
            lines = [(line[:1] or " ", line[1:]) for line in hunk.splitlines()]
            before = "" if is_new else "".join(f"{line}\n" for sign, line in lines if sign in " -")
            found.append((name, before, "".join(f"{line}\n" for sign, line in lines if sign in " +")))
    return found


WORKED = [(path, *change) for path in READMES for change in changes_of(path)]


def test_there_are_worked_changes() -> None:
    assert len({name for _, name, _, _ in WORKED}) >= 6


@pytest.mark.parametrize(("path", "name", "before", "after"), WORKED, ids=lambda given: str(given)[-30:])
def test_worked_changes_fit_the_code(path: Path, name: str, before: str, after: str) -> None:
    """What they change is there, once; what they add is not; and what comes out is Python."""
    file = ROOT / name
    assert file.is_file() == bool(before), f"{name_of(path)}: {name}"
    text = file.read_text() if before else ""
    assert text.count(before) == 1 or not before, f"{name_of(path)}: {name} does not have\n{before}"
    compile(text.replace(before, after, 1) if before else after, name, "exec")
