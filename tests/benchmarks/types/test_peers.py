"""Both ways of the comparison by task type learn one loss, from one start. Nothing here asserts a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DataCollatorForSeq2Seq

from tasks.recipe.slices import KeptSlice
from tasks.task_types.heads import HEADS
from tasks.task_types.units import KeptWords
from tasks.training.data.encoded import collate
from tasks.training.data.rows import read_rows
from tests.benchmarks.setting import Setting
from tests.benchmarks.types.passages import divergence_at_ends, windows_with_ends
from tests.benchmarks.types.peers import peer_of
from tests.benchmarks.types.school import School, open_school
from tests.benchmarks.types.trainers import PEERS, divergence_from, pairs_of_sentences, tagged_words
from tests.task_types.embedding.test_chain import recipe_for as recipe_of_embedder
from tests.task_types.embedding.test_search_chain import SEARCH, write_searches
from tests.task_types.next_words.tables import write_decoder, write_documents
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.seq2seq.test_chain import values_for
from tests.task_types.spans.tables import write_asked
from tests.task_types.spans.test_chain import values_for as values_of_passages
from tests.task_types.tokens.tables import write_tagged
from tests.task_types.tokens.test_chain import values_for as values_of_entities
from tests.tiny import write_tiny_bert

OF_A_TYPE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "tokens": lambda folder: values_of_entities(write_tiny_bert(folder / "model"), write_tagged(folder / "table")),
    "spans": lambda folder: values_of_passages(write_tiny_bert(folder / "model"), write_asked(folder / "table")),
    "retrieval": lambda folder: recipe_of_embedder(
        write_tiny_bert(folder / "model"), write_searches(made(folder / "table")), task=SEARCH
    ),
}
"""Recipes of types whose models answer by token, and of embedders for search, by type."""


def made(folder: Path) -> Path:
    """Return a folder that is there."""
    folder.mkdir()
    return folder


def recipe_for(kind: str, folder: Path) -> Path:
    """Write a recipe of a type whose teacher is a folder with random weights; most take it for a fine-tuned one."""
    if kind in OF_A_TYPE:
        values = OF_A_TYPE[kind](folder)
    elif kind == "seq2seq":
        values = values_for(write_translator(folder / "model"), write_sentences(folder / "table"))
    else:
        values = values_for(write_decoder(folder / "model", layers=4), write_documents(folder / "table"))
        values["task"] = {"name": "documents", "kind": kind, "metrics": ["word_perplexity"]}
        values["students"] = [{"name": "words", "layers": 2}]
        del values["generation"], values["gate"]["criteria"]
    if kind not in OF_A_TYPE:  # these are fine-tuned first, or say themselves that they are not
        values["teacher"] = {"model": values["teacher"]["model"], "already_finetuned": True}
    (folder / "recipe.yaml").write_text(json.dumps(values))
    return folder / "recipe.yaml"


@pytest.fixture
def school(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> School:
    monkeypatch.setenv("RECIPE", str(recipe_for("seq2seq", tmp_path)))
    (tmp_path / "scratch").mkdir()
    return open_school(tmp_path / "scratch", quick=True)


def test_a_trainer_learns_the_loss_that_we_learn(school: School) -> None:
    """On the same sources, with all words kept: the loss of our training is theirs, and so is the start."""
    teacher, tokenizer, head = school.load_teacher(), school.tokenizer(), HEADS["seq2seq"]
    student, again = school.start(teacher, 0).eval(), school.start(teacher, 0).eval()
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(student.parameters(), again.parameters(), strict=True))
    assert student.config.encoder_layers == 2 and student.config.decoder_layers == 1
    batch = DataCollatorForSeq2Seq(tokenizer, student)(pairs_of_sentences(school, tokenizer)[:5])
    theirs = divergence_from(teacher, school.knobs, shifts=False)(student, dict(batch))
    rows = read_rows(school.rows, "train", head)
    encoded = rows.tokens(tokenizer, 48)
    ours_batch = collate(encoded, list(range(5)), tokenizer.pad_token_id, torch.device("cpu"))
    assert encoded.windows is not None and encoded.windows.targets_UK is not None and head.keep is not None
    answers: list[dict[str, Any]] = []
    for model in (student, teacher):
        with torch.no_grad():
            answers.append(ours_batch.answers({"logits": model(**ours_batch.inputs(model)).logits}))
    kept = KeptSlice(words=1000, temperature=school.knobs.temperature, bits=32)
    stored = head.keep(answers[1], KeptWords(kept.words, kept.temperature, kept.bits))
    ours = head.teacher_loss(
        answers[0],
        stored,
        torch.as_tensor(encoded.windows.targets_UK[ours_batch.numbers]),
        temperature=school.knobs.temperature,
        hard_weight=school.knobs.hard_weight,
        formula="default",
    )
    assert ours.mean().item() == pytest.approx(theirs.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "most", "examples", "loss_from"),
    [("tokens", 32, tagged_words, divergence_from), ("spans", 20, windows_with_ends, divergence_at_ends)],
)
def test_a_trainer_of_tokens_learns_the_loss_that_we_learn(
    kind: str, most: int, examples: Any, loss_from: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the same sentences, which are whole, or the same windows, with the same true answers."""
    recipe = recipe_for(kind, tmp_path)
    values = json.loads(recipe.read_text())
    for section in (values["scoring"], values["task_distillation"]["prediction"], values["teacher"]):
        section["max_length"] = most
    values["task_distillation"]["prediction"] |= {"hard_weight": 0.3, "temperature": 2}
    recipe.write_text(json.dumps(values))
    monkeypatch.setenv("RECIPE", str(recipe))
    (tmp_path / "scratch").mkdir()
    school, head = open_school(tmp_path / "scratch", quick=True), HEADS[kind]
    teacher, tokenizer = school.load_teacher(), school.tokenizer()
    student = school.start(teacher, 0).eval()
    theirs = examples(school, tokenizer)
    rows = read_rows(school.rows, "train", head)
    encoded = rows.tokens(tokenizer, most)
    count = len(encoded.offsets) - 1
    assert len(theirs) == count >= len(rows) and (kind == "tokens" or count > len(rows))
    for chosen in (list(range(7)), [int(place) for place in encoded.lengths_N.argsort()[-7:]]):
        loss = loss_from(teacher, school.knobs)(
            student, dict(DataCollatorForSeq2Seq(tokenizer)([dict(theirs[place]) for place in chosen]))
        )
        batch = collate(encoded, chosen, tokenizer.pad_token_id, torch.device("cpu"))
        with torch.no_grad():
            answers = [batch.answers({**model(**batch.inputs(model))}) for model in (student, teacher)]
        ours = head.teacher_loss(
            answers[0],
            answers[1],
            torch.as_tensor(rows.targets_in(encoded)[batch.at_B]),
            temperature=school.knobs.temperature,
            hard_weight=school.knobs.hard_weight,
            formula="default",
        )
        assert ours.mean().item() == pytest.approx(loss.item(), rel=1e-5)


