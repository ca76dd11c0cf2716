"""A teacher beside its student teaches what its kept answers teach, where all words are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from flows.cli.runner import planned_session
from flows.home import Home
from flows.recipes.planned_rows import planned_rows
from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import ModelError, RecipeError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.table_files import write_table
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.report.tables.kept_answers import answer_bytes, kept_answer_lines, require_budget_of_answers
from tasks.results.facts import HeldBackFacts, Purge, RowsFacts
from tasks.task_types.common_head import stored_words
from tasks.task_types.masked_words.hidden import SHARE_HIDDEN
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.units import KeptWords
from tasks.training.answers import answer
from tasks.training.distill import distill_prediction
from tests.task_types.next_words.tables import documents, write_decoder, write_documents
from tests.task_types.next_words.test_chain import TRAINED, values_for

KNOBS = {
    "task_type": "next-words",
    "max_length": 32,
    "precision": "fp32",
    "steps": 8,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "temperature": 1.5,
    "hard_weight": 0.25,
    "formula": "jensen-shannon",
    "evaluations": 0,
    "seed": 3,
    "start": "teacher",
    "shape": {"layers": 1},
}


def job(knobs: dict[str, Any], folder: Path, **inputs: Path) -> Job:
    """A job that writes a folder of its own."""
    order = {"job": "test", "knobs": knobs, "output": str(folder), "checkpoints": str(folder.with_suffix(".marks"))}
    folder.mkdir()
    return Job({**order, "inputs": {name: str(one) for name, one in inputs.items()}}, silent=True)


def test_a_live_teacher_and_all_words_kept_end_in_the_same_weights(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    spec = TaskSpec(name="words", kind="next-words")
    prepare_rows(write_documents(tmp_path / "table", 40), RowsSlice(task=spec, selection_rows=5), rows)
    inputs = {"rows": rows, "teacher": write_decoder(tmp_path / "teacher", layers=2)}
    kept = {"words": 1000, "temperature": KNOBS["temperature"], "bits": 32}
    asked = {name: KNOBS[name] for name in ("task_type", "max_length", "precision")} | {"kept": kept}
    answer(job(asked, tmp_path / "answers", **inputs))
    distill_prediction(job(KNOBS, tmp_path / "live", **inputs))
    distill_prediction(job(KNOBS, tmp_path / "kept", **inputs, answers=tmp_path / "answers"))
    live, stored = (load_file(tmp_path / name / "model.safetensors") for name in ("live", "kept"))
    start = load_file(inputs["teacher"] / "model.safetensors")
    assert any((live[name] - start[name]).abs().max() > 1e-3 for name in live)
    for name, values in live.items():
        torch.testing.assert_close(values, stored[name], rtol=0, atol=1e-6)


def test_answers_to_other_pieces_are_refused(tmp_path: Path) -> None:
    """The student's tokenizer has its teacher's vocabulary, and makes small letters of large ones: it has fewer pieces,
    so that the answers to them stand at other numbers."""
    from tokenizers import normalizers
    from transformers import AutoTokenizer

    rows, table = tmp_path / "rows", {"text": [text.replace("film", "FILM") for text in documents(40)]}
    (tmp_path / "table").mkdir()
    write_table(tmp_path / "table" / "train.parquet", table)
    spec = TaskSpec(name="words", kind="next-words")
    prepare_rows(tmp_path / "table" / "train.parquet", RowsSlice(task=spec, selection_rows=5), rows)
    inputs = {"rows": rows, "teacher": write_decoder(tmp_path / "teacher", layers=2)}
    start = write_decoder(tmp_path / "start", layers=1)
    tokenizer = AutoTokenizer.from_pretrained(start)
    before = tokenizer(table["text"])["input_ids"]
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(start)
    again = AutoTokenizer.from_pretrained(start)
    assert sum(map(len, again(table["text"])["input_ids"])) < sum(map(len, before))
    assert again.get_vocab() == AutoTokenizer.from_pretrained(inputs["teacher"]).get_vocab()
    kept = {"words": 8, "temperature": KNOBS["temperature"], "bits": 32}
    asked = {name: KNOBS[name] for name in ("task_type", "max_length", "precision")} | {"kept": kept}
    answer(job(asked, tmp_path / "answers", **inputs))
    learned = {**inputs, "start": start, "answers": tmp_path / "answers"}
    with pytest.raises(ModelError, match=r"divides \d+ of \d+ rows into other pieces.*signal: labels") as refused:
        distill_prediction(job(KNOBS, tmp_path / "kept", **learned))
    tokenizer.add_tokens(["another"])
    tokenizer.save_pretrained(start)
    with pytest.raises(ModelError, match=r"is not its teacher's .*signal: labels\), or trim") as other:
        distill_prediction(job(KNOBS, tmp_path / "other", **learned))
    # a language model's teacher writes no texts to learn from: signal: sequence is refused in its recipes
    assert "sequence" not in str(refused.value) + str(other.value)


def test_only_answers_about_a_vocabulary_are_live(tmp_path: Path) -> None:
    live = {"task_distillation": {"answers": "live"}}
    assert Recipe.model_validate(values_for(tmp_path, tmp_path) | live).task_distillation.answers == "live"
    values = {"name": "a", "task": "sst2", "teacher": {"model": "bert"}, "students": [{"name": "s", "layers": 2}]}
    with pytest.raises(ValidationError, match="of type classification, whose answers are stored whole"):
        Recipe.model_validate(values | live)


def test_a_plan_says_how_much_room_kept_answers_take(tmp_path: Path) -> None:
    """1,000 documents of 200 words are 260,000 tokens, of 16 words with 98 bytes each."""
    purged = Purge(way="text", rows=0, of=1000, by={}, words_before=200.0, words_left=200.0, short={})
    held = HeldBackFacts(rows={"train": 1000}, purged=purged)
    recipe = Recipe.model_validate(values_for(tmp_path, tmp_path))
    (line,) = kept_answer_lines(recipe, held)
    assert answer_bytes(16, 16, None) == 16 * 4 + 17 * 2
    assert re.search("up to 25.5 MB for some 260,000 tokens", line)
    (of_targets,) = kept_answer_lines(recipe, held.replaced(words_to_write=10.0))
    assert "up to 1.27 MB for some 13,000 tokens of the texts to write (1.3 a word)" in of_targets
    hidden = {**values_for(tmp_path, tmp_path), "task": {"name": "words", "kind": "masked-words"}}
    hidden["gate"] = {"split": "validation"}
    hidden["task_distillation"] = recipe.task_distillation.model_dump() | {"prediction": TRAINED}
    hidden.pop("layer_dropping")
    (of_hidden,) = kept_answer_lines(Recipe.model_validate(hidden), held)
    assert "for some 39,000 tokens (1.3 a word)" in of_hidden and SHARE_HIDDEN == TASK_TYPES["masked-words"].share_asked
    live = recipe.task_distillation.model_copy(update={"answers": "live"})
    assert kept_answer_lines(recipe.model_copy(update={"task_distillation": live}), held) == []
    on_labels = {**values_for(tmp_path, tmp_path), "students": [{"name": "a", "layers": 1, "signal": "labels"}]}
    on_labels.pop("layer_dropping")
    assert kept_answer_lines(Recipe.model_validate(on_labels), held) == []
    assert "up to 98 bytes for each token of the training rows" in kept_answer_lines(recipe, HeldBackFacts())[0]


@pytest.mark.parametrize("kind", ["next-words", "masked-words", "seq2seq"])
def test_more_than_the_budget_is_refused_for_every_type_that_keeps_words(kind: str, tmp_path: Path) -> None:
    """The same answers are within a budget that has room for them; a live teacher keeps none."""
    purged = Purge(way="text", rows=0, of=1000, by={}, words_before=200.0, words_left=200.0, short={})
    facts = RowsFacts(rows={"train": 10**6}, purged=purged, words_to_write=200.0 if kind == "seq2seq" else 0.0)
    values = values_for(tmp_path, tmp_path) | {"task": {"name": "words", "kind": kind}, "gate": {"split": "validation"}}
    values.pop("layer_dropping")
    values["teacher"].pop("floor")
    size = 200e6 * 1.3 * 98 * (0.15 if kind == "masked-words" else 1)
    budgets = {"signal_budget_gb": size / 1e9 * 0.99}, {"signal_budget_gb": size / 1e9 * 1.01}
    small, large = (values | {"task_distillation": {**values["task_distillation"], **one}} for one in budgets)
    told = f"set it to {int(size / 1e9) + 1} or more if the disk has twice that room, keep fewer words"
    with pytest.raises(RecipeError, match=f"16 words of each of some .* tokens, take up to .* {told}"):
        require_budget_of_answers(Recipe.model_validate(small), facts)
    require_budget_of_answers(Recipe.model_validate(large), facts)
    require_budget_of_answers(Recipe.model_validate(small), RowsFacts())  # not counted yet
    small["task_distillation"]["answers"] = "live"
    require_budget_of_answers(Recipe.model_validate(small), facts)


def test_a_plan_above_the_budget_is_refused(tmp_path: Path) -> None:
    """Before anything runs, by the command that plans."""
    rows, teacher = write_documents(tmp_path / "table", 40), write_decoder(tmp_path / "teacher")
    values = values_for(teacher, rows)
    values["task_distillation"] |= {"signal_budget_gb": 1e-5}
    recipe = Recipe.model_validate(values)
    session = planned_session(recipe, Home(tmp_path / "home").create())
    with pytest.raises(RecipeError, match="take up to .*, and task_distillation.signal_budget_gb is 1e-05"):
        planned_rows(recipe, session)


def test_a_plan_keeps_no_more_words_than_the_teacher_knows(tmp_path: Path) -> None:
    """The stage keeps the whole vocabulary where it is the smaller one; a plan named the room of 1,000 words."""
    rows, teacher = write_documents(tmp_path / "table", 40), write_decoder(tmp_path / "teacher")
    values = values_for(teacher, rows)
    values["task_distillation"] |= {"kept_words": 1000}
    recipe = Recipe.model_validate(values)
    session = planned_session(recipe, Home(tmp_path / "home").create())
    words = json.loads((teacher / "config.json").read_text())["vocab_size"]
    assert session.vocabulary == words < 1000
    (line,) = kept_answer_lines(recipe, HeldBackFacts(), session.vocabulary)
    assert f"up to {words * 2 + (words + 1) * 2} bytes for each token" in line  # ids of so few words take two bytes
    assert f"with all {words} words of the teacher's vocabulary, which has fewer than kept_words: 1000, each" in line
    (unknown,) = kept_answer_lines(recipe, HeldBackFacts())
    assert "up to 6002 bytes for each token" in unknown and "with 1000 words each" in unknown


def test_room_of_a_plan_is_that_of_the_stored_answers() -> None:
    """The plan's bytes of an answer are those that the stage writes, of small and of large vocabularies."""
    for words, vocabulary in ((16, 40_000), (16, 320), (320, 320)):
        kept = KeptWords(words=words, temperature=1.0, bits=16)
        stored = stored_words(torch.randn(3, vocabulary), kept)
        assert sum(one.nbytes for one in stored.values()) == 3 * answer_bytes(words, 16, vocabulary)
