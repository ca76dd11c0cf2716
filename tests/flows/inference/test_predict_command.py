"""``limbeck predict``: one text, a pipe, a table, a registered version; rows come back as they were given."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.command_line import Done, command_line
from tests.ports.tracking.test_tracker import NAME, checkpoint, moved, new_tracker, registered
from tests.scoring.small import write_classifier

__all__ = ["checkpoint", "registered"]  # fixtures

Predict = Callable[..., Done]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("classifier"))


@pytest.fixture
def predict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Predict]:
    """Run ``limbeck predict`` in a home and a folder of its own."""
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "own-home"))
    monkeypatch.chdir(tmp_path)
    yield lambda *words, piped=None: command_line(monkeypatch, capsys)("predict", *map(str, words), piped=piped)


def rows_of(ended: Done) -> list[dict[str, Any]]:
    assert ended.status == 0, ended.error
    return [json.loads(line) for line in ended.output.splitlines()]


def test_one_text(predict: Predict, folder: Path) -> None:
    [row] = rows_of(predict(folder, "the film was good"))
    assert row["text"] == "the film was good" and row["label"].startswith("LABEL_") and 0.5 <= row["score"] <= 1
    [pair] = rows_of(predict(folder, "the film", "--second", "was good"))
    assert pair["pair"] == "was good" and pair["score"] != row["score"]


def test_one_text_and_lines_are_put_into_a_template(predict: Predict, folder: Path) -> None:
    """The template was left out for one text, so that an embedder was asked without its prompt."""
    [plain] = rows_of(predict(folder, "film: good"))
    [framed] = rows_of(predict(folder, "good", "--text", "film: {words}"))
    assert (framed["words"], framed["score"]) == ("good", plain["score"])
    [piped] = rows_of(predict(folder, "-", "--text", "film: {words}", piped="good\n"))
    assert piped == framed
    [pair] = rows_of(predict(folder, "the film", "--second", "good"))
    [both] = rows_of(predict(folder, "film", "--second", "good", "--text", "the {a}", "--pair", "b"))
    assert both["score"] == pair["score"]


def test_a_pipe_of_lines_and_a_pipe_of_json(predict: Predict, folder: Path) -> None:
    rows = rows_of(predict(folder, "-", piped="the film was good\n\nbad plot\n"))
    assert [row["text"] for row in rows] == ["the film was good", "bad plot"]
    [row] = rows_of(predict(folder, piped='{"id": 7, "text": "bad plot"}\n'))
    assert row == {"id": 7, **rows[1]}


def test_a_table_keeps_its_columns_ids_and_rows(predict: Predict, folder: Path, tmp_path: Path) -> None:
    """An id of digits keeps its zeros, a column ``label`` its values, and a row without text its place."""
    (tmp_path / "rows.csv").write_text("id,text,label\n007,the film was good,yes\n008,,no\n009,bad,no\n")
    ended = predict(folder, "rows.csv")
    rows = rows_of(ended)
    assert [(row["id"], row["label"]) for row in rows] == [("007", "yes"), ("008", "no"), ("009", "no")]
    assert [row["predicted_label"] is None for row in rows] == [False, True, False] and "label" in rows[0]
    assert "1 row without text: their predictions are null" in ended.error


def write_chooser(tmp_path: Path) -> Path:
    """Write a random model that chooses options; return its folder."""
    from transformers import AutoConfig, BertForMultipleChoice

    from tasks.task_types.choices.head import configure_options

    folder = write_classifier(tmp_path / "chooser")
    configure_options(config := AutoConfig.from_pretrained(folder), [])
    BertForMultipleChoice(config).save_pretrained(folder)
    return folder


def test_a_question_with_options_may_lack_its_paragraph(predict: Predict, tmp_path: Path) -> None:
    """Where the second texts ask, an empty paragraph is no missing row; where options stand alone, it is."""
    folder = write_chooser(tmp_path)
    (tmp_path / "rows.csv").write_text("support,question,a,b\nthe film,was it good,yes,no\n,was it bad,yes,no\n")
    asked = predict(folder, "rows.csv", "--text", "support", "--pair", "{question} {a | b}")
    assert [row["choice"] in (0, 1) for row in rows_of(asked)] == [True, True] and "without text" not in asked.error
    alone = predict(folder, "rows.csv", "--text", "support", "--pair", "{a | b}")
    assert [row["choice"] for row in rows_of(alone)][1] is None and "1 row without text" in alone.error


def test_a_question_without_options_has_no_answer(predict: Predict, tmp_path: Path) -> None:
    """It was answered with certainty, by an option that is empty."""
    folder = write_chooser(tmp_path)
    rows = [{"asked": "was it good", "options": options} for options in (["yes", "no"], ["yes", "", "no"], [], None)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = predict(folder, "rows.jsonl", "--text", "asked", "--pair", "options")
    assert [row["choice"] is None for row in rows_of(ended)] == [False, True, True, True]
    assert "3 rows without text: their predictions are null" in ended.error


def test_texts_are_put_together_from_columns(predict: Predict, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("word,text,at,to\nfilm,the film was good,4,8\nplot,bad plot,9,13\n")
    template = "{word}: {text *at:to*}"
    rows = rows_of(predict(folder, "rows.csv", "--text", "word", "--pair", template))
    [pair] = rows_of(predict(folder, "film", "--second", "film: the * film * was good"))
    assert rows[0]["score"] == pytest.approx(pair["score"]) and {*rows[0]} >= {"word", "text", "at", "to", "label"}
    alone = rows_of(predict(folder, "rows.csv", "--text", template))
    assert [row["score"] is None for row in alone] == [False, True]  # the passage of the second row is not there
    missing = predict(folder, "rows.csv", "--text", "{word} {end}")
    assert missing.status == 1 and "no column 'end'" in missing.error


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.jsonl", "out.parquet"])
def test_predictions_become_a_table(predict: Predict, folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "rows.tsv").write_text("id\ttext\n007\tthe film was good\n008\tbad\n")
    ended = predict(folder, "rows.tsv", "--output", name)
    assert ended.status == 0 and f"wrote {name}: 2 rows" in ended.output
    path = tmp_path / name
    if path.suffix == ".parquet":
        found = pq.read_table(path).to_pylist()
    elif path.suffix == ".jsonl":
        found = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        found = list(csv.DictReader(path.open(), delimiter="\t" if path.suffix == ".tsv" else ","))
    assert [row["id"] for row in found] == ["007", "008"] and set(found[0]) == {"id", "text", "label", "score"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["own-home", "rows.tsv", name])


def test_a_registered_version_without_a_pull(
    predict: Predict, registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = moved(registered, tmp_path)
    monkeypatch.setenv("LIMBECK_HOME", str(home))
    [row] = rows_of(predict(f"{NAME}@champion", "a good film"))
    assert row["label"] in ("good", "bad")
    new_tracker(home).client.set_model_version_tag(NAME, "1", "gate", "refused")
    new_tracker(home).client.set_model_version_tag(NAME, "1", "gate.reasons", '["accuracy is too low"]')
    ended = predict(f"{NAME}@1", "a good film")
    assert rows_of(predict(f"models:/{NAME}/1", "a good film")) == [row], "MLflow's own name of the version"
    assert rows_of(ended) == [row] and f"{NAME} version 1 was REFUSED by the gate: accuracy is too low" in ended.error
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]


def test_pulling_a_refused_version_says_so(
    registered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = moved(registered, tmp_path)
    monkeypatch.setenv("LIMBECK_HOME", str(home))
    new_tracker(home).client.set_model_version_tag(NAME, "1", "gate", "refused")
    ended = command_line(monkeypatch, capsys)("pull", f"{NAME}@1", str(tmp_path / "model"))
    assert ended.status == 0 and "version 1 was REFUSED by the gate: no reason is recorded" in ended.output


MISTAKES = {
    "a missing file": (["texts.csv"], "the file 'texts.csv' does not exist; give one text"),
    "a missing column": (["rows.csv", "--text", "txt"], "rows.csv has no column 'txt'; it has id, text"),
    "a table without texts": (["empty.csv"], "empty.csv holds no text"),
    "an unknown format": (["a good film", "--output", "out.xlsx"], "out.xlsx cannot be written; name a file that ends"),
    "an unknown graph": (
        ["a good film", "--format", "int-8"],
        "'int-8' is no format of exports; did you mean int8? legal",
    ),
    "no graph": (
        ["a good film", "--format", "int8"],
        "has no exported graph; leave the format out",
    ),
    "one text for two columns": (["good", "--text", "{a}: {b}"], "--text names 2 columns (a, b), and one text has one"),
    "a second text of a table": (["rows.csv", "--second", "x"], "--pair names the column"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    predict: Predict, folder: Path, tmp_path: Path, mistake: str
) -> None:
    (tmp_path / "rows.csv").write_text("id,text\n1,good\n")
    (tmp_path / "empty.csv").write_text("id,text\n1,\n")
    words, sentence = MISTAKES[mistake]
    ended = predict(folder, *words)
    assert ended.status == 1 and ended.output == "" and sentence in ended.error
    assert ended.error.startswith("limbeck: ") and ended.error.count("\n") == 1
    assert {entry.name for entry in tmp_path.iterdir()} <= {"rows.csv", "empty.csv", "own-home"}


def test_a_model_that_is_not_there(predict: Predict) -> None:
    ended = predict("./my-modle", "a good film")
    assert ended.status == 1 and "there is no folder './my-modle'" in ended.error
    ended = predict("nothing@champion", "a good film")
    assert ended.status == 1 and "there is no registered model 'nothing'; known are none" in ended.error


def test_a_pipe_that_is_no_text(predict: Predict, folder: Path) -> None:
    assert "holds no text" in predict(folder, "-", piped="\n\n").error
    assert "line 2 of the input is not JSON" in predict(folder, piped='{"text": "a"}\nbad plot\n').error
