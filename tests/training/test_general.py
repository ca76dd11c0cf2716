"""Students that are distilled on general text first, of types other than classification: no task is known there, and
what is made must load under the head of a tagger, and as an embedder, which has none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.recipe.data import CorpusText
from tasks.recipe.slices import AnswerSlice, GeneralSlice, PredictionSlice
from tasks.recipe.students import Shape
from tests.task_types.test_makers import LENGTH, TRAINED, Prepared
from tests.tiny import WORDS
from tests.training.test_families import job

SMALL = Shape(layers=2, hidden=8, heads=2, feed_forward=16)
"""Narrower than the teacher: an embedder of this shape learns similarities, and is built from nothing of it."""


def write_general_text(folder: Path, base: Path) -> Path:
    """Write a tokenized corpus of short documents."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.training.data.corpora import tokenize_corpus

    (folder / "documents").mkdir()
    texts = [f"the {word} was {other} and {word}" for word in WORDS[:8] for other in WORDS[:8]]
    pq.write_table(pa.table({"text": texts}), folder / "documents" / "documents.parquet")
    knobs = CorpusText(source="", max_tokens=2000, max_length=16)
    tokenize_corpus(job("tokenize", knobs, folder / "corpus", base=base, documents=folder / "documents"))
    return folder / "corpus"


@pytest.mark.parametrize("kind", ["tokens", "embedding"])
def test_a_general_student_learns_a_task_of_its_type(kind: str, tmp_path: Path) -> None:
    given = Prepared(tmp_path, kind)
    corpus = write_general_text(tmp_path, tmp_path / "base")
    knobs = GeneralSlice(**TRAINED, shape=SMALL, start="random", method="relations")
    general, facts = given.made("general", knobs, base=tmp_path / "base", corpus=corpus)
    assert facts["steps"] == TRAINED["steps"]
    said, _ = given.made("answer", AnswerSlice(task_type=kind, max_length=LENGTH), teacher=given.teacher)
    learned = PredictionSlice(task_type=kind, **TRAINED, temperature=1.0)
    student, _ = given.made("prediction", learned, teacher=given.teacher, answers=said, start=general)
    (ours,), (theirs,) = (given.answers(folder).values() for folder in (student, given.teacher))
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert np.isfinite(np.asarray(one, float)).all()
        wide = np.shape(other) if kind == "tokens" else (SMALL.hidden,)
        assert np.shape(one) == wide, "a tag for each word, or a vector of the student's own width"
