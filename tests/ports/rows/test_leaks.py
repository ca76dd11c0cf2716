"""Held-out rows that overlap with what is learned from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.recipes.checks import planned_facts
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.data_leakage import leaked
from tasks.ports.rows.overlap import sentences_of
from tasks.ports.rows.prepared import leakage_of_corpus, prepare_rows, prepare_transfer
from tasks.ports.rows.row_files import read_texts
from tasks.ports.rows.seen import learned_digests, read_sentences, rows_seen
from tasks.recipe.slices import RowsSlice
from tasks.report.tables.held_back import choice_lines, group_lines, held_back_lines
from tests.contenders import recipe_for


def test_rows_are_counted_by_split_and_pairs_by_their_sentences() -> None:
    held = {"validation": sentences_of(["A", "c", "a "], ["x", "y", "z"]), "holdout": sentences_of(["d"], ["Y"])}
    assert leaked(sentences_of(["a", "b"], ["u", "y"]), held) == {"validation": 3, "holdout": 1}
    assert leaked(sentences_of(["b"], ["u"]), held) == {"validation": 0, "holdout": 0}


def write(folder: Path, validation: list[str]) -> Path:
    folder.mkdir()
    train = [f"the film {number} was {word},{word}" for number in range(20) for word in ("good", "bad")]
    (folder / "train.csv").write_text("\n".join(["text,label", *train]) + "\n")
    (folder / "validation.csv").write_text("\n".join(["text,label", *validation]) + "\n")
    return folder


def test_rows_that_report_and_share_a_sentence_with_those_that_choose_are_counted(tmp_path: Path) -> None:
    """Each premise stands in two rows, so that some of a drawn selection stand in the holdout, too."""
    spec = TaskSpec(name="nli", text="a", pair="b", label="label")
    lines = [f"the premise {number},claim {number} {word},{word}" for number in range(200) for word in ("yes", "no")]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *lines]) + "\n")
    knobs = RowsSlice(task=spec, selection_rows=40, holdout_rows=80)
    facts = prepare_rows(tmp_path / "rows.csv", knobs, tmp_path / "rows")
    chosen, holdout = ({row[0] for row in read_sentences(tmp_path / "rows", one)} for one in ("selection", "holdout"))
    assert facts.leaked_by_choice.keys() == {"validation", "holdout"}
    assert facts.leaked_by_choice["holdout"] == len(chosen & holdout) > 0 == facts.leaked["holdout"]
    assert choice_lines(planned_facts(facts, {})) == [
        "Rows that overlap with the selection rows, by which checkpoints and seeds are chosen: "
        f"{facts.leaked_by_choice['validation']} of {facts.rows['validation']} validation, "
        f"{len(chosen & holdout)} of 80 holdout; scores there may be a little too good."
    ]
    assert facts.groups["holdout"] == len(holdout) < 80, "pairs that share a premise are drawn together"
    assert group_lines(planned_facts(facts, {})) == []
    few = planned_facts(facts.replaced(groups={"selection": 1, "validation": 10, "holdout": 9}), {})
    assert group_lines(few) == [
        "The 80 holdout rows are of 9 groups: of fewer than 10 no figure is called better or worse, and no bound of "
        "the gate is read from an interval."
    ]
    alone = prepare_rows(tmp_path / "rows.csv", knobs.model_copy(update={"group": "a"}), tmp_path / "grouped")
    assert set(alone.leaked_by_choice.values()) == {0} and choice_lines(planned_facts(alone, {})) == []


def test_rows_of_different_groups_that_share_words_are_counted_and_said(tmp_path: Path) -> None:
    """Between groups, equal rows alone are removed from train; nothing said that others are not looked for."""
    words = "one two three four five six seven eight"
    lines = [
        f"a{number} b{number} {words if number % 2 else 'c'} {number},book {number // 2},{number % 4 // 2}"
        for number in range(80)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["text,book,label", *lines]) + "\n")
    knobs = RowsSlice(task=TaskSpec(name="mine"), selection_rows=0, validation_share=0.2, group="book")
    facts = prepare_rows(tmp_path / "rows.csv", knobs, tmp_path / "rows")
    assert facts.leaked["validation"] == 0 and facts.leaked_in_part["validation"] == 8
    lines = held_back_lines(planned_facts(facts, {}))
    assert any("compared: 8 of 16 validation share a text or eight words with training rows" in line for line in lines)
    assert not any(
        "share a text" in line for line in held_back_lines(planned_facts(facts.replaced(leaked_in_part={}), {}))
    )


@pytest.mark.parametrize("prompt", ["", "passage: ", "represent this passage so that it is found by a question: "])
def test_text_for_transfer_is_compared_without_its_prompt(prompt: str, tmp_path: Path) -> None:
    """A short text with a prompt before it shares no eight words with itself under another prompt, and one of eight
    words makes all texts overlap."""
    rows = [{"q": f"question {row}", "p": f"answer number {row}"} for row in range(60)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = TaskSpec(name="s", kind="retrieval", text="query: {q}", pair=f"{prompt}{{p}}", label="label")
    knobs = RowsSlice(task=task, selection_rows=0, holdout_rows=0, validation_share=0.3)
    facts = prepare_rows(tmp_path / "rows.jsonl", knobs, tmp_path / "prepared")
    held = read_texts(tmp_path / "prepared", "validation")[0]
    texts = [held[1].removeprefix(prompt), "something else", "quite another text"]
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(texts) + "\n")
    for template in ("text", f"{prompt}{{text}}", "query: {text}"):
        source, output = tmp_path / "texts.csv", tmp_path / f"transfer {template}".replace(":", "")
        said = prepare_transfer(source, template, None, output, tmp_path / "prepared")
        assert said == {"rows": 3, "leaked": {"selection": 0, "validation": 1}}
        assert rows_seen(tmp_path / "prepared", "validation", learned_digests([output])) == 1
    assert facts.rows["validation"] * 2 == len(held)


def test_the_preparation_of_rows_says_how_many_leak_and_what_judges(tmp_path: Path) -> None:
    knobs = RowsSlice(task=recipe_for().spec, selection_rows=0)
    clean = [f"a song {number} was {word},{word}" for number in range(3) for word in ("good", "bad")]
    facts = prepare_rows(
        write(tmp_path / "one", ["The  film 3 was GOOD,good", *clean]),
        knobs,
        tmp_path / "rows",
    )
    assert facts.leaked == {"validation": 0, "selection": 0} and facts.purged.rows == 1
    as_before = prepare_rows(tmp_path / "one", knobs.model_copy(update={"purge": False}), tmp_path / "before")
    assert as_before.leaked == {"validation": 1, "selection": 0} and as_before.purged.rows == 0
    again = prepare_rows(
        write(tmp_path / "two", ["The  film 3 was GOOD,good", *clean]),
        knobs.model_copy(update={"train_rows": 10}),
        tmp_path / "again",
    )
    assert again.rows_sha256 == facts.rows_sha256, (
        "ids move with the number of training rows; the rows that judge are the same"
    )
    other = prepare_rows(
        write(tmp_path / "three", ["The  film 3 was GOOD,bad", *clean]),
        knobs,
        tmp_path / "other",
    )
    assert other.rows_sha256 != facts.rows_sha256, "another label is another row"

    (tmp_path / "text.txt").write_text("a song 1 was bad\nthey say that A SONG 2 was  bad\nsomething else\n")
    leaks = {"validation": 2, "selection": 0}
    assert prepare_transfer(tmp_path / "text.txt", "text", None, tmp_path / "transfer", tmp_path / "rows") == {
        "rows": 3,
        "leaked": leaks,
    }
    assert leakage_of_corpus(tmp_path / "text.txt", "text", None, tmp_path / "rows") == {"leaked": leaks, "words": 15}
    assert leakage_of_corpus(tmp_path / "text.txt", "text", 5, tmp_path / "rows") == {
        "leaked": {"validation": 1, "selection": 0},
        "words": 5,
    }


def test_texts_for_transfer_that_overlap_with_held_out_rows_are_left_out_if_a_recipe_says_so(tmp_path: Path) -> None:
    """Students learned a teacher's answers to texts that stood in the rows that judge."""
    clean = [f"a song {number} was {word},{word}" for number in range(3) for word in ("good", "bad")]
    prepare_rows(write(tmp_path / "one", clean), RowsSlice(task=recipe_for().spec, selection_rows=0), tmp_path / "rows")
    (tmp_path / "text.txt").write_text("a song 1 was bad\nthey say that A SONG 2 was  bad\nsomething else\n")
    source, rows = tmp_path / "text.txt", tmp_path / "rows"
    said = prepare_transfer(source, "text", None, tmp_path / "transfer", rows, leave_out=True)
    assert said == {"rows": 1, "leaked": {"validation": 0, "selection": 0}, "left_out": 2}
    assert read_texts(tmp_path / "transfer", "train")[0] == ["something else"]
    (tmp_path / "text.txt").write_text("a song 1 was bad\n")
    with pytest.raises(DataError, match="no text of transfer.source is left: all 1 .*, or set transfer.overlaps: keep"):
        prepare_transfer(source, "text", None, tmp_path / "none", rows, leave_out=True)
    assert not (tmp_path / "none").exists()
