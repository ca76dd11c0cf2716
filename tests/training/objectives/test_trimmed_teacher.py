"""Layers of a teacher for a student with fewer pieces: the teacher's own, bit by bit, for texts that both divide alike;
the others are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.engine.job import Job
from tasks.errors import ModelError
from tasks.recipe.makers.slices import VocabularySlice
from tasks.recipe.slices import IntermediateSlice
from tasks.training.data.encoded import collate
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.distill import distill_intermediate
from tasks.training.models.students import freeze, load_classifier
from tasks.training.objectives.trimmed_teacher import pieces_of_student, read_alike, some_of
from tasks.training.shrinking.vocabulary import keep_used_pieces
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier

CPU = torch.device("cpu")
LENGTH = 16


def job(output: Path, knobs: Any, **inputs: Path) -> Job:
    output.mkdir(exist_ok=True)
    given = {name: str(path) for name, path in inputs.items()}
    order = {"job": "layers", "knobs": knobs.model_dump(mode="json"), "inputs": given, "output": str(output)}
    return Job(order, silent=True)


@pytest.fixture
def trimmed(rows: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A teacher, and a model of it in which some words of the rows are divided into letters."""
    teacher = classifier(write_tiny("bert", tmp_path / "bert"), rows, tmp_path / "teacher")
    knobs = VocabularySlice(task_type="classification", keep=94, max_length=LENGTH)
    keep_used_pieces(job(tmp_path / "small", knobs, base=teacher, rows=rows))
    return teacher, tmp_path / "small"


def test_a_text_that_both_divide_alike_has_the_teachers_own_states(
    trimmed: tuple[Path, Path], rows: Path, tmp_path: Path
) -> None:
    task = read_task(rows, "classification")
    folder, small = trimmed
    teacher, whole = (freeze(load_classifier(folder, task, CPU)).eval() for _ in range(2))
    theirs, ours = load_tokenizer(folder), load_tokenizer(small)
    kept = pieces_of_student(ours.get_vocab(), theirs.get_vocab())
    assert kept is not None and len(kept) < len(theirs)
    every = read_rows(rows, "train", task.head)
    alike = read_alike(
        job(tmp_path / "alike", VocabularySlice(task_type="classification", keep=1)),
        teacher,
        ours,
        theirs,
        every,
        LENGTH,
        kept,
    )
    assert 0 < len(alike) < len(every) and not any(value.requires_grad for value in teacher.parameters())
    assert set(alike.ids_N) < set(every.ids_N)
    shown = []
    for model, tokenizer in ((teacher, ours), (whole, theirs)):
        batch = collate(alike.tokens(tokenizer, LENGTH), list(range(min(8, len(alike)))), 0, CPU)
        shown.append(model(**batch.inputs(model), output_hidden_states=True, output_attentions=False))
    for own, its in zip(shown[0].hidden_states, shown[1].hidden_states, strict=True):
        assert torch.equal(own, its)
    assert torch.equal(shown[0].logits, shown[1].logits)


def test_the_first_phase_compares_these_rows_and_counts_the_others(
    trimmed: tuple[Path, Path], rows: Path, tmp_path: Path
) -> None:
    knobs = IntermediateSlice(task_type="classification", steps=3, batch_size=4, max_length=LENGTH, precision="fp32")
    facts = distill_intermediate(job(tmp_path / "layers", knobs, teacher=trimmed[0], start=trimmed[1], rows=rows))
    assert 0 < facts["rows_left_out"] < len(read_rows(rows, "train", read_task(rows, "classification").head))  # type: ignore[operator]
    assert len(load_tokenizer(tmp_path / "layers")) == len(load_tokenizer(trimmed[1]))


def test_a_student_with_a_piece_of_its_own_is_no_part_of_its_teacher() -> None:
    theirs = {"[PAD]": 0, "a": 1, "b": 2, "c": 3}
    assert pieces_of_student({"[PAD]": 0, "c": 1}, theirs) == [0, 3]
    assert pieces_of_student({"[PAD]": 0, "d": 1}, theirs) is None
    assert pieces_of_student({"[PAD]": 0, "c": 2}, theirs) is None


def test_rows_whose_tokens_cannot_be_compared_are_refused_in_a_sentence(
    trimmed: tuple[Path, Path], rows: Path, tmp_path: Path
) -> None:
    task = read_task(rows, "classification")
    teacher = load_classifier(trimmed[0], task, CPU)
    theirs, ours = (load_tokenizer(folder) for folder in trimmed)
    kept, every = pieces_of_student(ours.get_vocab(), theirs.get_vocab()), read_rows(rows, "train", task.head)
    assert kept is not None
    plain, varied = (
        job(tmp_path / name, VocabularySlice(task_type="classification", keep=1), **more)
        for name, more in (("plain", {}), ("varied", {"candidates": rows}))
    )
    with pytest.raises(ModelError, match="replaced words may be divided otherwise by the two; remove augmentation"):
        read_alike(varied, teacher, ours, theirs, every, LENGTH, kept)
    windows: Any = replace(every, units=object())  # only that there are units is asked
    with pytest.raises(ModelError, match="rows of several answers are read in windows"):
        read_alike(plain, teacher, ours, theirs, windows, LENGTH, kept)
    alike = read_alike(plain, teacher, ours, theirs, every, LENGTH, kept)
    others = some_of(every, ~np.isin(every.ids_N, alike.ids_N))
    with pytest.raises(ModelError, match=f"divide none of {len(others)} rows as its teacher's do"):
        read_alike(plain, load_classifier(trimmed[0], task, CPU), ours, theirs, others, LENGTH, kept)
