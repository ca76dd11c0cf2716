"""Chats as rows: how they are stored and counted, hostile ones, which overlap, and what a table is guessed to be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.inference.inputs import text_inputs
from flows.recipes.starter import starter_recipe
from tasks.errors import DataError
from tasks.ports.rows.overlap import folded
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.table_files import write_table
from tasks.ports.rows.tables import read_texts
from tasks.recipe.slices import RowsSlice
from tasks.task_types.chats.rows import READER
from tasks.task_types.interfaces import TableRows
from tasks.task_types.next_words.rows import READER as DOCUMENTS
from tasks.task_types.texts.messages import chat_asked, chat_in_cell, messages_in, said_by_assistant, stored_chat
from tests.task_types.chats.tables import chats, write_chats

ASKED = [{"role": "user", "content": "How are you?\n\nTell me."}, {"role": "assistant", "content": " Fine.\n"}]
STORED = "␞user␟ How are you?\n\nTell me.\n␞assistant␟  Fine.\n"


def knobs(path: Path) -> RowsSlice:
    task = {"name": "chats", "kind": "chats", "text": "messages"}
    return RowsSlice.model_validate({"task": task, "source": str(path), "selection_rows": 0, "validation_share": 0.2})


def test_a_chat_is_stored_as_a_text_and_read_back_to_the_letter() -> None:
    assert chat_in_cell("f", "c", 1, ASKED) == chat_in_cell("f", "c", 1, json.dumps(ASKED)) == STORED
    found = messages_in(STORED)
    assert [{"role": one.role, "content": one.content} for one in found] == ASKED
    assert [STORED[one.begin : one.end] for one in found] == [one["content"] for one in ASKED]
    assert [STORED[one.sign] for one in found] == ["␞", "␞"]
    names = [{"from": "human", "value": "How are you?\n\nTell me."}, {"from": "gpt", "value": " Fine.\n"}]
    assert chat_in_cell("f", "c", 1, names) == STORED


def test_a_user_asks_by_a_text_or_by_messages() -> None:
    assert chat_asked("How are you?") == "␞user␟ How are you?" and chat_asked(STORED) == STORED
    assert chat_asked(json.dumps(ASKED)) == STORED
    with pytest.raises(DataError, match="the text: .* is no chat; write a list of messages as JSON"):
        chat_asked('[{"role": "user"')


def test_what_the_assistant_says_is_counted() -> None:
    rows = TableRows("f", {"text": "messages", "label": "label"}, {"text": [STORED, "␞user␟ a b\n␞assistant␟ a"]})
    answers = TableRows("f", {"text": "messages", "label": "label"}, {"text": [" Fine.\n", "a"]})
    assert READER.labels(rows, None) == DOCUMENTS.labels(answers, None)
    assert said_by_assistant(stored_chat([("assistant", "a"), ("user", "b"), ("assistant", "c d")])) == "a\nc d"


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ([{"role": "user", "content": "a"}], "row 9, column 'messages': the chat has no message of the assistant"),
        ("hello", "'hello' is no chat; write a list of messages as JSON"),
        ('{"role": "user"}', "{'role': 'user'} is no list of messages"),
        ("[]", "row 9: the text in column 'messages' is empty"),
        (
            [{"role": "robot", "content": "a"}],
            "message 1: the role is 'robot'; the roles of a chat are system, ",
        ),
        ([{"role": "assistant"}], "message 1: the content is None; a content is a text"),
        ([{"role": "assistant", "content": "a␞b"}], "the content has the sign ␞ or ␟"),
        ('["a"]', "message 1: 'a' is no message; a message is a mapping with a role and a content"),
        ('[{"role": "assistant", "content": [{"type": "image"}]}]', r"the content is \[\{'type': 'image'\}\]"),
        (None, "row 9: the text in column 'messages' is empty"),
    ],
)
def test_hostile_chats_have_a_sentence_each(cell: Any, sentence: str, tmp_path: Path) -> None:
    is_text = cell is None or isinstance(cell, str)
    good = [json.dumps(chat) if is_text else chat for chat in chats(12)]
    write_table(tmp_path / "train.parquet", {"messages": [*good[:8], cell, *good[8:]]})
    with pytest.raises(DataError, match=sentence):
        prepare_rows(tmp_path / "train.parquet", knobs(tmp_path / "train.parquet"), tmp_path / "rows")


def test_the_assistant_s_words_alone_have_answers_of_a_teacher(tmp_path: Path) -> None:
    """A plan counted those of users, too: of long documents with short answers some 25 times the room."""
    rows = [
        [
            {"role": "user", "content": " ".join(f"word{n}x{place}" for place in range(50))},
            {"role": "assistant", "content": f"an answer {n}"},
        ]
        for n in range(100)
    ]
    write_table(tmp_path / "chats.parquet", {"messages": rows})
    path = tmp_path / "chats.parquet"
    assert prepare_rows(path, knobs(path), tmp_path / "rows").words_to_write == 3.0


def test_an_instruction_in_common_is_no_overlap(tmp_path: Path) -> None:
    """All chats with an instruction share more than eight words of it, and none is removed; the same question and
    answer is one, whoever says it."""
    prepare_rows(write_chats(tmp_path / "table"), knobs(tmp_path / "table"), tmp_path / "rows")
    assert [len(read_split(tmp_path / "rows", split).texts) for split in ("train", "validation")] == [96, 24]
    assert folded("␞system␟ Be brief.\n␞user␟ Hi\n␞assistant␟ A b") == "hi a b"


def test_a_table_of_messages_is_guessed_and_its_texts_are_read(tmp_path: Path) -> None:
    table = write_chats(tmp_path / "table")
    written = starter_recipe(table, tmp_path / "own.yaml")
    text = str(written)
    assert "kind: chats" in text and "text: messages" in text
    assert messages_in(chat_asked(read_texts(table, "messages")[0][0]))[-1].role == "assistant"


def test_a_table_to_predict_names_no_column_of_messages_or_of_words(tmp_path: Path) -> None:
    write_table(tmp_path / "chats.parquet", {"messages": [ASKED], "number": [1]})
    found = text_inputs(str(tmp_path / "chats.parquet"), stdin=sys.stdin)
    assert found.text == "messages" and [chat_asked(text) for text in found.texts] == [STORED]
    write_table(tmp_path / "words.parquet", {"tokens": [["New York", "is", "big"]]})
    assert text_inputs(str(tmp_path / "words.parquet"), stdin=sys.stdin).texts == ["New\u00a0York is big"]
