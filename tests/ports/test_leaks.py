"""Rows that judge and are also learned from."""

from __future__ import annotations

from pathlib import Path

from tasks.ports.leaks import leaked, normal, together
from tasks.ports.tables import prepare_rows, prepare_transfer
from tasks.recipe import Data, RowsSlice
from tests.contenders import recipe_for


def test_case_width_and_white_space_make_no_other_text() -> None:
    assert normal("  The\tFILM\u00a0was \uff47ood ") == normal("the film was good") != normal("the film was good.")
    assert normal("Straße") == normal("STRASSE") and normal(None) == ""


def test_rows_are_counted_by_split_and_pairs_as_pairs() -> None:
    learned = together(["a", "b"], ["x", "y"])
    judging = {"validation": together(["A", "a", "a ", "b"], ["x", "y", "X", "x"]), "holdout": together(["b"], ["Y"])}
    assert leaked(learned, judging) == {"validation": 2, "holdout": 1}


def write(folder: Path, validation: list[str]) -> Path:
    folder.mkdir()
    train = [f"the film {number} was {word},{word}" for number in range(20) for word in ("good", "bad")]
    (folder / "train.csv").write_text("\n".join(["text,label", *train]) + "\n")
    (folder / "validation.csv").write_text("\n".join(["text,label", *validation]) + "\n")
    return folder


def test_the_preparation_of_rows_says_how_many_leak_and_what_judges(tmp_path: Path) -> None:
    spec = recipe_for().spec
    knobs = RowsSlice(**dict(Data(selection_rows=0)), task=spec)
    clean = [f"a song {number} was {word},{word}" for number in range(3) for word in ("good", "bad")]
    facts = prepare_rows(write(tmp_path / "one", ["The  film 3 was GOOD,good", *clean]), spec, knobs, tmp_path / "rows")
    assert facts["leaked"] == {"validation": 1}
    again = prepare_rows(write(tmp_path / "two", ["The  film 3 was GOOD,good", *clean]), spec, knobs.model_copy(update={"train_rows": 10}), tmp_path / "again")
    assert again["rows_sha256"] == facts["rows_sha256"], "ids move with the number of training rows; the rows that judge are the same"
    other = prepare_rows(write(tmp_path / "three", ["The  film 3 was GOOD,bad", *clean]), spec, knobs, tmp_path / "other")
    assert other["rows_sha256"] != facts["rows_sha256"], "another label is another row"

    (tmp_path / "text.txt").write_text("a song 1 was bad\nA SONG 2 was bad\nsomething else\n")
    assert prepare_transfer(tmp_path / "text.txt", "text", None, tmp_path / "transfer", tmp_path / "rows") == {"rows": 3, "leaked": {"validation": 2}}
