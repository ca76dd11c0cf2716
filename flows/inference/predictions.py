"""Predictions beside the rows that they are about, as a table or as a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.inference.inputs import TextInputs
from tasks.errors import DataError
from tasks.scoring.continuing import continued_texts
from tasks.scoring.predict import predict_texts, stored_type
from tasks.task_types.interfaces import Printed
from tasks.task_types.readers import READERS
from tasks.task_types.texts.json_cells import decoded_cells, decoded_objects, is_json

PREFIX = "predicted_"
"""Put before all names of a prediction if a column of the table has one of them, for example ``label``."""
FILE_FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


def predicted(
    folder: Path,
    inputs: TextInputs,
    max_length: int | None = None,
    export_format: str | None = None,
    new_tokens: int | None = None,
) -> Any:
    """Return the table of the inputs with the model's predictions as further columns, row by row; a row without text
    has none."""
    inputs = asked_of(folder, inputs)
    every: list[Printed | None] = [None] * inputs.table.num_rows
    answers = answers_to(folder, inputs, max_length, export_format, new_tokens)
    for row, answer in zip(inputs.filled, answers, strict=True):
        every[row] = answer
    return with_predictions(inputs.table, every)


def answers_to(
    folder: Path,
    inputs: TextInputs,
    max_length: int | None = None,
    export_format: str | None = None,
    new_tokens: int | None = None,
) -> list[Printed]:
    """Return the predictions of the rows that have a text, or with ``new_tokens`` the words by which a language model
    continues it."""
    inputs = asked_of(folder, inputs)
    rows, texts, pairs = inputs.filled, inputs.texts, inputs.pairs
    second = pairs and [pairs[row] for row in rows]
    with quiet_loading():
        if new_tokens is not None:
            written = continued_texts(folder, [texts[row] for row in rows], new_tokens, export_format)
            return [{"continuation": text} for text in written]
        return predict_texts(folder, [texts[row] for row in rows], second, max_length, export_format)


def asked_of(folder: Path, inputs: TextInputs) -> TextInputs:
    """Return inputs that know how a model reads its texts: which of them each row needs, as a question with options may
    lack its paragraph, whether lines of a second one are texts of their own, and whether the first one is a column of
    words. Raises DataError for second texts where the model reads one."""
    task_type = stored_type(folder)
    reader = READERS[task_type]
    seconds = [column for column in reader.columns if column.role == "pair"]
    if inputs.pair is not None and not seconds:
        raise DataError(
            f"a model of type {task_type} reads one text, and a second one is given; leave out --pair and --second"
        )
    inputs = replace(
        inputs,
        second_is_whole=any(column.is_gathered for column in reader.columns),
        needs_second=any(column.required for column in seconds),
        are_words=any(column.is_words and column.usual == inputs.text for column in reader.columns),
    )
    without = reader.asked_without_text
    return inputs if without is None else replace(inputs, needs_text=not without(inputs.pair))


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep transformers from displaying a bar and a report while it loads weights: those that are missing are refused
    in a sentence. Its settings are those of the caller's program again afterwards."""
    from transformers import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def with_predictions(table: Any, answers: Sequence[Printed | None]) -> Any:
    """Return a table with predictions as further columns; none of its own columns is replaced."""
    import pyarrow

    names = dict.fromkeys(name for answer in answers if answer is not None for name in answer)
    prefix = PREFIX if set(names) & set(table.column_names) else ""
    while any(f"{prefix}{name}" in table.column_names for name in names):  # the table is itself a table of predictions
        prefix += PREFIX
    for name in names:
        values = pyarrow.array([None if answer is None else answer.get(name) for answer in answers])
        table = table.append_column(f"{prefix}{name}", values)
    return table


def json_lines(table: Any) -> Iterator[str]:
    """Yield the rows of a table as JSON, each on one line; dates and the like are text, and a number that is none, or
    infinite, which JSON does not have, is null."""
    for batch in table.to_batches():
        for row in decoded_objects(batch, batch.column_names):
            yield json.dumps(in_json(row), ensure_ascii=False, default=str, allow_nan=False)


def in_json(value: Any) -> Any:
    """Return a value of a cell in which all numbers are finite, or null."""
    if isinstance(value, dict):
        return {name: in_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [in_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def require_output(file: Path, given: str | None) -> Path:
    """Return an output file; raise DataError if its ending names no format of tables, or if it is the input."""
    if file.suffix not in FILE_FORMATS:
        raise DataError(f"{file.name} cannot be written; name a file that ends in {', '.join(FILE_FORMATS)}")
    if given is not None and file.exists() and os.path.exists(given) and file.samefile(given):
        raise DataError(f"{file} is the table to predict, which would be replaced; name another file with --output")
    return file


def save_predictions(table: Any, file: Path) -> None:
    """Write a table in the format of the file's ending; an existing file is replaced once the new one is complete."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if file.suffix == ".parquet":
            pyarrow.parquet.write_table(table, temporary)
        elif file.suffix == ".jsonl":
            temporary.write_text("".join(f"{line}\n" for line in json_lines(table)), encoding="utf-8")
        else:
            options = pyarrow.csv.WriteOptions(delimiter="\t" if file.suffix == ".tsv" else ",")
            pyarrow.csv.write_csv(with_flat_cells(table), temporary, options)
        temporary.replace(file)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{file.name} cannot hold all columns ({error}); write .jsonl or .parquet") from error
    finally:
        temporary.unlink(missing_ok=True)


def with_flat_cells(table: Any) -> Any:
    """Return a table with lists and objects as JSON, for files whose cells are texts: entities, vectors and other
    answers, and columns of the input."""
    import pyarrow

    for place, field in enumerate(table.schema):
        if pyarrow.types.is_nested(field.type) or is_json(field.type):
            texts = [text_of_cell(cell) for cell in decoded_cells(table.column(place))]
            table = table.set_column(place, field.name, pyarrow.array(texts, pyarrow.string()))
    return table


def text_of_cell(cell: Any) -> str | None:
    """Return a cell as a text: a list or an object as JSON, and no cell as None."""
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)
