"""Latency and memory of inference, measured: the candidate and its teacher in turn, so that a busy moment hits both."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

ENGINE = "torch fp32 sdpa"


def measure_latency(folders: Mapping[str, Path], *, batch: int, length: int, threads: int, repeats: int, warmup: int) -> dict[str, dict[str, float]]:
    """Return p50 and p95 in milliseconds of each model on the same random tokens, timed in turn: A, B, A, B …"""
    import torch

    from tasks.scoring.predict import load

    torch.set_num_threads(threads)
    models = {name: load(folder)[0] for name, folder in folders.items()}
    generator = torch.Generator().manual_seed(0)
    smallest = min(model.config.vocab_size for model in models.values())
    ids_BT = torch.randint(min(1000, smallest // 2), smallest, (batch, length), generator=generator)
    inputs = {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)}
    times: dict[str, list[float]] = {name: [] for name in models}
    with torch.inference_mode():
        for turn in range(warmup + repeats):
            for name, model in models.items():
                started = time.perf_counter()
                model(**inputs)
                if turn >= warmup:
                    times[name].append(1000 * (time.perf_counter() - started))
    return {name: {"p50_ms": float(np.median(values)), "p95_ms": float(np.quantile(values, 0.95))} for name, values in times.items()}


def resident() -> int:
    """Return the bytes of memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_increase(folder: Path, *, batch: int, length: int, threads: int) -> int:
    """Load and run a model in this process; return its peak memory in bytes less what the process held before.

    Only the first model of a process is measured truly: the peak never falls.
    """
    import resource

    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401 - its memory is not the model's

    from tasks.scoring.predict import load

    before = resident()
    torch.set_num_threads(threads)
    model, _ = load(folder)
    ids_BT = torch.full((batch, length), 7)
    with torch.inference_mode():
        for _ in range(3):
            model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)
