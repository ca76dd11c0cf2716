"""Which rows are held back, and which are taken out of train for them: on a corpus of phrases, of pairs, of groups, and
on the real data."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.catalog import GLUE, TaskSpec
from tasks.errors import DataError
from tasks.ports.rows.data_leakage import leakage_of
from tasks.ports.rows.overlap import folded
from tasks.ports.rows.prepared import divided_rows, prepare_rows
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.splits import Split, divide
from tasks.recipe.data import Data
from tasks.recipe.slices import RowsSlice

SHARED = Path(os.environ.get("LIMBECK_SHARED", Path(__file__).resolve().parents[3].parent / "shared")) / "data"
WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "ai", "ou", "ea")]


def phrases(
    sentences: int = 60, parts: Sequence[tuple[int, int]] = ((0, 14), (3, 4), (4, 6), (6, 11), (1, 14))
) -> Split:
    """Return sentences of 14 words in parts: as a whole, a word, two words, five, and all but the first."""
    draw = random.Random(0)
    texts = []
    for _ in range(sentences):
        words = [draw.choice(WORDS) for _ in range(14)]
        texts += [" ".join(words[start:end]) for start, end in parts]
    return Split("train.csv", texts, None, [number % 2 for number in range(len(texts))])


def knobs(**changes: Any) -> Data:
    return Data(**{"selection_rows": 0, "holdout_rows": 0, **changes})


def task_knobs(task: TaskSpec, **changes: Any) -> RowsSlice:
    return RowsSlice(**dict(knobs(**changes)), task=task)


def given(*texts: str, pairs: list[str] | None = None) -> Split:
    return Split("validation.csv", list(texts), pairs, [0] * len(texts))


def test_no_phrase_of_a_held_back_sentence_is_learned_from() -> None:
    """Drawn one by one, as before, most of the held-back phrases would stand in train."""
    train = phrases()
    purged, facts = divide(
        {"train": train, "validation": given("nothing of the kind")}, knobs(selection_rows=10, holdout_rows=10)
    )
    assert all(len(text.split()) == 14 for text in (*purged["selection"].texts, *purged["holdout"].texts)), (
        "phrases stand inside of their sentences"
    )
    assert leakage_of(purged) == {"validation": 0, "selection": 0, "holdout": 0}
    assert facts.rows == 20 * 2 and facts.by == {"validation": 0, "selection": 20, "holdout": 20}, (
        "phrases of five words and of thirteen"
    )
    assert facts.words_left < facts.words_before and facts.of == 300
    as_before, _ = divide(
        {"train": train, "validation": given("nothing of the kind")},
        knobs(selection_rows=10, holdout_rows=10, purge=False),
    )
    assert leakage_of(as_before)["holdout"] >= 5


def test_a_given_validation_split_purges_train_as_well() -> None:
    texts = [
        "so he said that it was a fine old film",
        "it was a",
        "it was",
        "fine old film indeed",
        "some thing else",
        *"vwxyz",
    ]
    train = Split("train.csv", texts, None, [0] * 10)
    purged, facts = divide({"train": train, "validation": given("it was a fine old film", "Some Thing")}, knobs())
    assert purged["train"].texts == ["it was", "fine old film indeed", *"vwxyz"] and facts.by["validation"] == 3


def test_pairs_that_share_a_sentence_are_on_one_side() -> None:
    """Each premise stands in three rows: drawn one by one, the others would tell of it."""
    texts = [f"premise {number} tells of a thing" for number in range(60) for _ in range(3)]
    pairs = [f"claim {number} of {kind}" for number in range(60) for kind in ("yes", "no", "perhaps")]
    purged, facts = divide(
        {"train": Split("train.csv", texts, pairs, [0] * 180), "validation": given("x", pairs=["y"])},
        knobs(selection_rows=12),
    )
    assert not set(purged["train"].texts) & set(purged["selection"].texts)
    assert len(purged["selection"]) == 12 and len(purged["train"]) == 180 - 12 - facts.rows and facts.rows >= 12


def test_groups_decide_where_a_column_names_them() -> None:
    texts = [f"line {number} of a long and common introduction to all of them" for number in range(100)]
    train = Split("train.csv", texts, None, [0] * 100, [f"author {number // 10}" for number in range(100)])
    judging = Split("validation.csv", ["a new line", texts[55].upper()], None, [0, 0], ["author 3", "author 99"])
    purged, facts = divide({"train": train, "validation": judging}, knobs(selection_rows=10, group="author"))
    assert purged["selection"].numbers.tolist() == [0] * 10 and purged["validation"].numbers.tolist() == [0, 1]
    sides = {split: set(rows.groups or ()) for split, rows in purged.items()}
    assert len(sides["selection"]) == 1 and len(purged["selection"]) == 10
    assert not sides["train"] & (sides["selection"] | sides["validation"]) and texts[55] not in purged["train"].texts
    assert leakage_of(purged) == {"validation": 0, "selection": 0} and facts.way == "group"


def test_too_large_a_holdout_is_refused_and_the_largest_that_fits_is_true() -> None:
    parts = {
        "train": phrases(60, [(0, 14), (1, 14), (2, 14), (0, 13), (0, 12), (3, 13)]),
        "validation": given("nothing of the kind"),
    }
    with pytest.raises(
        DataError,
        match=r"250 of the 360 rows of train.csv .* overlap .* at most 40% may be removed; .* is 23 rows",
    ) as error:
        divide(parts, knobs(selection_rows=5, holdout_rows=45))
    largest = int(str(error.value).partition("data.holdout_rows to ")[2].split()[0])
    assert divide(parts, knobs(selection_rows=5, holdout_rows=largest))[1].rows == 5 * (5 + 23) <= 0.4 * 360
    with pytest.raises(DataError, match=f"the largest holdout that fits is {largest} rows"):
        divide(parts, knobs(selection_rows=5, holdout_rows=largest + 1))


def cliques(chain: int = 0) -> Split:
    """Return all pairs of the six sentences of each of 60 groups, and a chain of pairs that share one with the next."""
    draw = random.Random(0)
    groups = [[" ".join(draw.choice(WORDS) for _ in range(9)) for _ in range(6)] for _ in range(60)]
    rows = [(one, other) for group in groups for place, one in enumerate(group) for other in group[:place]]
    links = [" ".join(draw.choice(WORDS) for _ in range(9)) for _ in range(chain + 1)]
    rows = [*zip(links, links[1:], strict=False), *rows]
    return Split("train.csv", [one for one, _ in rows], [two for _, two in rows], [row % 2 for row in range(len(rows))])


def test_pairs_whose_sentences_recur_are_held_back_in_whole_groups() -> None:
    """SICK pairs variants of few sentences: whatever row was held back, others shared a sentence with it."""
    parts, facts = divide({"train": cliques()}, knobs(selection_rows=90, holdout_rows=180, validation_share=0.1))
    assert (facts.way, facts.rows) == ("overlap", 0) and not any(leakage_of(parts).values())
    assert sum(map(len, parts.values())) == 900 and len(parts["holdout"]) >= 180
    sides = [{sentence for row in one.sentences for sentence in row} for one in parts.values()]
    assert sum(map(len, sides)) == len(set().union(*sides)), "no sentence is on two sides"


def test_a_group_of_very_many_rows_is_learned_from_and_not_held_back() -> None:
    train = cliques(chain=60)
    parts, facts = divide({"train": train}, knobs(selection_rows=90, holdout_rows=180, validation_share=0.1))
    assert facts.way == "overlap" and {*train.texts[:60]} <= {*parts["train"].texts}
    assert not any(leakage_of(parts).values())


def test_a_validation_split_that_is_train_itself_is_refused() -> None:
    train = Split("train.csv", [f"text number {number}" for number in range(50)], None, [0] * 50)
    with pytest.raises(DataError, match=r"50 of the 50 rows of train.csv .*a smaller holdout split does not suffice"):
        divide({"train": train, "validation": train}, knobs())
    same, _ = divide({"train": train, "validation": train}, knobs(purge=False))
    assert len(same["train"]) == len(same["validation"]) == 50


def test_rows_that_all_stand_in_others_cannot_be_held_back() -> None:
    train = Split("train.csv", ["a b", "a", "b", *["c a b d"] * 30], None, [0] * 33)
    with pytest.raises(DataError, match="no row of train.csv remains to be held out for selection: 1 of its 33 rows"):
        divide({"train": train}, knobs(selection_rows=3, validation_share=0.01))


def test_rows_are_grouped_by_the_folding_by_which_leaks_are_counted() -> None:
    """Texts that differ in case or width used to be drawn apart and then counted as a leak."""
    texts = [
        form
        for number in range(40)
        for form in (f"The film {number}", f"the  FILM {number}", f"the \uff46ilm {number}")
    ]
    apart, _ = divide({"train": Split("train.csv", texts, None, [0] * 120)}, knobs(selection_rows=12, purge=False))
    assert not {folded(text) for text in apart["train"].texts} & {folded(text) for text in apart["selection"].texts}


def test_the_split_depends_on_rows_and_seed_alone(tmp_path: Path) -> None:
    """Not on the order of sets, threads, or where a row stands in its file."""
    code = (
        "import sys, json; from tests.ports.rows.test_splits import *; train = phrases(); order = list(range(300)); "
        "random.Random(int(sys.argv[1])).shuffle(order); parts = divide({'train': train.take(order)}, "
        "knobs(selection_rows=10, holdout_rows=10))[0]; "
        "print(json.dumps({split: sorted(rows.texts) for split, rows in parts.items()}))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, "1"],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = divide({"train": phrases()}, knobs(selection_rows=10, holdout_rows=10))[0]
    assert json.loads(other) == {split: sorted(rows.texts) for split, rows in here.items()}


# --- real data --------------------------------------------------------------------------------------------------------

REAL = {
    "sst2": ("glue/sst2", {"selection_rows": 1000, "holdout_rows": 2000}, 43_006),
    "cola": ("glue/cola", {}, 8417),
    "rte": ("glue/rte", {}, 2254),
    "mrpc": ("glue/mrpc", {}, 3545),
    "stsb": ("glue/stsb", {}, 5304),
    "qqp": ("glue_subsets/qqp", {"selection_rows": 500, "holdout_rows": 1000}, None),
    "qnli": ("glue_subsets/qnli", {"selection_rows": 500, "holdout_rows": 1000}, None),
    "mnli": ("glue_subsets/mnli", {"selection_rows": 500, "holdout_rows": 1000}, None),
}
"""Where a task's rows are, what is held back of them, and how many rows are left to learn from."""


