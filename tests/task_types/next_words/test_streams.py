"""Packed documents: a stream in the order of the file, whose windows are full, and nothing else of the rows changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from flows.cli.runner import planned_session
from flows.home import Home
from tasks.errors import DataError
from tasks.ports.rows.prepared import pack_train, prepare_rows
from tasks.ports.rows.table_files import write_table
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import StreamSlice
from tasks.task_types.next_words.document import LEARNED_TOKENS, in_its_frame
from tasks.task_types.next_words.streams import BORDER, bordered
from tasks.task_types.units import ModelFrame
from tasks.training.data.encoded import encode_windows
from tests.task_types.next_words.tables import byte_tokenizer, documents, write_decoder, write_documents
from tests.task_types.next_words.test_chain import values_for
from tests.task_types.next_words.test_rows import knobs


def packed(folder: Path, size: int, texts: list[str]) -> tuple[Path, Path]:
    """Return the rows of documents, and the same with packed ones."""
    write_table(folder / "train.parquet", {"text": texts})
    prepare_rows(folder / "train.parquet", knobs(folder / "train.parquet"), folder / "rows")
    pack_train(folder / "rows", StreamSlice(task_type="next-words", size=size), folder / "packed")
    return folder / "rows", folder / "packed"


def test_rows_are_joined_in_the_order_of_the_file_and_no_other_split_changes(tmp_path: Path) -> None:
    rows, streams = packed(tmp_path, 500, documents(40))
    before, after = (pq.ParquetFile(folder / "train.parquet").read().to_pydict() for folder in (rows, streams))
    assert [text for row in after["text"] for text in row.split(BORDER)] == before["text"]
    sizes = [len(text.replace(BORDER, "").encode()) for text in after["text"]]
    assert 3 < len(sizes) < len(before["text"]) / 2 and min(sizes[:-1]) >= 500
    assert max(sizes) < 500 + max(len(text.encode()) for text in before["text"])
    firsts = np.cumsum([0, *(text.count(BORDER) + 1 for text in after["text"])])[:-1]
    assert after["id"] == [before["id"][row] for row in firsts]
    counted = [np.asarray([[float(one) for one in row.split()] for row in split["label"]]) for split in (before, after)]
    np.testing.assert_allclose(counted[0].sum(0), counted[1].sum(0), atol=1e-2)
    others = [path.name for path in rows.iterdir() if path.name != "train.parquet"]
    assert "validation.parquet" in others
    assert all((rows / name).read_bytes() == (streams / name).read_bytes() for name in others)


def test_windows_of_a_stream_are_full_and_predict_each_token_once(tmp_path: Path) -> None:
    _, streams = packed(tmp_path, 10**6, documents(40))
    (text,) = pq.ParquetFile(streams / "train.parquet").read().to_pydict()["text"]
    tokenizer = byte_tokenizer(documents(40))
    found = encode_windows(tokenizer, [text], 32, LEARNED_TOKENS, None, [""])
    whole = f"<|end|>{text.replace(BORDER, '<|end|>')}<|end|>"
    stream = tokenizer(whole, add_special_tokens=False).input_ids
    windows = np.split(found.ids_S, found.offsets[1:-1])
    assert [len(one) for one in windows[:-1]] == [32] * (len(windows) - 1) and len(windows) > 20
    assert np.concatenate([windows[0], *(one[1:] for one in windows[1:])]).tolist() == stream
    assert found.windows is not None and found.windows.counts_N.tolist() == [len(stream) - 1]
    assert stream.count(tokenizer.eos_token_id) == text.count(BORDER) + 2


@pytest.mark.parametrize(
    ("begin", "whole"),
    [("<s>", "<s>a</s><s>b</s>"), ("</s>", "</s>a</s>b</s>"), (None, "</s>a</s>b</s>")],
    ids=["two", "same", "none"],
)
def test_the_tokens_of_a_border_are_those_of_the_tokenizer(begin: str | None, whole: str) -> None:
    assert in_its_frame(ModelFrame(begin, "</s>"), f"a{BORDER}b").text == whole
    assert bordered(ModelFrame(begin, "</s>"), "a") == "a"


def test_no_document_has_the_sign_of_a_border(tmp_path: Path) -> None:
    """A document with it would be read as two, and judged by tokens that it does not have."""
    write_table(tmp_path / "train.parquet", {"text": [*documents(9), f"a{BORDER}b"]})
    with pytest.raises(DataError, match="row 10: the text in column 'text' contains the character NUL"):
        prepare_rows(tmp_path / "train.parquet", knobs(tmp_path / "train.parquet"), tmp_path / "rows")


def test_packed_rows_beside_text_that_is_read_row_by_row_are_refused(tmp_path: Path) -> None:
    values = values_for(tmp_path, tmp_path)
    values["data"]["packed"] = True
    with pytest.raises(ValidationError, match="texts of transfer are read one by one; remove one of the two"):
        Recipe.model_validate(values | {"transfer": {"source": "texts.txt"}})


@pytest.mark.parametrize("kind", ["chats", "masked-words"])
def test_rows_of_other_types_are_not_packed(kind: str, tmp_path: Path) -> None:
    values = values_for(tmp_path, tmp_path)
    metrics = ["masked_perplexity"] if kind == "masked-words" else ["word_perplexity"]
    values["task"] = {"name": "words", "kind": kind, "metrics": metrics}
    values["data"]["packed"] = True
    values["layer_dropping"] |= {"signal": "labels"}
    values["gate"] = {"split": "validation"}
    sentence = f"a task of {kind}, .*remove packed, which is for tasks of type next-words"
    with pytest.raises(ValidationError, match=sentence):
        Recipe.model_validate(values)


def test_packed_rows_are_another_stage_and_the_prepared_ones_stay(tmp_path: Path) -> None:
    values = values_for(write_decoder(tmp_path / "decoder"), write_documents(tmp_path / "table"))
    home = Home(tmp_path / "home").create()
    keys = list[dict[str, str]]()
    for is_packed in (False, True):
        values["data"]["packed"] = is_packed
        planned = planned_session(Recipe.model_validate(values), home)
        keys.append({one.name: one.key for one in planned.records if not one.label})
    assert keys[0]["prepare-rows"] == keys[1]["prepare-rows"]
    assert {*keys[1]} - {*keys[0]} == {"pack-rows"}
