"""Rows on which a student differs from its teacher, as the page of a run shows them."""

from __future__ import annotations

from html import unescape
from typing import Any

from flows.home import Home
from tasks.ports.rows.row_files import read_split

BEGINNING = 40
"""Characters of a text that are looked for: longer ones are cut on a page."""


def shown_disagreement(result: dict[str, Any], home: Home, title: str) -> dict[str, Any]:
    """Return the first row on which a student of a run and its teacher differ most, after a look at the page: the list
    has its ``title`` there, and below it the row its text. Fails where all students agree with their teacher on all
    rows: a page that shows no disagreement would pass."""
    analyses = [(one.get("inspection") or {}).get("apart") for one in result["models"]]
    examples = [one["examples"]["surest"] for one in analyses if one and one["examples"]["surest"]]
    assert examples, "all students and their teacher agree on all rows, so that nothing can be shown"
    example = dict(examples[0][0])
    page = unescape(next(home.root.rglob("report.html")).read_text())
    folders = {file.parent for file in home.root.rglob("validation.parquet")}
    rows = next(found for folder in folders if example["id"] in (found := read_split(folder, "validation")).ids)
    text = rows.texts[rows.ids.index(example["id"])]
    assert title in page and text[:BEGINNING] in page.split(title, 1)[1], f"the page lacks {text!r} below {title!r}"
    assert example["student"]["answer"] != example["teacher"]["answer"]
    return example
