"""Written texts as a registered version may state them: digests of them and of the right ones, and the numbers from
which their metrics are computed; no word of a row.

An evaluation travels with its version, to everyone who pulls it. Metrics of texts are sums over rows
(``SumMetric``), so the numbers of each row are enough for any comparison row by row, and exact. What is sealed keeps
the order of the texts, by which resamples are drawn, so that intervals are those of the texts, too. A digest has 64
bits: it hides a text from a reader who does not know it. Shape letters: N rows, K numbers of a metric.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tasks.metrics.definition import Metric, SumMetric
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.seen import digest_of_sentence
from tasks.task_types.types import TASK_TYPES

SEALED = "sealed"
"""The entry of an evaluation that says so."""
DIGEST = "digest"


def states_texts(about: Mapping[str, object]) -> bool:
    """Tell whether the predictions of an evaluation are texts."""
    kind = about.get("kind")
    return isinstance(kind, str) and kind in TASK_TYPES and TASK_TYPES[kind].writes


def places_in_order(texts_N: np.ndarray) -> list[str]:
    """Return the place of each text in the order of different ones, as texts in the same order."""
    return [f"{place:08d}" for place in np.unique(texts_N, return_inverse=True)[1].ravel()]


def sealed_labels(labels_N: np.ndarray) -> np.ndarray:
    """Return the place and the digest of each label [N]."""
    both = zip(places_in_order(labels_N), labels_N, strict=True)
    return np.asarray([f"{place} {digest_of_sentence(str(label))}" for place, label in both], dtype=str)


def sealed_texts(predictions_N: np.ndarray, labels_N: np.ndarray, kind: str) -> np.ndarray:
    """Return by row the place and the digest of a text, and its numbers beside the label, by metric of the task type
    [N]."""
    numbers = {name: numbers_by_row(METRICS[name], predictions_N, labels_N) for name in TASK_TYPES[kind].metrics}
    places, found = places_in_order(predictions_N), list[str]()
    for row, text in enumerate(predictions_N):
        stated = {DIGEST: digest_of_sentence(str(text)), **{name: own[row] for name, own in numbers.items()}}
        found.append(f"{places[row]} {json.dumps(stated)}")
    return np.asarray(found, dtype=str)


def behind_place(sealed: str) -> str:
    """Return what stands behind the place of a sealed text."""
    return sealed.partition(" ")[2]


def numbers_by_row(metric: Metric, predictions_N: np.ndarray, labels_N: np.ndarray) -> list[list[float]]:
    """Return the numbers of each row whose sums a metric needs."""
    assert isinstance(metric, SumMetric)
    found: list[list[float]] = metric.parts(predictions_N, labels_N).tolist()
    return found


def stated_numbers(name: str, sealed_N: np.ndarray, labels_N: np.ndarray) -> np.ndarray:
    """Return a metric's numbers of sealed texts [N, K]."""
    return np.asarray([json.loads(behind_place(one))[name] for one in sealed_N], dtype=np.float64)


def metric_of_sealed(name: str) -> Metric:
    """Return a metric of texts that reads sealed ones."""
    metric = METRICS[name]
    assert isinstance(metric, SumMetric)
    return replace(metric, parts=partial(stated_numbers, name))


def digests_in(predictions_N: np.ndarray, *, sealed: bool) -> np.ndarray:
    """Return the digest of each text [N]."""
    return np.asarray(
        [json.loads(behind_place(one))[DIGEST] if sealed else digest_of_sentence(str(one)) for one in predictions_N]
    )
