"""Predictions of tags and their figures: entities by type, illegal sequences of tags, and sentences in which two models
find different entities. Shape letters: N rows, C tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import DataError
from tasks.metrics.intervals import share_interval
from tasks.metrics.of_entities import (
    ENTITY_F1,
    ENTITY_PRECISION,
    ENTITY_RECALL,
    entities,
    is_illegal,
    matched,
    ratio,
)
from tasks.task_types.common_answers import LOGITS, count_right, examples_of, heaviest_rows
from tasks.task_types.interfaces import Answers, Floor, ModelComparison
from tasks.task_types.types import TAG_LOGITS

LEAST = 0.05
"""The least F1 of a teacher: guessing finds no entity."""


# --- predictions ------------------------------------------------------------------------------------------------------


def predicted_tags(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the predicted tags of each row as a text of their numbers [N]."""
    found = [" ".join(map(str, logits_UC.argmax(-1))) for logits_UC in outputs[LOGITS]]
    return np.asarray(found, dtype=str)


def same_tags(before_N: np.ndarray, after_N: np.ndarray) -> np.ndarray:
    """Tell by row whether all tags are the same."""
    return before_N == after_N


def same_entities(ours_N: np.ndarray, theirs_N: np.ndarray) -> float:
    """Return the share of rows in which two models find the same entities."""
    pairs = [entities(str(one)) == entities(str(other)) for one, other in zip(ours_N, theirs_N, strict=True)]
    return float(np.mean(pairs))


def refuse_merged_tags(outputs: Mapping[str, np.ndarray], merged: Sequence[int]) -> dict[str, np.ndarray]:
    """Raise DataError: tags of words are not merged."""
    raise DataError("a judging set of tags cannot merge classes; leave classes out of its section data.judge")


def guess_nothing(predictions_N: np.ndarray, labels_N: np.ndarray) -> dict[str, float]:
    """Return the F1 of a model that finds no entity, which is 0, and that of the predictions."""
    return {"majority": 0.0, "selection_entity_f1": ENTITY_F1(predictions_N, labels_N)}


def least_f1(facts: Mapping[str, float]) -> float:
    """Return the least F1 of a teacher."""
    return LEAST


# --- error analysis ---------------------------------------------------------------------------------------------------


def read_tags(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the predicted tags, and the number of types."""
    types = [(logits_UC.shape[-1] - 1) // 2 for logits_UC in outputs[LOGITS][:1]]
    return {"answer": predicted_tags(outputs), "types": np.asarray(types)}


def analyse_tags(model: Mapping[str, np.ndarray], labels_N: np.ndarray, bins: int) -> dict[str, object]:
    """Return precision, recall and F1 of all entities and by type, the share of rows with an illegal sequence of tags,
    and counts by true type and found type of entities whose words are right; the last row and column are of entities
    that are not there."""
    answer_N, types = model["answer"], int(model["types"].max(initial=0))
    counts = np.zeros((types + 1, types + 1), dtype=int)
    for ours, theirs in zip(answer_N, labels_N, strict=True):
        found, true = ({(first, end): kind for kind, first, end in entities(str(tags))} for tags in (ours, theirs))
        for words in {*found, *true}:
            counts[true.get(words, types), found.get(words, types)] += 1
    right, found_K, true_K = counts.diagonal()[:-1], counts.sum(0)[:-1], counts.sum(1)[:-1]
    sums = matched(answer_N, labels_N).sum(0)
    return {
        "precision": float(ratio(sums[0], sums[1])),
        "recall": float(ratio(sums[0], sums[2])),
        "illegal": float(np.mean([is_illegal(str(tags)) for tags in answer_N])) if len(answer_N) else 0.0,
        "confusion": counts.tolist(),
        "precision_by_type": ratio(right, found_K).tolist(),
        "recall_by_type": ratio(right, true_K).tolist(),
        "f1_by_type": ratio(2 * right, found_K + true_K).tolist(),
    }


def compare_tags(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    labels_N: np.ndarray,
    ids_N: np.ndarray,
    examples: int,
) -> ModelComparison:
    """Count the rows in which student and teacher find all entities, and select rows in which they find different ones:
    those that differ in most entities, and rows that only the student has right."""
    sets = [[set(entities(str(tags))) for tags in one] for one in (ours["answer"], theirs["answer"], labels_N)]
    ours_right_N, theirs_right_N = (
        np.asarray([found == true for found, true in zip(one, sets[2], strict=True)], dtype=bool) for one in sets[:2]
    )
    apart_N = np.asarray([len(one ^ other) for one, other in zip(sets[0], sets[1], strict=True)], dtype=np.int64)
    chosen = {
        "surest": heaviest_rows((apart_N > 0) & ~ours_right_N, apart_N, ids_N, examples),
        "corrected": heaviest_rows(ours_right_N & (apart_N > 0), apart_N, ids_N, examples),
    }

    return {
        "counts": {
            **count_right(ours_right_N, theirs_right_N),
            "differ": int((apart_N > 0).sum()),
        },
        "examples": examples_of(chosen, ids_N, labels_N, (ours, theirs), str),
    }


ANSWERS = Answers(
    outputs=TAG_LOGITS,
    decide=predicted_tags,
    metrics={"entity_f1": ENTITY_F1, "entity_precision": ENTITY_PRECISION, "entity_recall": ENTITY_RECALL},
    dtype="str",
    agreement=same_entities,
    unchanged=same_tags,
    merge=refuse_merged_tags,
    guess=guess_nothing,
    floor=Floor(
        fact="selection_entity_f1",
        least=least_f1,
        description="the minimum F1 of a teacher of entities",
        interval=share_interval,
    ),
    read=read_tags,
    alone=analyse_tags,
    apart=compare_tags,
)
