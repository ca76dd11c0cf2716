"""The tables of the READMEs are those that the code and the files of results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.readmes import MARKED, READMES, ROOT, name_of, text_of
from tests.docs.tables import TABLES, markdown, table, with_tables

WITH_TABLES = [path for path in READMES if MARKED.search(text_of(path))]


@pytest.mark.parametrize("path", WITH_TABLES, ids=name_of)
def test_tables_are_what_the_code_gives(path: Path) -> None:
    assert text_of(path) == with_tables(text_of(path)), "run: python -m tests.docs"


def test_every_table_is_shown_once() -> None:
    named = [found[1] for path in READMES for found in MARKED.findall(text_of(path))]
    assert set(TABLES) <= set(named) and len(named) == len(set(named))
    marks = sum(text_of(path).count("<!-- table:") for path in READMES)
    assert len(named) == marks, "a mark is not closed"


def test_the_front_page_begins_with_figures_of_a_run() -> None:
    text = text_of(ROOT / "README.md")
    first = MARKED.search(text)
    assert first is not None and first[2].endswith(".json")
    assert text.index("\n|") == first.start(3) - 1, "the first table of all is printed from a file of results"


def test_a_table_that_was_edited_is_noticed_and_an_unknown_one_is_refused() -> None:
    page = f"<!-- table: shelf -->\n{table('shelf')}\n<!-- end of table -->\n"
    assert with_tables(page) == page
    assert with_tables(page.replace("demo", "dome", 1)) == page
    with pytest.raises(KeyError, match="there is no table 'shelves'; there are shelf"):
        table("shelves")


def test_tables_that_stand_side_by_side_are_kept_apart() -> None:
    page = "<!-- table: shelf -->\n<!-- end of table -->\nBetween.\n<!-- table: shelf -->\n<!-- end of table -->\n"
    assert "Between." in with_tables(page) and with_tables(page).count("| `demo` |") == 2


def test_markdown() -> None:
    assert markdown(["a", "b"], [["1", ""]]) == "| a | b |\n|---|---|\n| 1 |  |"
