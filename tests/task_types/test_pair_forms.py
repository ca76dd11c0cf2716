"""The forms of SuperGLUE's tables, as ``limbeck init`` recognises them; other tables have none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.recipes.starter import starter_recipe
from flows.run.recipe_file import load_recipe
from tasks.task_types.common_rows import choose_columns
from tasks.task_types.texts.pair_forms import PairForm, form_of_pairs

COUNT = 40
TEXT = [f"they went to the bank number {number} and said hello" for number in range(COUNT)]
LABELS = [number % 2 for number in range(COUNT)]


def form_of(columns: dict[str, list[Any]]) -> PairForm:
    chosen = choose_columns(columns)
    assert chosen is not None
    return form_of_pairs(columns, chosen)


def answers() -> dict[str, list[Any]]:
    """Return four answers to each question, two questions a passage."""
    return {
        "paragraph": [f"passage {number // 8} {'of many words ' * 40}" for number in range(COUNT)],
        "question": [f"what did they say in {number // 4}" for number in range(COUNT)],
        "answer": [f"answer {number}" for number in range(COUNT)],
        "label": LABELS,
    }


def test_passages_by_character_are_marked() -> None:
    others = [text.replace("bank", "shop") for text in TEXT]
    places = {"start1": [13] * COUNT, "end1": [17] * COUNT, "start2": [13] * COUNT, "end2": [17] * COUNT}
    form = form_of({"word": ["bank"] * COUNT, "sentence1": TEXT, "sentence2": others, **places, "label": LABELS})
    assert (form.text, form.pair) == ("{sentence1 *start1:end1*}", "{sentence2 *start2:end2*}")
    beside = form_of({"sentence1": TEXT, "sentence2": others, **places | {"start1": [90] * COUNT}, "label": LABELS})
    assert (beside.text, beside.pair) == ("sentence1", "{sentence2 *start2:end2*}")


def test_passages_by_word_are_marked() -> None:
    spans = {"span1_index": [0] * COUNT, "span1_text": ["they"] * COUNT}
    spans |= {"span2_index": [4] * COUNT, "span2_text": ["bank"] * COUNT}
    form = form_of({"text": TEXT, **spans, "label": LABELS})
    assert (form.text, form.pair) == ("{text *span2_index+span2_text*}", "span1_text")


def test_answers_to_a_question_are_judged_together() -> None:
    form = form_of(answers())
    assert (form.text, form.pair) == ("paragraph", "{question} {answer}")
    assert (form.group, form.divided_by, form.truncate) == ("{paragraph} {question}", "paragraph", "first")
    assert form.metrics == ("group_exact",)


def test_the_passage_is_cut_and_not_the_question() -> None:
    passages = [f"{text} {'and more ' * 40}" for text in TEXT]
    form = form_of({"question": TEXT, "passage": passages, "label": LABELS})
    assert (form.text, form.pair, form.truncate) == ("question", "passage", "second")


@pytest.mark.parametrize(
    "columns",
    [
        {"sentence1": TEXT, "sentence2": TEXT[::-1], "label": LABELS},
        {"text": TEXT, "label": LABELS},
        {"text": TEXT * 2, "user": ["anna lives here", "ben lives there"] * COUNT, "label": LABELS * 2},
        {"text": TEXT, "start": [1] * COUNT, "label": LABELS},
    ],
)
def test_other_tables_stay_as_they_are(columns: dict[str, list[Any]]) -> None:
    form, chosen = form_of(columns), choose_columns(columns)
    assert chosen is not None and form == PairForm(chosen.text, chosen.pair)


def test_init_writes_a_recipe_that_can_be_read(tmp_path: Path) -> None:
    pq.write_table(pa.table(answers()), tmp_path / "answers.parquet")
    found = starter_recipe(str(tmp_path / "answers.parquet"), tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_text(found.text)
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert recipe.spec.group == "{paragraph} {question}" and recipe.data.group == "paragraph"
    assert recipe.spec.truncate == "first" and "group_exact" in recipe.spec.metrics
    assert any("judged together" in note for note in found.notes)
