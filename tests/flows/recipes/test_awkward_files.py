"""More tables as people have them: each is read as a person would wish, or refused in one sentence, with nothing
written."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from flows.run.recipe_file import load_recipe
from tests.command_line import Command
from tests.flows.recipes.test_own_tables import lines, prepared_of, rows, started, texts


def numbered(path: Path) -> Path:
    """A table as pandas writes it: its rows are numbered in a column without a name."""
    path.write_text(lines(",text,label", "{0}", []) + "".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(rows())))
    return path


def mac(path: Path) -> Path:
    path.write_bytes(lines("text,label", "{0},{1}", rows()).replace("\n", "\r").encode())
    return path


def windows(path: Path) -> Path:
    path.write_bytes(b"\xef\xbb\xbf" + lines("text,label", "{0},{1}", rows()).replace("\n", "\r\n").encode())
    return path


def switches(path: Path) -> Path:
    path.write_text("".join(json.dumps({"text": text, "label": label == "good"}) + "\n" for text, label in rows()))
    return path


def saved_splits(path: Path) -> Path:
    data = datasets.Dataset.from_dict({"text": texts(), "label": [label for _, label in rows()]})
    datasets.DatasetDict({"train": data, "test": data.select(range(20))}).save_to_disk(str(path))
    return path


def spreadsheet(path: Path) -> Path:
    """A table with empty columns behind its own, as spreadsheets save them; one cell of them was used for a note."""
    pairs = [
        (text, f"{label},,a note," if number == 3 else f"{label},,,") for number, (text, label) in enumerate(rows())
    ]
    path.write_text(lines("v1,v2,,,", "{0},{1}", pairs))
    return path


def words_for_nothing(path: Path) -> Path:
    """Labels of which one is called nan: pandas and float() would read a number."""
    labels = ("nan", "inf", "1")
    path.write_text(lines("text,label", "{0},{1}", [(text, labels[n % 3]) for n, text in enumerate(texts())]))
    return path


@pytest.mark.parametrize(
    ("name", "write", "labels"),
    [
        ("numbered.csv", numbered, ("bad", "good")),
        ("mac.csv", mac, ("bad", "good")),
        ("windows.csv", windows, ("bad", "good")),
        ("switches.jsonl", switches, ("False", "True")),
        ("splits", saved_splits, ("bad", "good")),
        ("nothing.csv", words_for_nothing, ("1", "inf", "nan")),
        ("sheet.csv", spreadsheet, ("bad", "good")),
    ],
)
def test_an_awkward_table_is_read_whole(
    name: str, write: Callable[[Path], Path], labels: tuple[str, ...], tmp_path: Path, command: Command
) -> None:
    recipe, output = started(command, write(tmp_path / name))
    assert recipe.spec.labels == labels and "left out" not in output and "to be corrected" not in output
    assert sum(prepared_of(recipe).values()) == len(rows())


@pytest.mark.parametrize(
    ("source", "name"), [("splits", "splits"), ("Ünï çödé.csv", "uni-code"), ("!!!.csv", "mine"), ("a.b.csv", "a")]
)
def test_a_recipe_is_called_like_its_table(source: str, name: str, tmp_path: Path, command: Command) -> None:
    (saved_splits if source == "splits" else windows)(tmp_path / source)
    assert started(command, tmp_path / source)[0].name == name


@pytest.mark.parametrize(
    ("name", "body", "sentence"),
    [
        ("nested.jsonl", '{"text": "a good film", "labels": ["x"]}\n' * 40, "'labels' has 'x' in every row"),
        ("one.csv", lines("text,label", "{0},yes", rows()), "'label' has 'yes' in every row"),
        ("void.csv", lines("text,label", ",{1}", rows()), "'text' is empty"),
        ("alone.csv", lines("text", "{0}", rows()), "has the columns text, and none of them is a text beside a label"),
        ("lines.txt", lines("", "{0}", rows()), "lines.txt is read as one text a line; --task next-words"),
        (
            "comma.csv",
            lines("text;score", "{0};0,5", rows()) + "a;0,25\n" * 3,
            "decimal commas; write them with",
        ),
        ("head.csv", "text,label\n", "head.csv has no rows"),
        ("blank.csv", "\n\n\n", "blank.csv is empty"),
        ("nul.csv", lines("text,label", "{0}\0,{1}", rows()), "nul.csv is not a text file"),
        (
            "ragged.csv",
            lines("text,label", "{0}, and more,{1}", rows(3)) + lines("", "{0},{1}", rows(60)),
            "3 lines do not have 2 cells like the first line (line 2 has 3; also lines 3, 4); put texts that contain",
        ),
    ],
)
def test_a_table_without_a_task_is_refused_in_one_sentence(
    name: str, body: str, sentence: str, tmp_path: Path, command: Command
) -> None:
    (tmp_path / name).write_text(body)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        done = command("init", str(tmp_path / name))
    assert done.status == 1 and sentence in done.error and done.error.count("\n") == 1, done.error
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_labels_that_differ_in_capitals_or_spaces_alone_are_named(tmp_path: Path, command: Command) -> None:
    labels = ("good", "GOOD", "bad", "bad ")
    table = [(text, labels[number % 4]) for number, text in enumerate(texts())]
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", table))
    said = "these names of classes differ in capitals or spaces alone, and are different classes: 'GOOD'; 'good' and"
    assert said in started(command, tmp_path / "a.csv")[1]
    assert said in command("validate", str(tmp_path / "mine.yaml"), "--set", "teacher.model=bert").output


def test_rows_without_a_label_are_counted(tmp_path: Path, command: Command) -> None:
    """They were left out without a word."""
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", [*rows()[:-7], *((t, "") for t in texts()[-7:])]))
    assert "left out: 7 rows of train without a label" in started(command, tmp_path / "a.csv")[1]
    checked = command("validate", str(tmp_path / "mine.yaml"), "--set", "teacher.model=bert")
    assert "left out: 7 rows of train without a label" in checked.output


def test_a_test_file_that_no_split_is_read_from_is_named(tmp_path: Path, command: Command) -> None:
    """A person who divides rows as on the Hub expects test rows to be used; the comment in the recipe does so."""
    (folder := tmp_path / "rows").mkdir()
    for name, part in (("train", rows()[:80]), ("validation", rows()[80:100]), ("test", rows()[100:])):
        (folder / f"{name}.csv").write_text(lines("text,label", "{0},{1}", part))
    recipe, output = started(command, folder)
    assert "not read: test.csv; the rows that decide are drawn from train" in output
    assert "validation.csv: UTF-8, separated by commas, cells may be quoted; 20 rows" in output
    written = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(written.replace("# judge:", "judge:"))
    judged = load_recipe(str(tmp_path / "mine.yaml")).judging_sets
    assert not recipe.judging_sets and [(one.source, one.split) for one in judged.values()] == [(str(folder), "test")]


def test_a_table_without_a_header_is_told_which_column_has_which_name(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text(lines("", "{1},{0}", rows()))
    recipe, output = started(command, tmp_path / "a.csv")
    assert "data.format.columns names them: column_2 is text, column_1 is label" in output
    assert recipe.data.format.columns == ("label", "text")


def test_a_label_of_one_list_that_is_asked_for_is_refused(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a good film", "tags": ["x"], "label": "y"}\n' * 40)
    said = command("init", str(tmp_path / "a.jsonl"), "--label", "tags").error
    assert "the column 'tags' has one list in all rows, which teaches nothing; name another column by --label" in said


def test_too_few_rows_are_counted_in_english(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text("text,label\ngood one,yes\nbad one,no\nfine one,yes\n")
    assert "0 of 2 classes would be left" in started(command, tmp_path / "a.csv")[1]
