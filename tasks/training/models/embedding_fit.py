"""Embeddings of a factorised student that learn what leaves the teacher's embedding layer, before any layer learns: the
principal axes that they begin with (``tasks/architectures/albert.py``) weigh all words alike, and the texts do not.

Architecture: Lan et al. 2019, ALBERT, arXiv:1909.11942, whose norm stands before the map to the width of the layers.
The paper trains from scratch, and has no such step.
Shape letters: B batch, T tokens, D width of the layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasks.training.data.encoded import Batch, Encoded, collate

FIT_STEPS = 200
ROWS_OF_A_STEP = 32
RATE = 1e-2
"""The largest rate, which falls to 0 linearly."""


def learn_embeddings(
    student: Any, teacher: Any, encoded: Encoded, rows_N: np.ndarray, pad: int, *, steps: int | None, seed: int
) -> None:
    """Train the tables and the map of an ALBERT's embeddings, in place, on the mean squared difference to the output of
    a BERT's embedding layer at the tokens of some rows of texts; ``steps`` is None for ``FIT_STEPS``. Nothing else of
    the student changes, and at the teacher's width there is nothing to learn."""
    learned, steps = learned_parameters(student), FIT_STEPS if steps is None else steps
    if not learned or not len(rows_N) or not steps:
        return
    source, place = teacher.base_model.embeddings.eval(), next(teacher.parameters()).device
    optimizer = torch.optim.Adam(learned, lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    embeddings = student.base_model.embeddings.eval()  # without dropout
    draw = np.random.default_rng(seed)
    for _ in range(steps):
        rows_B = draw.choice(rows_N, size=min(ROWS_OF_A_STEP, len(rows_N)), replace=False)
        batch = collate(encoded, rows_B, pad, place)
        with torch.no_grad():
            wanted_BTD = embedded(source, batch)
        found_BTD = student.base_model.encoder.embedding_hidden_mapping_in(embedded(embeddings, batch))
        distance_BT = (found_BTD - wanted_BTD).square().mean(-1)
        mask_BT = batch.mask_BT.to(distance_BT.dtype)
        gradients = torch.autograd.grad((distance_BT * mask_BT).sum() / mask_BT.sum(), learned)
        for parameter, gradient in zip(learned, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        schedule.step()
    optimizer.zero_grad()


def learned_parameters(student: Any) -> list[nn.Parameter]:
    """Return the tables and the map of an ALBERT whose embeddings are narrower than its layers; else none."""
    if student.config.model_type != "albert":
        return []
    embeddings, widen = student.base_model.embeddings, student.base_model.encoder.embedding_hidden_mapping_in
    if widen.in_features == widen.out_features:
        return []
    tables = [module.weight for module in embeddings.modules() if isinstance(module, nn.Embedding)]
    return [one.requires_grad_(True) for one in (*tables, widen.weight, widen.bias)]


def embedded(embeddings: Any, batch: Batch) -> Tensor:
    """Return the output [B, T, D] of an embedding layer."""
    found: Tensor = embeddings(input_ids=batch.ids_BT, token_type_ids=batch.segments_BT)
    return found
