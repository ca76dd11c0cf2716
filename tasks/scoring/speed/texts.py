"""The figures in which models of one shape with different vocabularies differ: the pieces of a text, and the time that
a model takes for it.

*Fertility* is the number of pieces per word (Rust et al. 2021, arXiv:2012.15613). Latency elsewhere is that of a fixed
number of tokens, which hides a text that has become longer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.architectures.known_architectures import longest
from tasks.engine.job import Job
from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.recipe.slices import TextsSlice
from tasks.scoring.speed.speed import Paces, opened, paces_of
from tasks.scoring.speed.timing import time_in_turn
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.texts.as_read import are_chats, texts_as_read
from tasks.task_types.texts.truncation import batch_of
from tasks.task_types.units import Parts

TIMED_TEXTS = 16
"""Texts that are timed: enough for all lengths of a task, few enough to be timed many times."""


def count_and_time_texts(job: Job) -> dict[str, object]:
    """Count the pieces of the validation split and of judging sets, and time real texts one by one, a candidate and its
    teacher in turn; return pieces per word and milliseconds per text."""
    knobs, rows = job.read(TextsSlice), read_split(job.inputs["rows"], "validation")
    sets = [read_split(folder, "validation") for folder in job.lists.get("judging", [])]
    folders = {"model": job.inputs["model"], "teacher": job.inputs["teacher"]}
    facts = {
        "fertility": fertility(folders["model"], [rows], knobs.task_type),
        "fertility_elsewhere": fertility(folders["model"], sets, knobs.task_type) if sets else None,
        **time_texts(folders, rows, knobs),
    }
    (job.output / "text_figures.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def fertility(folder: Path, parts: Sequence[StoredRows], task_type: str) -> float:
    """Return the number of pieces per word of all texts together, without special tokens; of chats with those that the
    template of the tokenizer writes."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    stored = [text for rows in parts for text in [*rows.texts, *(rows.pairs or [])]]
    texts = texts_as_read(GRAPHS[task_type].units, stored, tokenizer)
    pieces = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    return sum(map(len, pieces)) / max(1, sum(len(text.split()) for text in texts))


def time_texts(folders: Mapping[str, Path], rows: StoredRows, knobs: TextsSlice) -> Paces:
    """Return the milliseconds per text of each model, their quotient, and the reason if they are unsteady: the times of
    a pass over a sample, one text at a time."""
    import torch

    torch.set_num_threads(knobs.threads)
    rows = read_apart(rows, knobs.task_type)
    sample = rows_of_all_lengths(rows)
    calls = {name: pass_over(folder, rows, sample, knobs) for name, folder in folders.items()}
    with torch.inference_mode():
        times = time_in_turn(calls, repeats=knobs.repeats, warmup=1, seconds=knobs.seconds)
    return paces_of({name: [value / len(sample) for value in values] for name, values in times.items()})


def read_apart(rows: StoredRows, task_type: str) -> StoredRows:
    """Return rows as a model reads them: of a row whose units are read apart, each unit is a pair of its own."""
    units = GRAPHS[task_type].units
    if not isinstance(units, Parts):
        return rows
    texts, pairs, _ = units.read(rows.texts, rows.pairs)
    return StoredRows(list(range(len(texts))), texts, pairs, [None] * len(texts))


def rows_of_all_lengths(rows: StoredRows) -> list[int]:
    """Return rows of all lengths: every n-th of them, ordered by their characters."""
    pairs = rows.pairs or [""] * len(rows)
    order = sorted(range(len(rows)), key=lambda row: (len(rows.texts[row]) + len(pairs[row]), row))
    places = np.unique(np.linspace(0, len(order) - 1, min(TIMED_TEXTS, len(order))).astype(int))
    return [order[place] for place in places]


def pass_over(folder: Path, rows: StoredRows, sample: Sequence[int], knobs: TextsSlice) -> Callable[[], None]:
    """Return a function that asks a model for the texts of a sample, one by one, with the pieces of its own
    tokenizer."""
    from transformers import AutoTokenizer

    model = opened(folder, knobs.threads, knobs.task_type)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    most = longest(model.config, knobs.max_length)
    calls = []
    for row in sample:
        inputs = row_inputs(tokenizer, rows, row, most, knobs.task_type)
        calls.append(model.call({name: values.astype(np.int64) for name, values in inputs.items()}))

    def every_text() -> None:
        for call in calls:
            call()

    return every_text


def row_inputs(tokenizer: Any, rows: StoredRows, row: int, most: int, task_type: str) -> Any:
    """Return the inputs of a model for one row, at most ``most`` tokens; the template of a chat has written all special
    tokens already."""
    units = GRAPHS[task_type].units
    if are_chats(units):
        text = texts_as_read(units, [rows.texts[row]], tokenizer)
        return tokenizer(text, add_special_tokens=False, truncation=True, max_length=most, return_tensors="np")
    second = None if rows.pairs is None else [rows.pairs[row]]
    return batch_of(tokenizer, [rows.texts[row]], second, max_length=most, tensors="np")
