"""Entities in words: found and missed entities by type, and sentences in which student and teacher differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.metrics.of_entities import entities
from tasks.task_types.common_view import example_arguments, example_text
from tasks.task_types.interfaces import Code, ErrorFigure, View
from tasks.task_types.tokens.sentence import BETWEEN_WORDS

NO_ENTITY = "no entity"


def type_named(kind: int, names: Sequence[str]) -> str:
    """Return the name of a type of entities, or its number from 1 on if it has none."""
    return names[kind] if kind < len(names) else f"type {kind + 1}"


def types_of_tags(names: Sequence[str]) -> list[str]:
    """Return the types of entities of a model's tags, and the name of the last row and column of the matrix."""
    return [name.partition("-")[2] for name in names if name.startswith("B-")] + [NO_ENTITY]


def entities_by_place(given: Any, names: Sequence[str]) -> str:
    """Return entities by type and the numbers of their words, from 1 on: without a word of the text."""
    found = [
        f"{type_named(kind, names)}: word {first + 1}" + (f" to {end}" if end > first + 1 else "")
        for kind, first, end in entities(str(given or ""))
    ]
    return "; ".join(found) or NO_ENTITY


def entities_in_text(given: Any, names: Sequence[str], texts: Sequence[str | None]) -> str:
    """Return entities by type, with their words."""
    words = (texts[0] or "").split(BETWEEN_WORDS)
    found = [
        f"{type_named(kind, names)}: {BETWEEN_WORDS.join(words[first:end])}"
        for kind, first, end in entities(str(given or ""))
    ]
    return "; ".join(found) or NO_ENTITY


ILLEGAL_SHARE = ErrorFigure("illegal", "sentences with an illegal sequence of tags", "illegal")
VIEW = View(
    example=example_text,
    example_answer={"entity": "name", "score": 0.5, "index": 1, "word": "some", "start": 0, "end": 4},
    code=Code(
        text=example_arguments,
        checkpoint="text = {text}  # words with a space between two of them\n"
        'given = tokenizer(text, truncation=True, return_offsets_mapping=True, return_tensors="pt")\n'
        'places = given.pop("offset_mapping")[0].tolist()\n'
        "tags = model(**given).logits[0].argmax(-1).tolist()\n"
        "for (start, end), tag in zip(places, tags):\n"
        "    starts = start == 0 or ' ' in (text[start - 1], text[start])\n"
        "    if starts and text[start:end].strip():  # first piece of a word, not a space alone\n"
        "        print(text[start:].split()[0], model.config.id2label[tag])",
        export='feeds = {name: np.array([given[name]], dtype=np.int64) for name in card["inputs"]}\n'
        'tags = session.run(["logits"], feeds)[0][0].argmax(-1)\n'
        "for (start, end), tag in zip(text.offsets, tags):\n"
        "    if end > start:  # a piece of a word; the first one has the tag of the word\n"
        '        print(start, end, card["labels"][tag])',
    ),
    analysis_title="Entities by type",
    figures=(
        ErrorFigure("precision", "precision of entities", "precision"),
        ErrorFigure("recall", "recall of entities", "recall"),
        ILLEGAL_SHARE,
    ),
    card_figure=ILLEGAL_SHARE,
    chart="",
    chart_note="",
    matrix="confusion",
    counted={
        "both_right": "all entities found by both",
        "only_teacher": "only the teacher right",
        "only_student": "only the student right",
        "both_wrong": "both wrong",
        "differ": "different entities",
    },
    examples={
        "surest": "Different entities",
        "corrected": "Student right, teacher wrong",
    },
    answer=entities_by_place,
    by_class=(ErrorFigure("f1_by_type", "F1", "F1"),),
    matrix_names=types_of_tags,
    in_text=entities_in_text,
    judged="Texts of more than {tokens} tokens were read in windows that share a quarter, so that each word has its "
    "tag. The programs below read the first window alone.",
)
