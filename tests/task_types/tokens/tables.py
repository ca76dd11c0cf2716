"""Tables of tagged words for tests: works of art of one word, and meals of two."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table

OTHERS = "was is very not good bad fine poor truly but although and it".split()
ART = "film song book plot".split()


def drawn_sentence(draw: random.Random) -> tuple[list[str], list[str]]:
    """Return words and their tags."""
    words, tags = list[str](), list[str]()
    for _ in range(draw.randint(2, 5)):
        words.append(draw.choice(OTHERS))
        tags.append("O")
        if draw.random() < 0.5:
            words.append(draw.choice(ART))
            tags.append("B-ART")
        elif draw.random() < 0.4:
            words += ["a", "meal"]
            tags += ["B-FOOD", "I-FOOD"]
    return words, tags


def tagged(rows: int, seed: int = 0) -> dict[str, list[Any]]:
    """Return different sentences as columns."""
    draw = random.Random(seed)
    found = {" ".join(words): (words, tags) for words, tags in (drawn_sentence(draw) for _ in range(3 * rows))}
    some = list(found.values())[:rows]
    return {"tokens": [words for words, _ in some], "tags": [tags for _, tags in some]}


def write_tagged(folder: Path, rows: int = 300) -> Path:
    """Write sentences with their tags."""
    write_table(folder / "train.parquet", tagged(rows))
    return folder / "train.parquet"
