"""Held-out rows that overlap with what is learned from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.recipes.checks import planned_facts
from tasks.catalog import TaskSpec
from tasks.errors import DataError
from tasks.gate.verdicts import Evidence, leakage
from tasks.ports.rows.data_leakage import leaked
from tasks.ports.rows.overlap import sentences_of
from tasks.ports.rows.prepared import leakage_of_corpus, prepare_rows, prepare_transfer
from tasks.ports.rows.row_files import read_texts
from tasks.ports.rows.seen import learned_digests, read_sentences, rows_seen
from tasks.recipe.judging import Gate
from tasks.recipe.slices import RowsSlice, TransferSlice
from tasks.report.tables.held_back import choice_lines, group_lines, held_back_lines
from tasks.results.facts import RowsFacts
from tests.contenders import recipe_for

KEPT_TEXTS = TransferSlice(source="", task_type="classification")
OTHER_TEXTS = KEPT_TEXTS.model_copy(update={"overlaps": "leave-out"})


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


EIGHT = "one two three four five six seven eight"


def facts_of(folder: Path, columns: dict[str, list[str]], group: str, **task: str) -> RowsFacts:
    """Return the facts of rows that are divided by a column of groups, a fifth of them judged."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    lines = (json.dumps({**row, "label": str(number % 4 // 2)}) for number, row in enumerate(rows))
    (folder / "rows.jsonl").write_text("\n".join(lines))
    spec = TaskSpec(name="mine", **task)
    knobs = RowsSlice(task=spec, selection_rows=0, holdout_rows=0, validation_share=0.2, group=group)
    return prepare_rows(folder / "rows.jsonl", knobs, folder / "rows")


def is_anomalous(facts: RowsFacts) -> bool:
    """Tell whether the gate finds too many of the rows that judge in train."""
    found = {"training rows": facts.leaked["validation"]}
    return any(odd for odd, _ in leakage(Gate(), Evidence(rows=facts.rows["validation"], overlaps=found)))


def test_rows_of_different_groups_that_share_words_are_counted_and_said(tmp_path: Path) -> None:
    """Between groups, equal rows alone are removed from train; nothing said that others are not looked for."""
    texts = [f"a{number} b{number} {EIGHT if number % 2 else 'c'} {number}" for number in range(80)]
    facts = facts_of(tmp_path, {"text": texts, "book": [f"book {number // 2}" for number in range(80)]}, "book")
    assert facts.leaked["validation"] == 0 and facts.leaked_in_part["validation"] == 8 and not is_anomalous(facts)
    lines = held_back_lines(planned_facts(facts, {}))
    assert any(": 8 of 16 validation share a text or eight words with training rows" in line for line in lines)
    assert not any(
        "share a text" in line for line in held_back_lines(planned_facts(facts.replaced(leaked_in_part={}), {}))
    )
    assert not any("alone in their group" in line for line in facts.read)


def test_a_number_of_each_row_is_no_group_that_hides_overlaps(tmp_path: Path) -> None:
    """It switched the comparison of texts off, so that the gate accepted what was judged on rows like those of
    train."""
    texts = [f"a{number} b{number} {EIGHT if number % 2 else 'c'} {number}" for number in range(80)]
    facts = facts_of(tmp_path, {"text": texts, "row": [f"row {number}" for number in range(80)]}, "row")
    held = read_sentences(tmp_path / "rows", "validation")
    assert facts.leaked["validation"] == sum(EIGHT in text for (text,) in held) > 0 and is_anomalous(facts)
    assert not facts.leaked_in_part
    assert facts.read[-1] == (
        "rows.jsonl: 64 of the 64 training rows are alone in their group (row), which divides nothing: rows overlap as "
        "if there were none; name a column whose values recur, or remove it"
    )
    assert not any("Groups divide" in line for line in held_back_lines(planned_facts(facts, {})))