def test_embedders_for_search_learn_queries_and_passages_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the library that distils embedders of pairs: each text is a row of its own, whose vector is learned."""
    monkeypatch.setenv("RECIPE", str(recipe_for("retrieval", tmp_path)))
    (tmp_path / "scratch").mkdir()
    school = open_school(tmp_path / "scratch", quick=True)
    assert peer_of(school.kind) is peer_of("embedding") is PEERS["retrieval"]
    rows = school.split("train")
    assert rows.pairs is None and len(rows) % 2 == 0
    for query, passage in zip(rows.texts[:40:2], rows.texts[1:40:2], strict=True):
        assert {*query.split()} < {*passage.split()}, "a query, and the passage that answers it"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["seq2seq", "next-words", "tokens", "spans", "retrieval"])
def test_both_ways_are_trained_and_judged(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benchmarks.types.peers import OURS, type_peers

    if kind == "retrieval":
        pytest.importorskip("sentence_transformers", reason="the extra sentence-transformers is not installed")
    monkeypatch.setenv("RECIPE", str(recipe_for(kind, tmp_path)))
    (figure,) = type_peers(Setting(1, True, 1))
    assert figure.of == OURS and figure.against == PEERS[kind].name
    assert figure.ratios[0] > 0 and " rows" in figure.name
