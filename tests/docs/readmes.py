"""Markdown files of the repository: where they are, and the commands, blocks, tables and links in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("flows", "tasks", "deployments", "infra", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(path for place in PLACES for path in (ROOT / place).rglob("*.md"))])
"""Every Markdown file, the changelog and the runbooks too."""
READMES = [path for path in PAGES if path.name == "README.md"]
LIMBECK = ("limbeck", ".venv/bin/limbeck")
MARKED = re.compile(r"(<!-- table: (\S+) -->\n)((?:(?!<!--).)*)(<!-- end of table -->)", re.DOTALL)


def name_of(path: Path) -> str:
    """Return the path of a page as tests are called by it."""
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str:
    """Return a page's text."""
    return path.read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language; those in lists without their indent."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def without_blocks(text: str) -> str:
    """Return what is written around the fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)


def commands_of(text: str) -> list[list[str]]:
    """Return the commands of the shell blocks as lists of words, without settings of variables before them."""
    lines = [line for block in blocks(text, "sh") for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    found = [part for line in lines for part in parts_of(shlex.split(line, comments=True))]
    return [words for words in map(without_settings, found) if words]


def parts_of(words: list[str]) -> list[list[str]]:
    """Return the commands of a line, which are joined by ``&&``."""
    if "&&" not in words:
        return [words]
    end = words.index("&&")
    return [words[:end], *parts_of(words[end + 1 :])]


def without_settings(words: list[str]) -> list[str]:
    """Return a command without the variables that are set for it."""
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    return words


def mentioned(text: str) -> Iterator[list[str]]:
    """Yield the commands of ours and of make that stand between backticks in a sentence or a table."""
    for code in re.findall(r"`((?:\.venv/bin/)?limbeck [a-z][^`]*|make [a-z][^`]*)`", without_blocks(text)):
        yield shlex.split(code.replace("…", " ").replace("'", ""))


def ours(commands: list[list[str]]) -> list[list[str]]:
    """Return the words after ``limbeck`` of every command that is ours."""
    return [words[1:] for words in commands if words[0] in LIMBECK]


def links_of(text: str) -> list[str]:
    """Return the targets of links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", without_blocks(text))


def anchors_of(text: str) -> set[str]:
    """Return the names by which a page's headings are linked to, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}
