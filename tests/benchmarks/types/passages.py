"""How others would train a student that answers questions about passages: windows of the passage beside the whole
question, and the divergence from a teacher at both ends of the answer (Sanh et al. 2019, DistilBERT, arXiv:1910.01108,
section 3). Shape letters: B windows, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tasks.metrics.of_answers import BETWEEN_ANSWERS, span_of_answer
from tasks.recipe.slices import PredictionSlice
from tasks.task_types.units import overlap_of
from tests.benchmarks.types.school import School

OUTSIDE = -100
"""The label of a token at which no answer can begin or end, as transformers marks a token without a label."""
BEGINS, ENDS_HERE = 1, 2
"""Bits of the label of a token of the passage, or of the first token, which stands for no answer."""
LOWEST = -1e4
"""In place of logits outside of the passage: no probability is left, and a product with 0 is 0."""


def windows_with_ends(school: School, tokenizer: Any) -> list[dict[str, Any]]:
    """Return windows of passages, whose tokens say whether the first true answer begins and ends there."""
    rows, most, found = school.split("train"), school.knobs.max_length, list[dict[str, Any]]()
    read = tokenizer(
        rows.texts,
        rows.pairs,
        truncation="only_second",
        max_length=most,
        stride=overlap_of(most),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    for window, row in enumerate(read["overflow_to_sample_mapping"]):
        places, texts = read["offset_mapping"][window], read.sequence_ids(window)
        tokens = [token for token, text in enumerate(texts) if text == 1]
        labels = [0 if text == 1 or token == 0 else OUTSIDE for token, text in enumerate(texts)]
        first, last = ends_among(tokens, places, span_of_answer(str(rows.labels[row]).split(BETWEEN_ANSWERS)[0]))
        labels[first] |= BEGINS
        labels[last] |= ENDS_HERE
        given = {name: read[name][window] for name in tokenizer.model_input_names}
        found.append({**given, "labels": labels})
    return found


def ends_among(tokens: list[int], places: list[tuple[int, int]], span: tuple[int, int] | None) -> tuple[int, int]:
    """Return the tokens at which an answer begins and ends; the first one twice where it is not whole in the window."""
    if span is None or places[tokens[0]][0] > span[0] or places[tokens[-1]][1] < span[1]:
        return 0, 0
    covers = [token for token in tokens if places[token][1] > span[0] and places[token][0] < span[1]]
    return covers[0], covers[-1]


def divergence_at_ends(teacher: Any, knobs: PredictionSlice) -> Callable[[Any, dict[str, Tensor]], Tensor]:
    """Return the divergence from a teacher that reads the same windows, mixed with the cross entropy with the true
    ends; the mean of both ends."""

    def loss(student: Any, batch: dict[str, Tensor]) -> Tensor:
        given = {name: values for name, values in batch.items() if name != "labels"}
        with torch.no_grad():
            theirs = teacher(**given)
        ours, labels_BT, heat = student(**given), batch["labels"], knobs.temperature
        is_outside_BT, both = labels_BT == OUTSIDE, list[Tensor]()
        for name, bit in (("start_logits", BEGINS), ("end_logits", ENDS_HERE)):
            ours_BT, theirs_BT = (each[name].float().masked_fill(is_outside_BT, LOWEST) for each in (ours, theirs))
            true_B = ((labels_BT & bit > 0) & ~is_outside_BT).int().argmax(1)
            soft = F.kl_div((ours_BT / heat).log_softmax(-1), (theirs_BT / heat).softmax(-1), reduction="batchmean")
            hard = F.cross_entropy(ours_BT, true_B)
            both.append(knobs.hard_weight * hard + (1 - knobs.hard_weight) * heat**2 * soft)
        return (both[0] + both[1]) / 2

    return loss
