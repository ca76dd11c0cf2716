"""Latency of a language model's next token behind a text that it remembers, measured, and the memory that each token
takes. Model and teacher are timed in turn, as for whole texts.

Shape letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from tasks.recipe.judging import Speed
from tasks.scoring.memory import bytes_of_a_token, keys_and_values, presents
from tasks.scoring.speed.speed import Checkpoint, Export, opened, paces_of
from tasks.scoring.speed.timing import time_in_turn
from tasks.task_types.graphs import GRAPHS


class TokenFigures(TypedDict):
    """Figures of one further token."""

    token_ms: float
    """Median milliseconds of a token behind a text of the timed length."""
    token_speedup: float
    """The teacher's median, divided by it."""
    token_bytes: int
    """Bytes of memory that each token of a text takes."""
    token_unsteady: str
    """The reason why they are unsteady; empty if they are steady."""


@dataclass(frozen=True)
class NextToken:
    """One further token: a call that reads it and leaves the memory as it was, and the bytes that it would take."""

    call: Callable[[], Any]
    bytes: int


def of_checkpoint(model: Any, ids_BT: np.ndarray) -> NextToken | None:
    """Return a further token of a checkpoint; None of a model that remembers other things than keys and values of all
    tokens, which cannot forget one."""
    import torch

    ids = torch.from_numpy(ids_BT)
    cache = model(input_ids=ids, use_cache=True).cache
    parts = keys_and_values(cache)
    if parts is None:
        return None
    taken = sum(part.numel() * part.element_size() for part in parts) // ids_BT.size
    one = ids[:, -1:]

    def call() -> None:
        model(input_ids=one, cache=cache, use_cache=True)
        cache.crop(-1)  # forgets the token

    return NextToken(call, taken)


def of_export(model: Any, ids_BT: np.ndarray) -> NextToken:
    """Return a further token of a graph with a memory."""
    kept = presents(model.memory)
    whole = {"input_ids": ids_BT, "attention_mask": np.ones_like(ids_BT)}
    read = dict(zip(model.memory, model.session.run(kept, model.given(whole)), strict=True))
    mask = np.ones((len(ids_BT), ids_BT.shape[1] + 1), np.int64)
    given = {"input_ids": ids_BT[:, -1:], "attention_mask": mask, **read}
    return NextToken(lambda: model.session.run(None, given), bytes_of_a_token(model.memory))


def measure_further_tokens(folders: Mapping[str, Path], knobs: Speed, *, task_type: str) -> TokenFigures | None:
    """Time a further token of ``model`` and ``teacher`` in turn, behind the same random tokens; None for a task type
    whose models continue no texts, and for models that remember something else."""
    import torch

    if not GRAPHS[task_type].remembers:
        return None
    torch.set_num_threads(knobs.threads)
    models: dict[str, Checkpoint | Export] = {}
    for name, folder in folders.items():
        models[name] = opened(folder, knobs.threads, task_type)
    smallest = min(model.vocabulary for model in models.values())
    ids_BT = np.random.default_rng(0).integers(0, smallest, (knobs.batch, knobs.length))
    with torch.inference_mode():
        tokens = {name: further_token(model, ids_BT) for name, model in models.items()}
        ours, theirs = tokens["model"], tokens["teacher"]
        if ours is None or theirs is None:
            return None
        calls = {"model": ours.call, "teacher": theirs.call}
        times = time_in_turn(calls, repeats=knobs.repeats, warmup=knobs.warmup, seconds=knobs.seconds)
        found = paces_of(times)
    return {
        "token_ms": found["model"]["p50_ms"],
        "token_speedup": found["speedup"],
        "token_bytes": ours.bytes,
        "token_unsteady": found["unsteady"],
    }


def further_token(model: Checkpoint | Export, ids_BT: np.ndarray) -> NextToken | None:
    """Return a further token of a model behind these tokens."""
    return of_export(model.model, ids_BT) if isinstance(model, Export) else of_checkpoint(model.model, ids_BT)
