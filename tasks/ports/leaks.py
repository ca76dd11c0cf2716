"""Leakage: rows that judge a model and also stand in what it learns from. Texts count as the same where only case, width or white space differ.

Augmented rows are variants of training rows, and so are looked for where those are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

Texts = Iterable[tuple[str, str | None]]
JUDGING = ("validation", "holdout")


def normal(text: str | None) -> str:
    """Return a text without what does not make another text of it."""
    return " ".join(unicodedata.normalize("NFKC", text or "").casefold().split())


def together(texts: Sequence[str], pairs: Sequence[str] | None) -> Texts:
    """Return the texts of rows with their second texts, if they have any."""
    return zip(texts, pairs if pairs is not None else [None] * len(texts), strict=True)


def leaked(learned: Texts, judging: Mapping[str, Texts]) -> dict[str, int]:
    """Count by split the rows that judge and are also learned from."""
    wanted = {split: [(normal(text), normal(pair)) for text, pair in texts] for split, texts in judging.items()}
    judged = {row for rows in wanted.values() for row in rows}
    seen = judged & {(normal(text), normal(pair)) for text, pair in learned}
    return {split: sum(row in seen for row in rows) for split, rows in wanted.items()}


def judging_texts(rows: Path) -> dict[str, Texts]:
    """Read the texts of the splits that judge from a folder of prepared rows."""
    import pyarrow.parquet as pq

    files = {split: rows / f"{split}.parquet" for split in JUDGING if (rows / f"{split}.parquet").is_file()}
    tables = {split: pq.ParquetFile(path).read(["text", "pair"]).to_pydict() for split, path in files.items()}
    return {split: zip(table["text"], table["pair"], strict=True) for split, table in tables.items()}
