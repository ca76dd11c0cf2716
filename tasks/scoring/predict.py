"""Inference with a finished model, as any user of the folder would run it: a checkpoint with transformers alone, an
export with ONNX Runtime.

Outputs are arrays by name, rows first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from tasks.architectures import ModelConfig
from tasks.architectures.judged_inputs import read_judged_length, read_judged_pairs
from tasks.architectures.known_architectures import longest
from tasks.errors import DataError, ModelError
from tasks.modeling.registration import register_if_own
from tasks.recipe.distillation import Generation
from tasks.recipe.slices import OfTask
from tasks.results.export_formats import EXPORT_FORMATS
from tasks.scoring.executorch_programs import exported_model
from tasks.scoring.onnx_models import (
    OnnxModel,
    card_of,
    formats_in,
    is_export,
    require_export,
    require_export_format,
)
from tasks.scoring.windows import outputs_of_checkpoint_units, outputs_of_parts, written_by_checkpoint
from tasks.scoring.writing.graph_writer import WRITING_GRAPHS
from tasks.scoring.writing.rules import writing_of_config
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.interfaces import Card, Printed
from tasks.task_types.next_words.zero_shot import option_scores
from tasks.task_types.readers import READERS
from tasks.task_types.stored import PROMPT, STATED, type_of
from tasks.task_types.texts.truncation import batch_of
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.units import Parts, Units, Writing, flattened, texts_as_asked

BATCH = 64
MEASURED_AT_ONCE = 10_000
"""Texts whose tokens are counted at once: the tokens of millions of texts, as lists, would not fit in the memory."""
UNSTATED_LENGTH = 128
"""Longest input, in tokens, of a model whose files state none; the default of a recipe."""
NAME_SECOND = "name the second one by --pair COLUMN, or of one text by --second"
NAME_ONE = "name one column by --text, and neither --pair nor --second"


def load(folder: Path, task_type: str) -> tuple[Any, Any]:
    """Load a checkpoint folder as a model of a task type, in float32, and its tokenizer."""
    import torch
    from transformers import AutoTokenizer

    from tasks.task_types.heads import HEADS

    model, found = (
        HEADS[task_type]
        .auto_class()
        .from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    )
    # transformers initialises missing weights at random and only warns: the predictions would look like real ones.
    if found["missing_keys"]:
        raise ModelError(
            f"{folder} lacks the weights {', '.join(sorted(found['missing_keys'])[:3])}; use a model that was "
            f"fine-tuned for a task"
        )
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)


def outputs_of(
    folder: Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    *,
    task_type: str,
    threads: int = 1,
    generation: Generation | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return the outputs of a task type for every row, in row order, rows first. ``threads`` applies to an export only;
    the threads of torch are set elsewhere; ``generation`` applies to models that write."""
    graph = GRAPHS[task_type]
    if is_export(folder):
        model = exported_model(folder, threads=threads)
        outputs = outputs_of_graph(
            model, texts, pairs, max_length, task_type=task_type, generation=generation, report=report
        )
    else:
        outputs = outputs_of_checkpoint(folder, texts, pairs, max_length, task_type, generation, report)
    numbers = (outputs[one.name] for one in graph.outputs if outputs[one.name].dtype.kind != "U")
    if not all(np.isfinite(flattened(one)).all() for one in numbers):
        raise ModelError(
            f"{folder} predicts values that are not finite; its training diverged: lower the learning rate"
        )
    return outputs


