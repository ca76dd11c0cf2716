"""Judging sets of another type than the task: questions with options in a task of a language model, searches in a task
of scored pairs and pairs in one of searches, no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.branches.judging_sets import rows_slice, score_slice
from tasks.recipe.recipe import Recipe
from tests.task_types.choices.test_chain import values_for as values_of_choices
from tests.task_types.embedding.test_chain import recipe_for as recipe_of_embedder
from tests.task_types.next_words.test_chain import values_for

ASKED = {"source": "asked.jsonl", "kind": "choices", "text": "question", "pair": "{choices[]}"}


def recipe_with(given: dict[str, Any], kind: str = "next-words", **changes: Any) -> Recipe:
    values = values_for(Path("model"), Path("table"))
    values["data"] = {**values["data"], "judge": {"asked": given}}
    return Recipe.model_validate({**values, "task": {"name": "words", "kind": kind}, **changes})


@pytest.mark.parametrize("kind", ["next-words", "chats"])
def test_questions_judge_language_models_by_a_metric_of_their_own(kind: str) -> None:
    gate = {"criteria": [{"metric": "word_perplexity", "at_most": 2.0}], "split": "validation"}
    recipe = recipe_with(ASKED, kind, gate=gate)
    rows, scores = rows_slice(recipe, "asked"), score_slice(recipe, "asked")
    assert (rows.task_type, rows.text, rows.pair, rows.label) == ("choices", "question", "{choices[]}", "label")
    assert (scores.task_type, scores.metrics, scores.headline) == ("choices", ("accuracy",), "accuracy")
    assert scores.answered_by is not None and scores.answered_by.task_type == kind
    assert recipe.counted_sets == []


def test_a_set_of_the_task_s_own_type_has_the_keys_that_it_had() -> None:
    plain, named = (recipe_with({"source": "more.parquet", **more}) for more in ({}, {"kind": "next-words"}))
    for slice_of in (rows_slice, score_slice):
        assert slice_of(plain, "asked").key_values() == slice_of(named, "asked").key_values()
    assert "answered_by" not in score_slice(plain, "asked").key_values() and plain.counted_sets == ["asked"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({**ASKED, "kind": "classification"}, "kind is classification, and the task words is of type next-words; rows"),
        (
            {**ASKED, "kind": "spans"},
            "are legal as kind: choices, in a task of type next-words or chats, and as kind: embedding or retrieval, "
            "in a task of the other of these two; remove kind",
        ),
        ({**ASKED, "kind": "masked-words"}, "kind is masked-words, and the task words is of type next-words; rows"),
        ({**ASKED, "pair": None}, r"is of type choices and names no options; set pair, for example to '\{choices"),
        ({**ASKED, "classes": {"a": ["b"]}}, "names classes, and is of type choices; remove labels and classes"),
        ({**ASKED, "group": "passage"}, "remove group"),
        ({**ASKED, "kind": "choice"}, "did you mean 'choices'"),
        ({"source": "more.parquet", "pair": "other"}, "the task words has only one text; remove pair"),
    ],
)
def test_other_forms_are_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        recipe_with(given)


@pytest.mark.parametrize("kind", ["next-words", "classification"])
def test_no_other_task_is_judged_on_rows_of_another_type(kind: str) -> None:
    values = values_of_choices(Path("model"), Path("table"))
    values["data"] = {**values["data"], "judge": {"asked": {"source": "a.csv", "kind": kind}}}
    with pytest.raises(
        ValidationError, match=f"kind is {kind}, and the task about is of type choices; rows of another"
    ):
        Recipe.model_validate(values)


def test_no_criterion_mixes_metrics() -> None:
    criterion = {"metric": "word_perplexity", "at_most": 1.2, "of_teacher": True, "worst_of": ["validation", "asked"]}
    with pytest.raises(ValidationError, match="worst_of names 'asked', whose rows are of another type than the task's"):
        recipe_with(ASKED, gate={"criteria": [criterion], "split": "validation"})


# --- one embedder, by similarity and by search ------------------------------------------------------------------------

PAIRS, SEARCHES = ({"name": "one", "kind": kind, "text": "a", "pair": "b"} for kind in ("embedding", "retrieval"))
OF_SEARCH = {
    "source": "asked.csv",
    "kind": "retrieval",
    "text": "query: {question}",
    "pair": "passage",
    "label": "right",
}
KEEPS = {"metric": "retained", "at_least": 0.97, "worst_of": ["validation", "more"]}


def embedder_with(task: dict[str, Any], given: dict[str, Any], **criterion: Any) -> Recipe:
    """Return the recipe of an embedder with a judging set of the name ``more``."""
    values = recipe_of_embedder(Path("model"), Path("table"), task=task)
    values["data"] = {**values["data"], "judge": {"more": given}}
    gate = {"criteria": [{**KEEPS, **criterion}], "split": "validation"}
    return Recipe.model_validate({**values, "gate": gate})


@pytest.mark.parametrize(
    ("task", "kind", "own", "metrics"),
    [(PAIRS, "retrieval", "spearman", "ndcg_at_10"), (SEARCHES, "embedding", "ndcg_at_10", "spearman")],
)
def test_similarity_and_search_judge_one_embedder(task: dict[str, Any], kind: str, own: str, metrics: str) -> None:
    """The rows are read, and the metrics are those, of the set's type; the models answer as they do on the task."""
    recipe = embedder_with(task, OF_SEARCH | {"kind": kind})
    rows, scores = rows_slice(recipe, "more"), score_slice(recipe, "more")
    assert (rows.task_type, rows.text, rows.pair, rows.label) == (kind, "query: {question}", "passage", "right")
    assert (scores.task_type, scores.headline, recipe.spec.headline) == (kind, metrics, own)
    assert metrics in scores.metrics and own not in scores.metrics and scores.answered_by is None


@pytest.mark.parametrize(
    ("given", "criterion", "sentence"),
    [
        (
            {"pair": None},
            {},
            "data.judge.more is of type retrieval and names no column of a passage that answers the q",
        ),
        ({"kind": "ranking"}, {}, "kind is ranking, and the task one is of type embedding; rows of another type"),
        ({"kind": "choices"}, {}, "kind is choices, and the task one is of type embedding; rows of another type"),
        ({"labels": ["a", "b"]}, {}, "names classes, and is of type retrieval; remove labels and classes"),
        (
            {},
            {"metric": "spearman"},
            "worst_of names 'more', whose rows are of type retrieval and have no spearman; set metric: retained, the "
            "share of the teacher's ndcg_at_10 there, or remove it from worst_of",
        ),
    ],
)
def test_what_does_not_fit_an_embedder_is_a_sentence(
    given: dict[str, Any], criterion: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=sentence):
        embedder_with(PAIRS, OF_SEARCH | given, **criterion)


def test_pieces_of_a_foreign_set_are_not_counted() -> None:
    trimmed = {"name": "fewer", "from": "teacher", "by": "vocabulary-trimming", "keep": 100}
    gate = {"criteria": [{"metric": "fertility_elsewhere", "at_most": 2.0}], "split": "validation"}
    with pytest.raises(ValidationError, match="fertility_elsewhere is measured on judging sets; add one"):
        recipe_with(ASKED, candidates=[trimmed], gate=gate)
