"""Outputs of models for rows whose units have an answer each: texts are read in windows, and each unit is answered at
one token of one of them; units that are read apart are asked as pairs of texts. Shape letters: F windows, T tokens of a
window, C outputs of a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.task_types.common_head import words_at_a_token
from tasks.task_types.units import (
    Conclusions,
    Parts,
    StatedEntries,
    Units,
    Writing,
    by_row,
    concluded_rows,
    hidden_id,
    place_units,
    ragged_array,
    require_places,
    tokens_in_windows,
)

WINDOWS_AT_ONCE = 64
"""Windows of texts that a checkpoint reads at once, as many as rows."""
NUMBERS_AT_ONCE = 2**25
"""Numbers about a vocabulary that a checkpoint returns at once, 128 megabytes: fewer windows where it has many words.
It returns them for a window at least."""


@dataclass(frozen=True)
class ReadTexts:
    """Texts as a model reads them: the inputs of its windows, padded, by name."""

    inputs: Any
    text_F: np.ndarray
    """The position of the text of each window."""
    places_FT2: Sequence[np.ndarray]
    """Beginning and end of each token in its text, of a pair in the second one; both are 0 for special tokens and
    padding of a text alone."""


TextReader = Callable[[Sequence[str], Sequence[str] | None], ReadTexts]
"""Returns texts, and second texts if there are any, as a model reads them."""


def read_by_transformers(
    tokenizer: Any, texts: Sequence[str], max_length: int, units: Units, pairs: Sequence[str] | None = None
) -> ReadTexts:
    """Return texts as a checkpoint reads them. Raises ModelError for a tokenizer that does not tell the places of its
    tokens."""
    require_places(tokenizer)
    return ReadTexts(*tokens_in_windows(tokenizer, texts, pairs, max_length, units, padding=True, return_tensors="pt"))


def outputs_of_units(
    units: Units,
    texts: Sequence[str],
    names: Sequence[str],
    *,
    read: TextReader,
    ask: Callable[[Any], Mapping[str, np.ndarray | Sequence[np.ndarray]]],
    together: int,
    pairs: Sequence[str] | None = None,
    stated: StatedEntries | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return the outputs of the units of every text by name, an array [N] of arrays [U, …] in text order, and what is
    concluded from them; ``together`` texts of like length are read at once. A unit without a token has zeros.

    ``stated`` is the config of the model, or the card of its export.
    """
    units_in = texts if pairs is None else pairs
    order = sorted(range(len(texts)), key=lambda row: len(units_in[row])) if together > 1 else list(range(len(texts)))
    found: dict[str, list[Any]] = {name: [None] * len(texts) for name in names}
    concluded: list[Conclusions] = [{}] * len(texts)
    for start in range(0, len(order), together):
        rows = order[start : start + together]
        seen = read([texts[row] for row in rows], None if pairs is None else [pairs[row] for row in rows])
        placed = list[tuple[list[int], list[np.ndarray], np.ndarray]]()
        for place, row in enumerate(rows):
            windows = np.flatnonzero(seen.text_F == place).tolist()
            found_there = place_units(units, units_in[row], [seen.places_FT2[window] for window in windows])
            placed.append((windows, *found_there))
            if units.are_hidden:
                hide(seen.inputs, windows, found_there[0])
        outputs = ask(seen.inputs)
        for row, (windows, answered, places_U3) in zip(rows, placed, strict=True):
            for name in names:
                found[name][row] = gathered([outputs[name][window] for window in windows], answered, len(places_U3))
            if units.conclude is not None:
                own = {name: found[name][row] for name in names}
                concluded[row] = units.conclude(own, places_U3, units_in[row], stated or {})
        report(start + len(rows))
    return {**{name: ragged_array(rows) for name, rows in found.items()}, **concluded_rows(concluded)}


def hide(inputs: Any, windows: Sequence[int], answered: Sequence[np.ndarray]) -> None:
    """Hide the tokens that answer a unit in the windows of one text, in place."""
    for window, unit_T in zip(windows, answered, strict=True):
        ids_T, at = inputs["input_ids"][window], np.flatnonzero(unit_T >= 0)
        ids_T[at] = hidden_id(ids_T[at])


def outputs_of_parts(
    parts: Parts,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    ask: Callable[[Sequence[str], Sequence[str], Callable[[int], None]], Mapping[str, np.ndarray]],
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return the outputs of the units of every row by name, an array [N] of arrays [U, C]; ``ask`` returns those of
    pairs of texts [U, C], and counts them where it reports."""
    own, second, counts_N = parts.read(texts, pairs)
    found = ask(own, second, lambda done: report(done * len(texts) // max(1, len(own))))
    return {name: by_row(values, counts_N) for name, values in found.items()}


def gathered(outputs: Sequence[np.ndarray], answered: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Return the outputs [U, …] of a text's units from those of its windows [T, …]."""
    found = np.zeros((count, *outputs[0].shape[1:]), dtype=np.float32)
    for output_T, unit_T in zip(outputs, answered, strict=True):
        found[unit_T[unit_T >= 0]] = output_T[np.flatnonzero(unit_T >= 0)]
    return found


def written_by_checkpoint(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int,
    write: Callable[[Any, Any, Any, Writing], Any],
    writing: Writing,
    *,
    together: int,
    report: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Return the text that a checkpoint writes of each source [N]; ``together`` sources of like length are read at
    once."""
    import torch

    order, found = sorted(range(len(texts)), key=lambda row: len(texts[row])), [""] * len(texts)
    for start in range(0, len(order), together):
        rows = order[start : start + together]
        options = {"max_length": max_length, "truncation": True, "padding": True, "return_tensors": "pt"}
        batch = tokenizer([texts[row] for row in rows], **options)
        with torch.inference_mode():
            ids_BL = write(model, batch["input_ids"], batch["attention_mask"], writing)
        own = tokenizer.batch_decode(ids_BL, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for row, text in zip(rows, own, strict=True):
            found[row] = text.strip()
        report(start + len(rows))
    return np.asarray(found, dtype=str)


def outputs_of_checkpoint_units(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    names: Sequence[str],
    max_length: int,
    units: Units,
    *,
    together: int,
    pairs: Sequence[str] | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return a checkpoint's outputs of the units of every text; ``together`` texts are read at once."""
    import torch

    def ask(inputs: Any) -> Mapping[str, np.ndarray | Sequence[np.ndarray]]:
        parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
        count, length = inputs["input_ids"].shape
        at_once = min(WINDOWS_AT_ONCE, max(1, NUMBERS_AT_ONCE // (length * words_at_a_token(model))))
        for start in range(0, count, at_once):
            some = {name: values[start : start + at_once] for name, values in inputs.items()}
            with torch.inference_mode():
                found = model(**some)
            for name in names:
                parts[name].append(found[name].numpy())
        return {name: np.concatenate(values) for name, values in parts.items()}

    def read(some: Sequence[str], seconds: Sequence[str] | None) -> ReadTexts:
        return read_by_transformers(tokenizer, some, max_length, units, seconds)

    return outputs_of_units(
        units,
        texts,
        names,
        read=read,
        ask=ask,
        together=together,
        pairs=pairs,
        stated=model.config.to_dict(),
        report=report,
    )
