"""Metrics of entities: precision, recall and F1 over all entities of all sentences.

An entity is right if its type, its first and its last word are right. Sequences of tags are read as conlleval does
(Tjong Kim Sang and De Meulder 2003, arXiv:cs/0306050): an I- tag that continues no entity of its type begins one. A
sentence is a text of tag numbers: 0 is O, odd numbers begin an entity (B-), the even number after them continues it
(I-). Shape letter: N sentences.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.metrics.definition import SumMetric

NO_TAG = 0
Entity = tuple[int, int, int]
"""Type, first word, and the word after the last."""


def entities(tags: str) -> tuple[Entity, ...]:
    """Return the entities of a sentence."""
    found, opened = list[Entity](), None
    for word, tag in enumerate([*map(int, tags.split()), NO_TAG]):
        kind = None if tag == NO_TAG else (tag - 1) // 2
        if opened is not None and (kind != opened[0] or tag % 2):
            found.append((opened[0], opened[1], word))
            opened = None
        if opened is None and kind is not None:
            opened = (kind, word)
    return tuple(found)


def is_illegal(tags: str) -> bool:
    """Tell whether an I- tag of a sentence continues no entity of its type."""
    before = NO_TAG
    for tag in map(int, tags.split()):
        if tag != NO_TAG and tag % 2 == 0 and before not in (tag, tag - 1):
            return True
        before = tag
    return False


def matched(predictions_N: np.ndarray, truth_N: np.ndarray) -> np.ndarray:
    """Return by sentence the entities that are right, found and true [N, 3]."""
    counts = list[tuple[int, int, int]]()
    for prediction, true in zip(predictions_N, truth_N, strict=True):
        ours, theirs = entities(str(prediction)), entities(str(true))
        counts.append((len({*ours} & {*theirs}), len(ours), len(theirs)))
    return np.asarray(counts, dtype=np.int64).reshape(-1, 3)


def ratio(above: Any, below: Any) -> np.ndarray:
    """Return a ratio; 0 where nothing can be counted."""
    below = np.asarray(below, dtype=np.float64)
    return np.asarray(np.divide(above, below, out=np.zeros_like(below), where=below != 0))


def f1_of_sums(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return F1 from sums of the entities that are right, found and true."""
    return ratio(2 * sums[..., 0], sums[..., 1] + sums[..., 2])


def precision_of_sums(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the share of found entities that are right."""
    return ratio(sums[..., 0], sums[..., 1])


def recall_of_sums(sums: np.ndarray, rows: Any) -> np.ndarray:
    """Return the share of true entities that are found."""
    return ratio(sums[..., 0], sums[..., 2])


ENTITY_F1 = SumMetric("F1 of entities: type, first and last word must be right.", matched, f1_of_sums)
ENTITY_PRECISION = SumMetric("Share of found entities that are right.", matched, precision_of_sums)
ENTITY_RECALL = SumMetric("Share of true entities that are found.", matched, recall_of_sums)
