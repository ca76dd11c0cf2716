"""``limbeck predict`` on a file by a model of every task type: a csv and JSON Lines with the same rows, written as each
of the two writes them, have the same predictions beside the columns that they came with; and the program on the card of
such a model, which runs where our code is not."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from transformers import AutoConfig

from flows.inference.inputs import inputs_of_texts, text_inputs
from flows.inference.predictions import answers_to, asked_of, json_lines, save_predictions
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.tables import read_as_written
from tasks.report.model_card import TEMPLATE, usage
from tasks.report.tables.exports_section import snippet
from tasks.scoring.predict import predict_texts
from tasks.task_types.heads import HEADS
from tasks.task_types.spans.passage import STATED_THRESHOLD
from tasks.task_types.texts.json_cells import decoded_cells
from tasks.task_types.tokens.sentence import as_words
from tasks.task_types.types import TASK_TYPES
from tasks.training.data.rows import load_tokenizer
from tasks.training.models.students import save_model
from tests.command_line import command_line
from tests.forked.strangers import ask_stranger
from tests.scoring.small import write_classifier
from tests.task_types.chats.tables import write_answering
from tests.task_types.masked_words.tables import write_encoder
from tests.task_types.next_words.tables import write_decoder
from tests.task_types.seq2seq.tables import write_translator

WRITERS = {
    "next-words": write_decoder,
    "chats": write_answering,
    "masked-words": write_encoder,
    "seq2seq": write_translator,
}
"""Types whose models are no encoders of texts with a head, and what writes one."""
LABELS = {"tokens": ["O", "B-ART", "I-ART"], "regression": ["value"]}
GOOD, BAD = "the film was good", "a song was not very good"
TEXTS = (["text"], [[GOOD], [BAD]], [{"text": GOOD}, {"text": BAD}], [], [])
CHATS = [
    [{"role": role, "content": text} for role, text in (("user", GOOD), ("assistant", one))] for one in (GOOD, BAD)
]
CASES: dict[str, tuple[Any, set[str]]] = {
    "classification": (TEXTS, {"label", "score"}),
    "regression": (TEXTS, {"value"}),
    "multi-label": (TEXTS, {"labels", "score_bad", "score_good"}),
    "embedding": (TEXTS, {"embedding"}),
    "next-words": (TEXTS, {"log_likelihood", "tokens"}),
    "masked-words": (TEXTS, {"log_likelihood", "masked_perplexity"}),
    "tokens": ((["tokens"], [[GOOD], [BAD]], [{"tokens": one.split()} for one in (GOOD, BAD)], [], []), {"entities"}),
    "seq2seq": ((["source"], [[GOOD], [BAD]], [{"source": GOOD}, {"source": BAD}], [], []), {"written"}),
    "chats": (
        (["messages"], [[json.dumps(chat)] for chat in CHATS], [{"messages": chat} for chat in CHATS], [], []),
        {"log_likelihood", "tokens"},
    ),
    "spans": (
        (
            ["question", "context"],
            [["was it good", GOOD], ["was it bad", BAD]],
            [{"question": "was it good", "context": GOOD}, {"question": "was it bad", "context": BAD}],
            [],
            [],
        ),
        {"answer", "start", "end", "score", "no_answer"},
    ),
    "choices": (
        (
            ["asked", "a", "b"],
            [["which", GOOD, BAD], ["it was", BAD, GOOD]],
            [{"asked": "which", "options": [GOOD, BAD]}, {"asked": "it was", "options": [BAD, GOOD]}],
            ["--text", "asked", "--pair", "{a | b}"],
            ["--text", "asked", "--pair", "options"],
        ),
        {"choice", "option", "score", "scores"},
    ),
    "ranking": (
        (
            ["query", "first", "second"],
            [["which", GOOD, BAD], ["it was", BAD, GOOD]],
            [{"query": "which", "found": [GOOD, BAD]}, {"query": "it was", "found": [BAD, GOOD]}],
            ["--text", "query", "--pair", "{first | second}"],
            ["--text", "query", "--pair", "found"],
        ),
        {"order", "scores"},
    ),
}
"""By type: the columns and rows of a csv, the rows of JSON Lines, further words of both commands; what is predicted."""


def write_of_type(folder: Path, kind: str) -> Path:
    """Write a random model of a task type as a training leaves it; return its folder."""
    base = WRITERS[kind](folder, layers=1) if kind in WRITERS else write_classifier(folder)
    config, labels = AutoConfig.from_pretrained(base), LABELS.get(kind, ["bad", "good"])
    config.id2label, config.label2id = dict(enumerate(labels)), {name: number for number, name in enumerate(labels)}
    HEADS[kind].configure(config, labels)
    if kind == "spans":  # a finished model states one
        setattr(config, STATED_THRESHOLD, 0.0)
    as_it_is = kind in WRITERS or kind == "embedding"
    models = HEADS[kind].auto_class()
    model = models.from_pretrained(base, config=config) if as_it_is else models.from_config(config)
    save_model(model, load_tokenizer(base), folder)
    return folder


def test_every_type_has_a_case() -> None:
    assert {*CASES} == {*TASK_TYPES} - {"retrieval"}, "its models are those of embedding"


@pytest.mark.parametrize("kind", CASES)
def test_a_csv_and_json_lines_have_the_same_predictions(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (columns, cells, rows, of_csv, of_lines), wanted = CASES[kind]
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_of_type(tmp_path / "model", kind)
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells]
    lines = [",".join(["id", *columns]), *(f"00{number},{row}" for number, row in enumerate(quoted))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    given = [{"id": f"00{number}", **row} for number, row in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    found = list[list[dict[str, Any]]]()
    for file, words, own in (("rows.csv", of_csv, columns), ("rows.jsonl", of_lines, list(rows[0]))):
        done = command_line(monkeypatch, capsys)("predict", "model", file, *words)
        assert done.status == 0, done.error
        read = [json.loads(line) for line in done.output.splitlines()]
        assert [row["id"] for row in read] == ["000", "001"] and all({*own} <= {*row} for row in read)
        found.append([{name: value for name, value in row.items() if name not in ("id", *own)} for row in read])
    assert found[0] == found[1] and all({*row} >= wanted and None not in row.values() for row in found[0])
    if kind not in ("tokens", "spans", "seq2seq"):  # a random model may find nothing in both, or write one text
        assert found[0][0] != found[0][1]


def test_numbers_that_json_does_not_have_are_null(tmp_path: Path) -> None:
    """A column of the user's own with NaN made lines that no reader of JSON accepts."""
    rows = {"text": ["a", "b"], "own": [float("nan"), 2.5], "list": [[1.0, float("inf")], [2.0]]}
    lines = list(json_lines(pa.table(rows)))
    for line in lines:
        json.loads(line, parse_constant=pytest.fail)
    assert [json.loads(line)["own"] for line in lines] == [None, 2.5] and json.loads(lines[0])["list"] == [1.0, None]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_values_of_several_types_come_back_as_they_were(ending: str, tmp_path: Path) -> None:
    """A number among texts made every text of its column its own JSON, in quotes, which was then predicted."""
    rows = [{"text": "fine", "own": "x"}, {"text": 12, "own": {"a": [1, "y"]}}, {"text": "poor", "own": None}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    inputs = text_inputs(str(tmp_path / "rows.jsonl"), stdin=io.StringIO())
    assert inputs.texts == ["fine", "12", "poor"]
    save_predictions(inputs.table, out := tmp_path / f"out.{ending}")
    if ending == "csv":
        with out.open(newline="") as lines:
            assert [row["own"] for row in csv.DictReader(lines)] == ["x", '{"a": [1, "y"]}', ""]
    else:
        read = read_as_written(out)
        assert decoded_cells(read.column("own")) == [row["own"] for row in rows]
        assert decoded_cells(read.column("text")) == ["fine", "12", "poor"]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_answers_that_are_lists_are_json_in_a_csv(ending: str, tmp_path: Path) -> None:
    """The file was refused after everything had been predicted."""
    table = pa.table({"text": ["a", "b"], "entities": [[{"text": "Zürich", "start": 3}], None], "score": [0.5, 1.0]})
    save_predictions(table, tmp_path / f"out.{ending}")
    with (tmp_path / f"out.{ending}").open(newline="") as lines:
        first, second = csv.DictReader(lines, delimiter="," if ending == "csv" else "\t")
    assert json.loads(first["entities"]) == [{"text": "Zürich", "start": 3}]
    assert second["entities"] == "" and first["text"] == "a"


def test_a_passage_of_several_lines_is_one_text_to_rank(tmp_path: Path) -> None:
    """Its lines were ranked as texts of their own; in a training it is written on one line."""
    folder = write_of_type(tmp_path / "model", "ranking")
    broken, plain = (inputs_of_texts(["which"], [f"{GOOD}{sign}{BAD}"]) for sign in ("\n", " "))
    (answer,) = answers_to(folder, broken)
    assert [answer] == answers_to(folder, plain) and len(answer["scores"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["tokens", "seq2seq", "next-words"])
def test_a_second_text_is_refused_by_models_that_read_one(kind: str, tmp_path: Path) -> None:
    """It was read in place of the first one, or not at all."""
    folder = write_of_type(tmp_path / "model", kind)
    with pytest.raises(DataError, match=f"of type {kind} reads one text, and a second one is given"):
        answers_to(folder, inputs_of_texts([GOOD], [BAD]))


def test_words_of_a_csv_are_those_on_which_a_model_was_judged(tmp_path: Path) -> None:
    """A column of words with spaces between them divides them; another text is divided at its signs."""
    folder = write_of_type(tmp_path / "model", "tokens")
    for column, words in (("tokens", ["the", "u.s.", "film)"]), ("text", ["the", "u.s", ".", "film", ")"])):
        (tmp_path / "rows.csv").write_text(f"{column}\nthe u.s. film)\n")
        inputs = text_inputs(str(tmp_path / "rows.csv"), text=column, stdin=sys.stdin)
        assert [as_words(text).split() for text in asked_of(folder, inputs).texts] == [words]


def test_programs_on_a_card_ask_as_the_model_was_trained() -> None:
    """With the words before a query, and a note on texts of several columns."""
    query = TaskSpec(name="mine", kind="ranking", text="query: {query}", pair="{texts[]}")
    for program in (usage(query), snippet(query, "onnx.onnx")):
        assert (
            'query, *texts = "query: some query", "first text", "second text"\n' in program
            and '"some query"' not in program
        )
    asked = TaskSpec(name="mine", kind="choices", text="context", pair="{question} {choices[]}")
    assert usage(asked).startswith('# second texts are written as "{question} {choices[]}"\n')
    assert "are written as" not in usage(asked.model_copy(update={"pair": "{choices[]}"}))


@pytest.mark.parametrize("kind", ["next-words", "chats"])
def test_a_program_that_writes_on_reads_the_end_of_a_long_text(kind: str) -> None:
    """A prompt longer than a judged window was cut at its end, and its beginning was continued."""
    program = snippet(TaskSpec(name="mine", kind=kind), "model.onnx")
    assert program.index("enable_truncation") < program.index("no_truncation()") < program.index("tokens = ")


def printed_by_card(kind: str, folder: Path, pair: str | None) -> str:
    """Return what the program on the card of a model of a type prints, in a process that has none of our code."""
    task = TaskSpec(name="mine", kind=kind, pair=pair)
    lines = TEMPLATE.split("```python\n")[1].split("```")[0]
    program = lines.format(register="", auto_class=TASK_TYPES[kind].auto_class, use=usage(task))
    done = ask_stranger(program.replace("FOLDER", str(folder)), folder=folder)
    assert done.returncode == 0, program + done.stderr[-2000:]
    return done.stdout.strip()


@pytest.mark.parametrize("kind", CASES)
def test_the_program_on_a_card_runs_without_our_code(kind: str, tmp_path: Path) -> None:
    """It prints what ``limbeck predict`` says of the same text, where both say it in the same words."""
    folder, pairs = write_of_type(tmp_path / "model", kind), kind in ("choices", "ranking", "spans")
    printed = printed_by_card(kind, folder, "second" if pairs else None)
    assert printed or kind == "tokens", "a random model may find no entity"
    if kind in ("classification", "regression", "multi-label", "embedding"):
        (one,) = predict_texts(folder, ["some text"])
        if kind == "classification":
            assert printed == one["label"]
        elif kind == "regression":
            assert float(printed) == pytest.approx(one["value"], abs=1e-5)
        elif kind == "multi-label":
            assert json.loads(printed.replace("'", '"')) == [name for name in str(one["labels"]).split("|") if name]
        else:
            assert json.loads(printed) == pytest.approx(one["embedding"], abs=2e-6)
