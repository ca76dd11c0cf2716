"""Tables of questions about passages for tests: how something was, where the passage says so by one word."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tasks.ports.rows.table_files import write_table

THINGS = "film song book plot meal".split()
QUALITIES = "good bad fine poor".split()
FILLING = "it was is but and although truly very".split()


def asked(passages: int, seed: int = 0, *, without: float = 0.3) -> dict[str, list[Any]]:
    """Return two questions about each passage as columns; a share of the passages says nothing."""
    draw, rows = random.Random(seed), list[dict[str, Any]]()
    for _ in range(passages):
        words, found = draw.choices(FILLING + THINGS, k=draw.randint(6, 18)), draw.random() >= without
        place, quality = draw.randrange(len(words)), draw.choice(QUALITIES)
        start = len(" ".join([*words[:place], ""]))
        context = " ".join([*words[:place], *([quality] * found), *words[place:]])
        answers = {"text": [quality] * found, "answer_start": [start] * found}
        for thing in draw.sample(THINGS, 2):
            rows.append({"question": f"{thing} {draw.choice(FILLING)}", "context": context, "answers": answers})
    return {name: [row[name] for row in rows] for name in rows[0]}


def write_asked(folder: Path, passages: int = 150) -> Path:
    """Write questions with their passages and answers."""
    write_table(folder / "train.parquet", asked(passages))
    return folder / "train.parquet"


def nested(passages: int) -> dict[str, Any]:
    """Return questions in the nested form of SQuAD's files."""
    columns = asked(passages)
    paragraphs = dict[str, dict[str, Any]]()
    for number, (question, context, answers) in enumerate(
        zip(columns["question"], columns["context"], columns["answers"], strict=True)
    ):
        pairs = zip(answers["text"], answers["answer_start"], strict=True)
        own = paragraphs.setdefault(context, {"context": context, "qas": []})
        listed = [{"text": text, "answer_start": start} for text, start in pairs]
        own["qas"].append({"id": str(number), "question": question, "is_impossible": not listed, "answers": listed})
    listed_paragraphs = list(paragraphs.values())
    articles = [{"title": title, "paragraphs": listed_paragraphs[at::2]} for at, title in enumerate("ab")]
    return {"version": "v2.0", "data": articles}
