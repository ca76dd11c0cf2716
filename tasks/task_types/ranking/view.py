"""Rankings in words: the first texts of a query, and code that scores texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.interfaces import Code, ErrorFigure, View
from tasks.task_types.ranking.candidates import texts_to_rank

LISTED_TEXTS = 3
"""Texts that a page shows of a query."""
LONGEST_LISTED = 80
"""Characters of a text on a page."""


def example_query(pairs: bool) -> list[Any]:
    """Return an example of the inputs of the pipeline ``text-classification``."""
    return [{"text": "some query", "text_pair": "some text"}]


def example_candidate(pairs: bool) -> str:
    """Return a query and a text as the arguments of a tokenizer."""
    return '"some query", "first text"'


def best_places(given: Any) -> list[int]:
    """Return the places of the texts with the highest grades or scores, the best first."""
    values = [float(value) for value in str(given or "").split()]
    return sorted(range(len(values)), key=lambda place: -values[place])[:LISTED_TEXTS]


def order_by_place(given: Any, names: Sequence[str]) -> str:
    """Return the places of the best texts, from 1."""
    return ", ".join(f"text {place + 1}" for place in best_places(given)) or "—"


def order_in_text(given: Any, names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return the best texts."""
    own = texts_to_rank(pair) if len(texts) > 1 and (pair := texts[1]) else []
    listed = [own[place] for place in best_places(given) if place < len(own)]
    short = [text if len(text) <= LONGEST_LISTED else text[:LONGEST_LISTED].rstrip() + " …" for text in listed]
    return " > ".join(short) or order_by_place(given, names)


WRONG_FIRST = ErrorFigure("wrong_first", "share of queries whose first text is not relevant", "wrong first")
VIEW = View(
    example=example_query,
    example_answer={"label": "LABEL_0", "score": 0.5},
    code=Code(
        text=example_candidate,
        checkpoint="import torch\n\n"
        'query, *texts = {text}, "second text"\n'
        'given = tokenizer([query] * len(texts), texts, truncation=True, padding=True, return_tensors="pt")\n'
        "with torch.inference_mode():\n"
        "    scores = model(**given).logits[:, 0]\n"
        "print([(texts[place], float(scores[place])) for place in scores.argsort(descending=True)])",
        export="scores = []\n"
        'query, *texts = {text}, "second text"\n'
        "for one in texts:  # one by one, as the model was evaluated\n"
        "    text = tokenizer.encode(query, one)\n"
        '    given = {"input_ids": text.ids, "attention_mask": text.attention_mask, "token_type_ids": text.type_ids}\n'
        '    feeds = {name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}\n'
        '    scores.append(float(session.run(["logits"], feeds)[0][0, 0]))\n'
        "print(sorted(zip(scores, texts), reverse=True))",
    ),
    analysis_title="Queries whose first text is wrong",
    figures=(WRONG_FIRST, ErrorFigure("spread", "standard deviation of a query's scores", "spread")),
    card_figure=WRONG_FIRST,
    chart="",
    chart_note="",
    matrix="",
    counted={
        "teacher_better": "queries that the teacher ranks better",
        "student_better": "queries that the student ranks better",
    },
    examples={
        "surest": "Queries that lost most",
        "corrected": "Queries that the student ranks better",
    },
    answer=order_by_place,
    in_text=order_in_text,
)
