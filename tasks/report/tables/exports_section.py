"""The section of a model card on the exports in the model's folder: their figures, and a program that runs them without
torch and transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tasks.catalog import TaskSpec
from tasks.report.format.speeds import format_latency, format_speedup
from tasks.results.export_formats import BY_DEFAULT, EXPORT_FORMATS, IN_FULL, is_program
from tasks.results.row import ExportFacts, ResultRow
from tasks.task_types.texts.templates import beginning
from tasks.task_types.texts.truncation import TRUNCATIONS
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.views import VIEWS

TABLE = """## Exports

The same model for ONNX Runtime, in `onnx/`. Each export was compared with its source model before it was published.

| file | {headline}, {split} | MB | ms | speed-up over the fp32 PyTorch teacher | comparison with its source | runtime |
|---|---|---|---|---|---|---|
{rows}

"""
USE = """```python
{snippet}
```

It requires only {libraries} and `numpy`. {how}

"""
SCALED_BY_CALL = "onnxruntime int8 dynamic"
"""How engines are named whose activations have their scale from the values of each call."""
ALONE = "Run one text at a time to reproduce the evaluated predictions exactly: {why}."
LIKELIEST = (
    "It writes the likeliest word at each place; texts that were judged may be the best of several that were continued "
    "side by side, which `limbeck predict` does."
)
AS_SAID = "How texts were read that judged is said above."
PROGRAMS = """Files `*.pte` are programs of ExecuTorch for phones: `Runtime.get().load_program(FILE).load_method("forward")` of `executorch.runtime` takes
one text, as tensors `[1, T]` of int64 in the order of `inputs` in `onnx/onnx.json`, and returns the outputs in the order of `program_outputs`.

"""  # noqa: E501
SNIPPET = """import json

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

card = json.load(open("FOLDER/onnx/onnx.json"))
tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")
tokenizer.no_padding()
tokenizer.enable_truncation(card["max_length"])
session = onnxruntime.InferenceSession("FOLDER/onnx/{file}", providers=["CPUExecutionProvider"])
text = tokenizer.encode({text})
given = {{"input_ids": text.ids, "attention_mask": text.attention_mask, "token_type_ids": text.type_ids}}
{answer}"""


def exports_section(exports: Sequence[ResultRow], task: TaskSpec, split: str) -> str:
    """Return the section on exports; empty if none is published with the model."""
    if not exports:
        return ""
    kinds = {facts.format for facts in map(facts_of, exports)}
    rows = "\n".join(table_row(row, split) for row in exports)
    told = TABLE.format(headline=exports[0].headline, split=split, rows=rows)
    graphs = [EXPORT_FORMATS[name].file for name in BY_DEFAULT if name in kinds and not is_program(name)]
    if graphs:
        needed = ", ".join(f"`{one}`" for one in ("onnxruntime", "tokenizers", *VIEWS[task.kind].code.needs))
        told += USE.format(snippet=snippet(task, graphs[0]), how=how_to_run(task, exports), libraries=needed)
    return told + (PROGRAMS if any(map(is_program, kinds)) else "")


def how_to_run(task: TaskSpec, exports: Sequence[ResultRow]) -> str:
    """Return a sentence about what the program prints, beside the predictions that were judged."""
    if TASK_TYPES[task.kind].writes:
        return LIKELIEST
    if VIEWS[task.kind].judged:
        return AS_SAID
    is_shared = any((row.engine or "").startswith(SCALED_BY_CALL) for row in exports)
    return ALONE.format(
        why="within a batch int8 activations share one scale" if is_shared else "sums in a batch may round differently"
    )


def snippet(task: TaskSpec, file: str) -> str:
    """Return a program that runs an export."""
    code = VIEWS[task.kind].code
    text = arguments_with_prompt(task)
    program = SNIPPET.format(file=file, text=text, answer=code.export.replace("{text}", text))
    if task.truncate not in TRUNCATIONS:
        return program
    return program.replace('card["max_length"])', 'card["max_length"], strategy=card["truncation"])')


def arguments_with_prompt(task: TaskSpec) -> str:
    """Return the example of a program as the arguments of a tokenizer, with the words that the task puts before each
    text."""
    before = json.dumps(beginning(task.text), ensure_ascii=False).removesuffix('"')
    return VIEWS[task.kind].code.text(bool(task.pair)).replace('"', before, 1)


def facts_of(row: ResultRow) -> ExportFacts:
    """Return the facts of an export; a row of a model is a ValueError."""
    if row.export is None:
        raise ValueError(f"{row.name} is not an export")
    return row.export


def table_row(row: ResultRow, split: str) -> str:
    """Return one export's line of the table."""
    score, export = row.score(split).value, facts_of(row)
    shown = "—" if score is None else f"{score:.4f}"
    figures = (shown, f"{(row.bytes or 0) / 1e6:.1f}", format_latency(row), format_speedup(row, ""))
    return (
        "| " + " | ".join((f"`{EXPORT_FORMATS[export.format].file}`", *figures, held(export), row.engine or "")) + " |"
    )


def held(export: ExportFacts) -> str:
    """Return the results of the checks of parity and of speed, in words."""
    same = f"{export.equal_answers:.1%} of {export.rows:,} answers equal"
    if export.format in IN_FULL:
        return f"{same}, logits within {export.largest_difference:.1e} of the checkpoint's"
    pace = f"{export.speedup:.2f} times as fast" if export.speedup else ""
    speed = f", {'speed unsteady' if export.unsteady else pace}" if pace else ""
    full = export.fp32.score if export.fp32 else None
    return f"{same}; {export.metric} {export.score:.4f} on the selection rows, its own fp32 {full:.4f}{speed}"