def outputs_of_graph(
    model: OnnxModel,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    *,
    task_type: str,
    generation: Generation | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return a graph's outputs in row order, computed row by row; ``generation`` applies to graphs that write."""
    if task_type in WRITING_GRAPHS:
        return WRITING_GRAPHS[task_type].outputs(model, texts, max_length, generation, report)
    return model.outputs(texts, pairs, max_length, units=GRAPHS[task_type].units, report=report)


def outputs_of_checkpoint(
    folder: Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    task_type: str,
    generation: Generation | None,
    report: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """Return a checkpoint's outputs in row order; rows of similar length share a batch."""
    from tasks.task_types.heads import HEADS

    model, tokenizer = load(folder, task_type)
    graph = GRAPHS[task_type]
    write = HEADS[task_type].write
    names = [output.name for output in graph.outputs]
    max_length = longest(model.config, max_length)
    if write is not None:
        writing = writing_of(generation, model)
        found = written_by_checkpoint(
            model, tokenizer, texts, max_length, write, writing, together=BATCH, report=report
        )
        return {names[0]: found}
    if isinstance(graph.units, Parts):
        return outputs_of_parts(
            graph.units, texts, pairs, partial(ask_in_batches, model, tokenizer, max_length, names), report
        )
    if graph.units is not None:
        return outputs_of_checkpoint_units(
            model, tokenizer, texts, names, max_length, graph.units, together=BATCH, pairs=pairs, report=report
        )
    return ask_in_batches(model, tokenizer, max_length, names, texts, pairs, report)


UNTRAINED_SCORES: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "next-words": option_scores,
    "chats": option_scores,
}
"""By the type of models: their scores of options, of which they have learned nothing."""


def untrained_outputs(
    knobs: OfTask,
    folder: Path,
    parts: Parts,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return a checkpoint's outputs of rows of another type, from which it has learned nothing, rows first: scores of
    their ``parts``. ``knobs`` name its own type. Raises ModelError for scores that are not finite."""
    model, tokenizer = load(folder, knobs.task_type)
    most, units = longest(model.config, max_length), GRAPHS[knobs.task_type].units
    ask = partial(UNTRAINED_SCORES[knobs.task_type], model, tokenizer, most, units)
    found = outputs_of_parts(parts, texts, pairs, ask, report)
    if not all(np.isfinite(flattened(one)).all() for one in found.values()):
        raise ModelError(f"{folder} finds options of a judging set infinitely unlikely; lower the learning rate")
    return found


def writing_of(generation: Generation | None, model: Any) -> Writing:
    """Return how a checkpoint writes: as it is judged, or as its own folder says."""
    if generation is not None:
        return Writing(generation.beams, generation.length_penalty, generation.max_length)
    return writing_of_config(model.generation_config)


def ask_in_batches(
    model: Any,
    tokenizer: Any,
    max_length: int,
    names: Sequence[str],
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    report: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """Return a checkpoint's outputs of texts or pairs in row order; without a token to pad with, row by row."""
    import torch

    together = 1 if None in (tokenizer.pad_token_id, getattr(model.config, "pad_token_id", None)) else BATCH
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]) + (len(pairs[row]) if pairs else 0))
    found: dict[str, list[Any]] = {name: [None] * len(texts) for name in names}
    for start in range(0, len(order), together):
        rows = order[start : start + together]
        second = [pairs[row] for row in rows] if pairs else None
        batch = batch_of(tokenizer, [texts[row] for row in rows], second, max_length=max_length, tensors="pt")
        with torch.inference_mode():
            outputs = model(**batch)
        for name in names:
            for row, output in zip(rows, outputs[name].numpy(), strict=True):
                found[name][row] = output
        report(start + len(rows))
    return {name: np.stack(rows) for name, rows in found.items()}


def truncated_share(
    folder: Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    units: Units | Parts | None = None,
) -> float:
    """Return the share of rows, or of units that are read apart, that are truncated: longer than ``max_length`` tokens,
    or than the model's limit."""
    from transformers import AutoConfig, AutoTokenizer

    max_length = longest(AutoConfig.from_pretrained(folder, local_files_only=True), max_length)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    texts, pairs = texts_as_asked(units, texts, pairs)
    too_long, cuts = 0, range(0, len(texts), MEASURED_AT_ONCE)
    for some in (slice(start, start + MEASURED_AT_ONCE) for start in cuts):
        read = tokenizer(list(texts[some]), list(pairs[some]) if pairs else None, verbose=False)["input_ids"]
        too_long += sum(len(ids) > max_length for ids in read)
    return too_long / len(texts)