def read(task: str, **changes: Any) -> dict[str, Split]:
    folder = SHARED / REAL[task][0]
    if not folder.is_dir():
        pytest.skip(f"real data not found: {folder}")
    source = (
        folder / "train.parquet" if task == "mnli" else folder
    )  # which has two validation files; the matched one is drawn here
    return divided_rows(source, task_knobs(GLUE[task], **REAL[task][1], **changes))[0]


def shares(splits: Mapping[str, Split]) -> dict[str, float]:
    """Return the largest share of a held-back split that repeats train, by words alone: nothing of the code that purges
    is used here."""
    sentences = {sentence for row in plainly(splits["train"]) for sentence in row}
    grams = {gram for sentence in sentences for gram in eights(sentence)}
    whole = "\n".join(f" {sentence} " for sentence in sentences)
    found = {"inside": 0.0, "eight": 0.0, "sentence": 0.0}
    for rows in (rows for name, rows in splits.items() if name != "train" and len(rows)):
        texts = plainly(rows)
        counts = {
            "eight": sum(any(gram in grams for one in row for gram in eights(one)) for row in texts),
            "sentence": sum(any(one in sentences for one in row) for row in texts),
            "inside": 0 if rows.pairs else sum(f" {row[0]} " in whole for row in texts),
        }
        found = {name: max(share, counts[name] / len(rows)) for name, share in found.items()}
    return found


