"""Tables of queries with texts and grades for tests: a text is relevant if it names what the query asks for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table
from tests.task_types.choices.tables import THINGS


def graded(queries: int, seed: int = 0) -> dict[str, list[Any]]:
    """Return three or four texts of each query as columns, one row a text."""
    draw, rows = random.Random(seed), list[tuple[str, str, int]]()
    for number in range(queries):
        about, *others = draw.sample(THINGS, draw.randint(3, 4))
        texts = [
            (f"{thing} was {draw.choice('good bad fine poor'.split())} {number}", thing) for thing in [about, *others]
        ]
        draw.shuffle(texts)
        rows += [(f"which {about} {number}", text, int(thing == about)) for text, thing in texts]
    return {name: [row[place] for row in rows] for place, name in enumerate(("query", "passage", "label"))}


def write_graded(folder: Path, queries: int = 200) -> Path:
    """Write queries with their texts."""
    write_table(folder / "train.parquet", graded(queries))
    return folder / "train.parquet"