def test_a_row_that_stands_whole_in_another_group_is_a_leak(tmp_path: Path) -> None:
    """Phrases of one sentence have several authors here; those of fewer than three words are found by chance."""
    parts = [(0, 14), (2, 12), (0, 2), (5, 14)]
    texts = [" ".join(f"w{number // 4}x{at}" for at in range(*parts[number % 4])) for number in range(160)]
    authors = [f"author {number % 4 * 10 + number % 10}" for number in range(160)]
    facts = facts_of(tmp_path, {"text": texts, "author": authors}, "author")
    held = read_sentences(tmp_path / "rows", "validation")
    learned = [text for (text,) in read_sentences(tmp_path / "rows", "train")]
    inside = [len(text.split()) > 2 and any(f" {text} " in f" {one} " for one in learned) for (text,) in held]
    assert facts.leaked["validation"] == sum(inside) > 0 and is_anomalous(facts)
    assert facts.leaked_in_part["validation"] > sum(inside)
    assert any(f"training rows: {sum(inside)} of" in line for line in held_back_lines(planned_facts(facts, {})))


def test_pairs_of_several_groups_leak_by_a_sentence_and_not_by_a_question_if_passages_divide(tmp_path: Path) -> None:
    """Three claims about each premise, by three people: another's claim tells of the premise. Of passages that divide,
    a question that is asked about several of them is none of theirs."""
    premises = [f"premise {number // 3} is about thing {number // 3}" for number in range(240)]
    claims = [f"claim {number} is made of it" for number in range(240)]
    people = [f"person {number % 24}" for number in range(240)]
    facts = facts_of(tmp_path, {"a": premises, "b": claims, "by": people}, "by", text="a", pair="b")
    assert facts.leaked["validation"] > 0.9 * facts.rows["validation"] and is_anomalous(facts)
    asked = [f"what is it about, in {number % 5} words?" for number in range(240)]
    for group in ("a", "number"):
        columns = {"a": premises, "b": asked, "number": [str(number // 3) for number in range(240)]}
        facts = facts_of(tmp_path, columns, group, text="a", pair="b")
        assert facts.leaked["validation"] == 0 and not is_anomalous(facts)
        assert facts.leaked_in_part["validation"] == facts.rows["validation"]
    longer = [f"so {premises[number - 3]} again" if number % 6 > 2 else text for number, text in enumerate(premises)]
    facts = facts_of(tmp_path, {"a": longer, "b": asked}, "a", text="a", pair="b")
    assert facts.leaked["validation"] > 0 and is_anomalous(facts), "a passage that stands in another one"


def test_a_word_of_a_review_and_a_question_of_everybody_are_no_leaks(tmp_path: Path) -> None:
    reviews = [f"a{number} b{number} c{number} d{number}" for number in range(240)]
    people = [f"person {number // 3}" for number in range(240)]
    for aspect in ("price {}", "what do you think of it?"):
        seconds = [aspect.format(number % 40) for number in range(240)]
        facts = facts_of(tmp_path, {"a": reviews, "b": seconds, "by": people}, "by", text="a", pair="b")
        assert facts.leaked["validation"] == 0 and facts.leaked_in_part["validation"] == facts.rows["validation"]


def test_passages_that_each_have_one_question_divide_though_each_is_alone(tmp_path: Path) -> None:
    passages = [f"a{number} b{number} {EIGHT} c{number}" for number in range(240)]
    asked = [f"what is it about, in {number % 60} words?" for number in range(240)]
    facts = facts_of(tmp_path, {"a": passages, "b": asked}, "a", text="a", pair="b")
    assert facts.leaked["validation"] == 0 and facts.leaked_in_part["validation"] == facts.rows["validation"]
    assert not any("alone in their group" in line for line in facts.read)


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
        said = prepare_transfer(
            source, TransferSlice(source="", task_type="retrieval", text=template), output, tmp_path / "prepared"
        )
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
    assert prepare_transfer(tmp_path / "text.txt", KEPT_TEXTS, tmp_path / "transfer", tmp_path / "rows") == {
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
    said = prepare_transfer(source, OTHER_TEXTS, tmp_path / "transfer", rows)
    assert said == {"rows": 1, "leaked": {"validation": 0, "selection": 0}, "left_out": 2}
    assert read_texts(tmp_path / "transfer", "train")[0] == ["something else"]
    (tmp_path / "text.txt").write_text("a song 1 was bad\n")
    with pytest.raises(DataError, match="no text of transfer.source is left: all 1 .*, or set transfer.overlaps: keep"):
        prepare_transfer(source, OTHER_TEXTS, tmp_path / "none", rows)
    assert not (tmp_path / "none").exists()