def plainly(rows: Split) -> list[list[str]]:
    return [
        [folded(text) for text in both if text] for both in zip(rows.texts, rows.pairs or [""] * len(rows), strict=True)
    ]


def eights(sentence: str) -> list[tuple[str, ...]]:
    words = sentence.split()
    return [tuple(words[at : at + 8]) for at in range(len(words) - 7)]


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.parametrize("task", list(REAL))
def test_held_back_rows_of_real_tasks_are_held_back(task: str) -> None:
    found, left = read(task), REAL[task][2]
    repeated = shares(found)
    assert repeated["inside"] <= 0.005 and repeated["eight"] <= 0.01 and repeated["sentence"] <= 0.01, repeated
    assert left is None or len(found["train"]) == left


@pytest.mark.real_data
@pytest.mark.slow
def test_of_sst2_too_many_phrases_hang_on_five_thousand_sentences() -> None:
    folder = SHARED / "glue" / "sst2"
    if not folder.is_dir():
        pytest.skip(f"real data not found: {folder}")
    with pytest.raises(DataError, match=r"\(63\.4%\) overlap .* the largest holdout that fits is 2,\d\d\d rows"):
        divided_rows(folder, task_knobs(GLUE["sst2"], selection_rows=1000, holdout_rows=5000))


def test_a_column_of_groups_is_read_and_none_may_be_empty(tmp_path: Path) -> None:
    lines = [f"text {number},{number % 2},author {number // 4}" for number in range(100)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label,author", *lines]))
    splits, _, facts = divided_rows(
        tmp_path / "train.csv", task_knobs(TaskSpec(name="mine"), selection_rows=8, group="author")
    )
    assert facts.purged.way == "group" and set(splits["selection"].groups or ()).isdisjoint(
        splits["train"].groups or ()
    )
    with pytest.raises(DataError, match="has no group column 'auther'.*did you mean 'author'"):
        divided_rows(tmp_path / "train.csv", task_knobs(TaskSpec(name="mine"), group="auther"))
    (tmp_path / "train.csv").write_text("\n".join(["text,label,author", *lines, "text 100,1,"]))
    with pytest.raises(DataError, match="row 101: the group in column 'author' is empty"):
        divided_rows(tmp_path / "train.csv", task_knobs(TaskSpec(name="mine"), group="author"))


def test_rows_do_not_overlap_by_a_prompt_that_all_of_them_have(tmp_path: Path) -> None:
    """A prompt of eight words was shared by every row, and a run was refused for that."""
    prompt = "Represent this sentence for searching relevant passages and answers: "
    lines = [
        f"what {'abcdefgh'[number % 8]}{number} is s{number} or t{number},p{number} q{number} r{number}"
        for number in range(80)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["question,passage", *lines]))
    task = {"name": "mine", "kind": "retrieval", "text": f"{prompt}{{question}}", "pair": f"{prompt}{{passage}}"}
    knobs = RowsSlice.model_validate({"task": task, "selection_rows": 0, "validation_share": 0.2})
    facts = prepare_rows(tmp_path / "rows.csv", knobs, tmp_path / "out")
    assert facts.purged.rows == 0 and facts.rows["validation"] == 16 and not sum(facts.leaked.values())
    assert read_split(tmp_path / "out", "train").texts[0].startswith(prompt)
