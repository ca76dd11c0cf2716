"""Graphs that return the logits of an answer's beginning and end for each token, and answers with their places in a
passage. Shape letters: N rows, U units of a row, K candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.metrics.of_answers import span_of_answer
from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.spans.passage import BEST_CANDIDATES, FOUND_ANSWER, PIECES_OF_PASSAGE, STATED_THRESHOLD
from tasks.task_types.stored import STATED
from tasks.task_types.types import SPAN_LOGITS


def card_of_ends(config: Any) -> Card:
    """Return the outputs, the type, and the threshold of no answer."""
    threshold = getattr(config, STATED_THRESHOLD, None)
    return {
        "output": "start_logits, end_logits",
        "labels": None,
        STATED: "spans",
        STATED_THRESHOLD: 0.0 if threshold is None else threshold,
    }


def printed_answer(answer: str, candidates_K3: np.ndarray, text: str) -> Printed:
    """Return one answer: its text, first character, the one after the last, and the sum of its logits; an empty text
    and -1 where there is none. ``no_answer`` is the score of none, and ``others`` the next best answers."""
    span = span_of_answer(answer)
    start, end = (-1, -1) if span is None else span
    listed = [
        {"answer": text[int(first) : int(last)], "start": int(first), "end": int(last), "score": float(score)}
        for first, last, score in candidates_K3[1:]
    ]
    return {
        "answer": "" if span is None else text[start:end],
        "start": start,
        "end": end,
        "score": float(candidates_K3[0, 2]) if span is None else float(candidates_K3[1, 2]),
        "no_answer": float(candidates_K3[0, 2]),
        "others": [one for one in listed if (one["start"], one["end"]) != (start, end)],
    }


def spans_without_texts(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the places of the answers of each row, without their texts."""
    spans = [span_of_answer(str(answer)) or (-1, -1) for answer in outputs[FOUND_ANSWER]]
    return [{"start": start, "end": end} for start, end in spans]


def answers_in_passages(outputs: Mapping[str, np.ndarray], card: Card, texts: Sequence[str]) -> list[Printed]:
    """Return the answer to each question, from its passage."""
    rows = zip(outputs[FOUND_ANSWER], outputs[BEST_CANDIDATES], texts, strict=True)
    return [printed_answer(str(answer), candidates_K3, text) for answer, candidates_K3, text in rows]


def equal_answers(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both find the same answer."""
    return np.asarray(ours[FOUND_ANSWER] == theirs[FOUND_ANSWER])


GRAPH = Graph(
    outputs=SPAN_LOGITS,
    card=card_of_ends,
    predictions=spans_without_texts,
    equal=equal_answers,
    timed_inputs=one_pass,
    units=PIECES_OF_PASSAGE,
    spans=answers_in_passages,
    needs_pair=True,
)
