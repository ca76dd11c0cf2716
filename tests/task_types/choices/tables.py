"""Tables of questions with options for tests: the right one names what the text is about."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table

THINGS = "film song book plot actor scene story".split()


def drawn_question(draw: random.Random, number: int) -> tuple[str, list[str], int]:
    """Return a text, two to four options, and the place of the right one; the number keeps texts apart."""
    about, *others = draw.sample(THINGS, draw.randint(2, 4))
    options = [about, *others]
    draw.shuffle(options)
    extra = draw.choice("good bad fine poor truly not very".split())
    return f"the {about} was {extra} {number}", [f"{option} {number}" for option in options], options.index(about)


def questions(rows: int, seed: int = 0) -> dict[str, list[Any]]:
    """Return different questions as columns."""
    draw = random.Random(seed)
    some = [drawn_question(draw, number) for number in range(rows)]
    return {
        "context": [text for text, _, _ in some],
        "choices": [options for _, options, _ in some],
        "label": [place for _, _, place in some],
    }


def write_questions(folder: Path, rows: int = 300) -> Path:
    """Write questions with their options."""
    write_table(folder / "train.parquet", questions(rows))
    return folder / "train.parquet"