def predict_texts(
    folder: Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    max_length: int | None = None,
    export_format: str | None = None,
) -> list[Printed]:
    """Return the prediction of every text, as the graph of the model's task type defines it; ``max_length`` in tokens
    is by default that of the model's evaluation. Raises DataError for one text too few, or too many.

    With an ``export_format``, that graph of the folder, or of its folder ``onnx``, predicts; without, a checkpoint
    does, or the fastest graph in a folder of graphs. Raises ModelError where the folder has no such graph.
    """
    if export_format is not None:
        folder = require_export(folder, require_export_format(export_format))
    task_type, length = stored_type(folder), max_length or judged_length(folder)
    graph, written = GRAPHS[task_type], texts
    require_texts(task_type, judged_pairs(folder), pairs=pairs is not None)
    card = card_of_model(folder, task_type)
    if isinstance(graph.units, Units):
        texts = [graph.units.prepared(text) for text in written]
    if PROMPT in card:
        texts = [f"{card[PROMPT]}{text}" for text in written]
    if is_export(folder):
        outputs = outputs_of_published(folder, texts, pairs, length, export_format, task_type)
    else:
        outputs = outputs_of(folder, texts, pairs, length, task_type=task_type)
    if graph.spans is None:
        return graph.predictions(outputs, card)
    return graph.spans(outputs, card, written if pairs is None else pairs)


def require_texts(task_type: str, stated: bool | None, *, pairs: bool) -> None:
    """Raise DataError where a row has one text and the model reads two, by its type or by ``stated``, what its
    folder states of the rows of its evaluation, or the other way round; ``pairs`` tells whether rows have two."""
    columns = {column.role: column for column in TASK_TYPES[task_type].columns}
    if GRAPHS[task_type].needs_pair and not pairs:
        named = [columns[role].usual or role for role in ("text", "pair")]
        raise DataError(
            f"a model of type {task_type} reads two texts, {' and '.join(named)}, and one is given; {NAME_SECOND}"
        )
    if READERS[task_type].reads_apart and pairs:
        raise DataError(
            f"a model of type {task_type} reads one text at a time, and two are given; {NAME_ONE}: the product of two "
            f"vectors is their cosine"
        )
    if "pair" not in columns or columns["pair"].required:
        return
    # The answer to a question with one text too few, or one too many, would look like any other.
    if stated is True and not pairs:
        raise DataError(f"this model has learned from pairs of texts, and one text is given; {NAME_SECOND}")
    if stated is False and pairs:
        raise DataError(f"this model has learned from single texts, and two are given; {NAME_ONE}")


def outputs_of_published(
    folder: Path,
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    max_length: int,
    export_format: str | None,
    task_type: str,
) -> dict[str, np.ndarray]:
    """Return the outputs of one graph in a folder of published exports, by default the fastest, for every row, rows
    first."""
    found = formats_in(folder)
    if not found:
        files = ", ".join(one.file for one in EXPORT_FORMATS.values())
        raise ModelError(f"{folder} holds no graph ({files}); name the onnx folder of a pulled model")
    graph = folder / EXPORT_FORMATS[export_format or found[0]].file
    outputs = outputs_of_graph(exported_model(folder, graph=graph), texts, pairs, max_length, task_type=task_type)
    finite = [np.isfinite(flattened(one)).all() for one in outputs.values() if one.dtype.kind != "U"]
    if not all(finite):
        raise ModelError(f"{graph} predicts values that are not finite; predict with its model instead")
    return outputs


def judged_length(folder: Path) -> int:
    """Return the longest input, in tokens, at which a model was evaluated: of an export from its card, of a checkpoint
    from its config, or its tokenizer's limit; 128 where none of them states it."""
    if is_export(folder):
        return int(card_of(folder)["max_length"])
    return read_judged_length(folder, UNSTATED_LENGTH)


def judged_pairs(folder: Path) -> bool | None:
    """Return whether the rows of a model's evaluation have a second text; None where its folder does not state it."""
    return card_of(folder).get("pairs") if is_export(folder) else read_judged_pairs(folder)


def stored_type(folder: Path) -> str:
    """Return the task type of a model folder: of an export from its card, by its labels if the card does not state the
    type, so that an export needs no transformers; of a checkpoint from its config."""
    if is_export(folder):
        card = card_of(folder)
        return type_of(cast(ModelConfig, {STATED: card.get(STATED), "num_labels": len(card["labels"] or [""])}))
    register_if_own([folder])
    from transformers import AutoConfig

    return type_of(AutoConfig.from_pretrained(folder, local_files_only=True).to_dict())


def card_of_model(folder: Path, task_type: str) -> Card:
    """Return an export's card, or for a checkpoint what its card would say of its outputs."""
    if is_export(folder):
        return card_of(folder)
    from transformers import AutoConfig

    return GRAPHS[task_type].card(AutoConfig.from_pretrained(folder, local_files_only=True))
