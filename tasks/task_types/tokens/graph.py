"""Graphs that return logits of tags for each token, and entities with their places in a text.

Shape letters: N rows, U words of a row, C tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tasks.metrics.of_entities import entities
from tasks.task_types.common_graph import one_pass
from tasks.task_types.interfaces import Card, Graph, Printed
from tasks.task_types.stored import STATED
from tasks.task_types.tokens.sentence import SENTENCE, word_spans
from tasks.task_types.types import TAG_LOGITS


def card_of_tags(config: Any) -> Card:
    """Return the output, the type, and the names of the tags."""
    labels = [config.id2label[number] for number in range(config.num_labels)]
    return {"output": "logits", "labels": labels, STATED: "tokens"}


def shares_of(logits_UC: np.ndarray) -> np.ndarray:
    """Return the probabilities [U, C] of tags."""
    odds_UC = np.exp(logits_UC - logits_UC.max(-1, keepdims=True))
    return np.asarray(odds_UC / odds_UC.sum(-1, keepdims=True))


def tags_of_words(outputs: Mapping[str, np.ndarray], card: Card) -> list[Printed]:
    """Return the tags of the words of each row."""
    labels = cast(list[str], card["labels"])
    return [{"tags": [labels[int(tag)] for tag in logits_UC.argmax(-1)]} for logits_UC in outputs["logits"]]


def entities_in_texts(outputs: Mapping[str, np.ndarray], card: Card, texts: Sequence[str]) -> list[Printed]:
    """Return the entities of each text: first character, the one after the last, text, type, and the mean probability
    of its tags."""
    labels = cast(list[str], card["labels"])
    return [
        {"entities": entities_in(text, logits_UC, labels)}
        for text, logits_UC in zip(texts, outputs["logits"], strict=True)
    ]


def entities_in(text: str, logits_UC: np.ndarray, labels: Sequence[str]) -> list[Printed]:
    """Return the entities of one text."""
    spans, shares_U = word_spans(text), shares_of(logits_UC).max(-1)
    found = list[Printed]()
    for kind, first, end in entities(" ".join(map(str, logits_UC.argmax(-1)))):
        start, stop = spans[first][0], spans[end - 1][1]
        name, score = labels[2 * kind + 1].partition("-")[2], float(shares_U[first:end].mean())
        found.append({"start": start, "end": stop, "text": text[start:stop], "type": name, "score": score})
    return found


def equal_tags(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tell by row whether both predict the same tags."""
    both = zip(ours["logits"], theirs["logits"], strict=True)
    return np.asarray([bool((one.argmax(-1) == other.argmax(-1)).all()) for one, other in both])


GRAPH = Graph(
    outputs=TAG_LOGITS,
    card=card_of_tags,
    predictions=tags_of_words,
    equal=equal_tags,
    timed_inputs=one_pass,
    units=SENTENCE,
    spans=entities_in_texts,
)
