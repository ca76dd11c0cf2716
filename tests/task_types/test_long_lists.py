"""A query with a thousand texts, and a question with a thousand options: no pass over a model reads more of them at
once than of others, a sample of them is learned, and each has the score that it has in a short list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.table_files import write_table
from tasks.recipe.slices import AnswerSlice, PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.recipe.training import SeededTraining
from tasks.scoring.predict import predict_texts, truncated_share
from tasks.task_types.choices.options import OPTION_PARTS
from tasks.task_types.heads import HEADS
from tasks.training.answers import answer
from tasks.training.data import encoded as encoding
from tasks.training.data.encoded import Encoded
from tasks.training.data.epochs import batches_of_rows, planned
from tasks.training.data.rows import read_rows, read_task
from tasks.training.distill import distill_prediction
from tasks.training.finetune import finetune
from tests.families import write_tiny
from tests.tiny import WORDS

MANY, TOKENS, READ_AT_ONCE = 1000, 512, 64
LESSON: dict[str, Any] = {
    "steps": 4,
    "batch_size": 2,
    "batch_tokens": TOKENS,
    "max_length": 16,
    "evaluations": 1,
    "precision": "fp32",
}


def texts_about(count: int) -> list[str]:
    """Return different texts, of which the second alone is about a book."""
    more = (f"{WORDS[number % 7]} {WORDS[number % 11]} {WORDS[number % 13]} {number}" for number in range(2, count))
    return ["a film 0", "the book was good", *more]


def write_lists(folder: Path, kind: str) -> TaskSpec:
    """Write two questions with many texts, and eight with three, as train and as validation; return their task."""
    lists = [texts_about(count) for count in (MANY, 3, 3, 3, 3, MANY, 3, 3, 3, 3)]
    labels = {"ranking": [[int(place == 1) for place in range(len(one))] for one in lists], "choices": [1] * len(lists)}
    for split in ("train", "validation"):
        asked = [f"which book {split} {number}" for number in range(len(lists))]
        write_table(folder / f"{split}.parquet", {"q": asked, "texts": lists, "right": labels[kind]})
    return TaskSpec(name="lists", kind=kind, text="q", pair="{texts[]}", label="right")


def job(folder: Path, knobs: Any, **inputs: Path) -> Job:
    """Return a job whose output is a folder."""
    folder.mkdir()
    values = {"job": folder.name, "knobs": knobs.model_dump(mode="json"), "output": str(folder)}
    places = {
        "checkpoints": str(folder.with_suffix(".marks")),
        "inputs": {key: str(one) for key, one in inputs.items()},
    }
    return Job({**values, **places}, silent=True)


@contextmanager
def largest_reading() -> Iterator[list[int]]:
    """Collect how many padded tokens each table of embeddings looks up at once."""
    seen = list[int]()

    def note(module: nn.Module, given: tuple[Any, ...]) -> None:
        if isinstance(module, nn.Embedding):
            seen.append(given[0].numel())

    hook = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


@pytest.mark.parametrize("kind", ["ranking", "choices"])
def test_a_thousand_texts_are_learned_and_asked_in_as_much_memory_as_a_few(kind: str, tmp_path: Path) -> None:
    bert = write_tiny("bert", tmp_path / "bert", initializer_range=0.5)  # scores differ from text to text
    task, rows = write_lists(tmp_path / "table", kind), tmp_path / "rows"
    prepare_rows(tmp_path / "table", RowsSlice(task=task, selection_rows=4, purge=False), rows)
    teacher, answers, student = (tmp_path / name for name in ("teacher", "answers", "student"))
    with largest_reading() as learned:
        finetune(job(teacher, TeacherSlice(task_type=kind, model="m", **LESSON), rows=rows, base=bert))
    with largest_reading() as answered:
        answer(job(answers, AnswerSlice(task_type=kind, max_length=16), rows=rows, teacher=teacher))
    knobs = PredictionSlice(task_type=kind, shape=Shape(layers=2), start="teacher", **LESSON)
    with largest_reading() as distilled:
        distill_prediction(job(student, knobs, rows=rows, teacher=teacher, answers=answers))
    assert max(learned) <= READ_AT_ONCE * 16 and max(distilled) <= READ_AT_ONCE * 16
    assert READ_AT_ONCE < max(answered) <= READ_AT_ONCE * 16
    question, texts = "which book", texts_about(MANY)
    with largest_reading() as predicted:
        whole: Any = predict_texts(student, [question], ["\n".join(texts)], 16)[0]
    assert READ_AT_ONCE < max(predicted) <= READ_AT_ONCE * 16
    tens = ["\n".join(texts[start : start + 10]) for start in range(0, MANY, 10)]
    apart: Any = predict_texts(student, [question] * len(tens), tens, 16)
    if kind == "ranking":
        assert whole["scores"] == pytest.approx([one for row in apart for one in row["scores"]], abs=1e-4)
        assert len({*np.round(whole["scores"], 2)}) > 20
    else:
        best = max(range(MANY), key=lambda place: whole["scores"][place])
        assert whole["choice"] == best and len(whole["scores"]) == MANY
    units: Any = HEADS[kind].units
    assert 0 < truncated_share(student, [question], ["\n".join(texts)], 6, units) <= 1
    task_read = read_task(rows, kind)
    again = read_rows(rows, "train", task_read.head).tokens(AutoTokenizer.from_pretrained(bert), 16)
    assert again.windows is not None and again.windows.needed_F is not None
    assert again.windows.needed_F.sum() == len(again.windows.counts_N), "the right text of each row"


def with_lists(tiny_bert: Path, counts: list[int], right: int = 7) -> Encoded:
    """Return tokens of questions with so many options, of which one is right."""
    pairs = ["\n".join(texts_about(count)) for count in counts]
    targets = [[(row << 2) | int(place == right) for place in range(count)] for row, count in enumerate(counts)]
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    return encoding.encode_parts(
        tokenizer,
        ["which"] * len(counts),
        pairs,
        16,
        OPTION_PARTS,
        np.concatenate([np.asarray(one) for one in targets]),
    )


def test_a_sample_of_a_long_list_has_its_right_text_and_other_texts_in_each_epoch(tiny_bert: Path) -> None:
    encoded = with_lists(tiny_bert, [300, 8, 8, 300])
    windows = encoded.windows
    assert windows is not None
    knobs = SeededTraining.model_construct(batch_size=4, batch_tokens=200, seed=0)
    epochs = [planned(number, encoded, knobs).batches for number in (0, 1, 0)]
    drawn = list[set[int]]()
    for batches in epochs:
        for batch in batches:
            assert len(batch) * encoded.lengths_N[batch].max() <= 200 and (np.diff(batch) != 0).all()
        every = np.concatenate(batches)
        assert {7, 300 + 7, 308 + 7, 316 + 7} <= {*every.tolist()}, "the right options"
        assert {*range(300, 316)} <= {*every.tolist()}, "short lists are whole"
        assert 10 < (every < 300).sum() < 60
        drawn.append({*every.tolist()})
    assert drawn[0] != drawn[1] and drawn[0] == drawn[2], "by seed and epoch"
    (one,) = batches_of_rows(encoded, np.asarray([0]), size=4, tokens=200)
    assert len(one) * encoded.lengths_N[one].max() <= 200
    assert 7 in one, "the right option, by which losses are measured"


def test_texts_are_tokenized_in_blocks_with_the_same_tokens(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = with_lists(tiny_bert, [30, 8, 5])
    monkeypatch.setattr(encoding, "ENCODED_AT_ONCE", 4)
    blocks = with_lists(tiny_bert, [30, 8, 5])
    for name in ("ids_S", "segments_S", "offsets"):
        ours, theirs = getattr(whole, name), getattr(blocks, name)
        assert ours.dtype == theirs.dtype and torch.equal(torch.as_tensor(ours), torch.as_tensor(theirs))
