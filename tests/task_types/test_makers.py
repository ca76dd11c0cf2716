"""Every job that makes a model smaller on every task type: it ends with a folder that answers, or with one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import ModelError, RecipeError
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import read_split
from tasks.ports.rows.table_files import write_table
from tasks.recipe.knobs import Knobs
from tasks.recipe.makers.slices import (
    HeadSlice,
    NeuronSlice,
    PruneRoundSlice,
    QuantizationSlice,
    StaticQuantizationSlice,
    SubNetworkSlice,
    SupernetSlice,
    TicketSlice,
    VocabularySlice,
    WeightSlice,
    WidthSlice,
)
from tasks.recipe.slices import AnswerSlice, DropSlice, IntermediateSlice, PredictionSlice, RowsSlice
from tasks.recipe.students import Shape
from tasks.scoring.predict import outputs_of
from tasks.task_types.types import TASK_TYPES
from tasks.training.data.rows import load_tokenizer, read_task
from tasks.training.jobs import JOBS
from tasks.training.models.students import load_classifier, save_model
from tasks.training.precision import device
from tests.flows.test_multi_label import write_table as write_topics
from tests.forked.strangers import ask_stranger
from tests.task_types.chats.tables import write_answering, write_chats
from tests.task_types.choices.tables import write_questions
from tests.task_types.embedding.test_chain import write_pairs
from tests.task_types.masked_words.tables import write_encoder
from tests.task_types.next_words.tables import write_decoder, write_documents
from tests.task_types.ranking.tables import write_graded
from tests.task_types.spans.tables import write_asked
from tests.task_types.tokens.tables import write_tagged
from tests.tiny import write_tiny_bert, write_tiny_rows

LENGTH = 32
ASKED = 16
"""Rows of a split whose answers are compared."""
TRAINED: dict[str, Any] = {
    "steps": 3,
    "batch_size": 8,
    "max_length": LENGTH,
    "learning_rate": 1e-3,
    "precision": "fp32",
}
MEASURED: dict[str, Any] = {"keep": 0.5, "rows": 16, "max_length": LENGTH}
BUILT: dict[str, Any] = {"shape": Shape(layers=2), "start": "teacher"}


def write_numbers(folder: Path) -> Path:
    texts = [f"the film was {'very ' * (number % 5)}good {number}" for number in range(160)]
    write_table(folder / "train.parquet", {"text": texts, "label": [float(number % 5) for number in range(160)]})
    return folder / "train.parquet"


def write_passages(folder: Path) -> Path:
    things = [f"thing{number}" for number in range(120)]
    columns = {"query": [f"where is {one}" for one in things], "passage": [f"the {one} is here" for one in things]}
    write_table(folder / "train.parquet", columns)
    return folder / "train.parquet"


TABLES: dict[str, tuple[Callable[[Path], Path], dict[str, Any]]] = {
    "classification": (write_tiny_rows, {"text": "text"}),
    "regression": (write_numbers, {"text": "text", "label": "label"}),
    "tokens": (write_tagged, {"text": "tokens", "label": "tags"}),
    "multi-label": (write_topics, {"label": "topics"}),
    "choices": (write_questions, {"text": "context", "pair": "{choices[]}", "truncate": "first"}),
    "ranking": (write_graded, {"text": "query", "pair": "passage"}),
    "spans": (write_asked, {}),
    "embedding": (write_pairs, {"text": "a", "pair": "b", "label": "similarity"}),
    "retrieval": (write_passages, {"text": "query", "pair": "passage"}),
    "next-words": (write_documents, {}),
    "chats": (write_chats, {}),
    "masked-words": (write_documents, {}),
}
"""A table of each type, and its columns. Models of seq2seq have two stacks: their makers are refused by the recipe."""
DECODERS = ("next-words", "chats")
BASES = {"next-words": write_decoder, "chats": write_answering, "masked-words": write_encoder}


class Prepared:
    """Rows of one task type, and a teacher with a random head."""

    def __init__(self, folder: Path, name: str) -> None:
        write, columns = TABLES[name]
        self.importance = "taylor" if TASK_TYPES[name].learns_labels else "activation"
        (folder / "table").mkdir()
        self.folder, self.name, self.rows = folder, name, folder / "rows"
        spec = TaskSpec.model_validate({"name": "tiny", "kind": name, **columns})
        given = {"source": str(folder), "selection_rows": 16, "validation_share": 0.2, "holdout_rows": 0}
        prepare_rows(write(folder / "table"), RowsSlice.model_validate({"task": spec.model_dump(), **given}), self.rows)
        base = BASES.get(name, write_tiny_bert)(folder / "base")
        model = load_classifier(base, read_task(self.rows, name), device(), seed=1)
        self.teacher = folder / "teacher"
        save_model(model, load_tokenizer(base), self.teacher)

    def made(self, job: str, knobs: Knobs, **inputs: Path) -> tuple[Path, dict[str, Any]]:
        output = self.folder / job
        output.mkdir(exist_ok=True)
        order = {"job": job, "knobs": knobs.model_dump(mode="json"), "output": str(output)}
        order |= {"checkpoints": str(self.folder / f"{job}-kept"), "threads": 1}
        given = {"rows": self.rows, **inputs}
        named = {name: str(folder) for name, folder in given.items()}
        facts = JOBS[job](Job({**order, "inputs": named}, silent=True))
        return output, dict(facts)

    def answers(self, folder: Path, split: str = "selection") -> dict[str, np.ndarray]:
        rows = read_split(self.rows, split)
        pairs = None if rows.pairs is None else rows.pairs[:ASKED]
        return outputs_of(folder, rows.texts[:ASKED], pairs, LENGTH, task_type=self.name)


def by_neurons(given: Prepared) -> tuple[Path, dict[str, Any]]:
    return given.made(
        "neurons", NeuronSlice(task_type=given.name, importance=given.importance, **MEASURED), base=given.teacher
    )


def by_width(given: Prepared) -> tuple[Path, dict[str, Any]]:
    return given.made(
        "width", WidthSlice(task_type=given.name, importance=given.importance, **MEASURED), base=given.teacher
    )


def by_heads(given: Prepared) -> tuple[Path, dict[str, Any]]:
    return given.made(
        "heads", HeadSlice(task_type=given.name, importance=given.importance, **MEASURED), base=given.teacher
    )


def by_a_round(given: Prepared) -> tuple[Path, dict[str, Any]]:
    knobs = PruneRoundSlice(
        task_type=given.name, importance=given.importance, **MEASURED, part="neurons", round=1, rounds=2
    )
    return given.made("prune-round", knobs, base=given.teacher, first=given.teacher)


def by_vocabulary(given: Prepared) -> tuple[Path, dict[str, Any]]:
    return given.made(
        "vocabulary", VocabularySlice(task_type=given.name, keep="used", max_length=LENGTH), base=given.teacher
    )


def by_layers(given: Prepared) -> tuple[Path, dict[str, Any]]:
    knobs = DropSlice(task_type=given.name, **TRAINED, strategy="top", drop=2, signal="labels")
    return given.made("drop", knobs, base=given.teacher)


def by_weights(given: Prepared) -> tuple[Path, dict[str, Any]]:
    knobs = WeightSlice(task_type=given.name, **TRAINED, keep=0.5, signal="labels")
    return given.made("weights", knobs, start=given.teacher)


def by_a_ticket(given: Prepared) -> tuple[Path, dict[str, Any]]:
    return given.made("ticket", TicketSlice(task_type=given.name, **TRAINED, signal="labels"), start=given.teacher)


def by_bits(given: Prepared) -> tuple[Path, dict[str, Any]]:
    knobs = QuantizationSlice(task_type=given.name, **TRAINED, format="int8")
    return given.made("quantization", knobs, start=given.teacher)


def by_static_ranges(given: Prepared) -> tuple[Path, dict[str, Any]]:
    knobs = StaticQuantizationSlice(task_type=given.name, **TRAINED, format="int8", ranges="trained")
    return given.made("static-quantization", knobs, start=given.teacher)


def by_a_supernet(given: Prepared) -> tuple[Path, dict[str, Any]]:
    space = {"layers": (2, 4), "neurons": (0.5, 1.0), "strategy": "top", "rows": 16}
    if given.name not in DECODERS:
        space["width"] = (0.5, 1.0)
    whole, _ = given.made("supernet", SupernetSlice(task_type=given.name, **TRAINED, **space), base=given.teacher)
    knobs = SubNetworkSlice(task_type=given.name, layers=2, neurons=0.5, max_length=LENGTH)
    return given.made("cut-supernet", knobs, supernet=whole)


def by_inner_layers(given: Prepared) -> tuple[Path, dict[str, Any]]:
    knobs = IntermediateSlice(task_type=given.name, **TRAINED, **BUILT, matching={"projection": "none"})
    return given.made("intermediate", knobs, teacher=given.teacher)


def by_answers(given: Prepared) -> tuple[Path, dict[str, Any]]:
    kept = {"kept": {"words": 8, "temperature": 1.0}} if TASK_TYPES[given.name].keeps_words else {}
    said, _ = given.made("answer", AnswerSlice(task_type=given.name, max_length=LENGTH, **kept), teacher=given.teacher)
    knobs = PredictionSlice(task_type=given.name, **TRAINED, **BUILT, temperature=1.0)
    return given.made("prediction", knobs, teacher=given.teacher, answers=said)


MAKERS = [
    by_neurons,
    by_width,
    by_heads,
    by_a_round,
    by_vocabulary,
    by_layers,
    by_weights,
    by_a_ticket,
    by_bits,
    by_static_ranges,
    by_a_supernet,
    by_inner_layers,
    by_answers,
]
OF_A_LLAMA = "llama cannot be made narrower|of a model of type llama cannot be removed|model of the family llama cannot"
REFUSED = {
    **{
        (name, one.__name__): OF_A_LLAMA
        for name in DECODERS
        for one in (by_neurons, by_width, by_heads, by_a_round, by_bits, by_static_ranges, by_a_supernet)
    },
    **{(name, "by_inner_layers"): "attention scores cannot be read from a model of type llama" for name in DECODERS},
}
"""What a type and a maker cannot do together, and the sentence."""


@pytest.fixture(scope="module", params=list(TABLES))
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_maker_serves_a_type_or_says_why_not(make: Callable[..., Any], prepared: Prepared) -> None:
    refused = REFUSED.get((prepared.name, make.__name__))
    if refused is not None:
        with pytest.raises((ModelError, RecipeError), match=refused):
            make(prepared)
        return
    folder, _ = make(prepared)
    ours, theirs = prepared.answers(folder), prepared.answers(prepared.teacher)
    assert are_finite(ours) and shapes_of(ours, prepared.name, make) == shapes_of(theirs, prepared.name, make)
    if make is by_vocabulary and not TASK_TYPES[prepared.name].keeps_words:
        require_same(prepared.answers(folder, "train"), prepared.answers(prepared.teacher, "train"))
    if prepared.name == "classification":
        assert stranger_s_answers(folder, prepared) == pytest.approx(ours["logits"], abs=1e-5), "without our code, too"


def shapes_of(outputs: dict[str, np.ndarray], kind: str, make: Callable[..., Any]) -> dict[str, list[tuple[int, ...]]]:
    """Return the shape of each row's answer, where it has to be the teacher's: the vectors of a narrower embedder are
    shorter, and other pieces divide a text into others."""
    if make is by_vocabulary and TASK_TYPES[kind].keeps_words:
        return {name: [(len(outputs[name]),)] for name in outputs}
    is_narrower = make is by_width and not TASK_TYPES[kind].learns_labels
    return {name: [np.shape(row)[: -1 if is_narrower else None] for row in values] for name, values in outputs.items()}


def are_finite(outputs: dict[str, np.ndarray]) -> bool:
    """Tell whether all numbers of all answers are finite; texts are."""
    numbers = [np.ravel(row) for values in outputs.values() if values.dtype.kind != "U" for row in values]
    return bool(np.isfinite(np.concatenate(numbers).astype(float)).all())


def require_same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Fail unless all answers are the same: to texts of pieces that were all kept, nothing may change."""
    for name, values in theirs.items():
        for row, (one, other) in enumerate(zip(ours[name], values, strict=True)):
            if values.dtype.kind == "U":
                assert one == other, (name, row)
            else:
                np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), atol=1e-6, err_msg=name)


STRANGER = """
import json, sys, torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
with torch.inference_mode():
    cut = dict(truncation=True, max_length=%d, return_tensors="pt")
    print(json.dumps([model(**tokenizer(text, **cut)).logits[0].tolist() for text in texts]))
assert not [name for name in sys.modules if name.split(".")[0] in ("tasks", "flows")]
"""


def stranger_s_answers(folder: Path, prepared: Prepared) -> np.ndarray:
    """Return the logits that transformers alone gets from a folder."""
    texts = read_split(prepared.rows, "selection").texts
    done = ask_stranger(STRANGER % LENGTH, str(folder), json.dumps(list(texts)), folder=prepared.folder)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout.splitlines()[-1]))


def test_every_type_with_one_stack_is_tried() -> None:
    assert set(TABLES) == {name for name, one in TASK_TYPES.items() if not one.writes}
