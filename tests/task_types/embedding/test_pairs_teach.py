"""Queries and their passages teach an embedder for search: both texts of a pair are in one batch, and a training on
them, alone or beside a teacher, finds more passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.ports.rows.prepared import prepare_rows, prepare_transfer
from tasks.recipe.makers.slices import NeuronSlice
from tasks.recipe.slices import PredictionSlice, RowsSlice, TeacherSlice, TransferSlice
from tasks.task_types.heads import HEADS
from tasks.training.data.epochs import Indices, planned
from tasks.training.data.rows import Rows, join, load_tokenizer, read_rows, task_and_tokenizer
from tasks.training.distill import distill_prediction
from tasks.training.distributed import ProcessGroup
from tasks.training.finetune import finetune
from tasks.training.models.students import load_classifier
from tasks.training.precision import device
from tasks.training.shrinking import neuron_pruning, width_pruning
from tasks.training.shrinking.neuron_pruning import drawn_batches
from tests.task_types.embedding.test_search_chain import SEARCH, write_searches
from tests.tiny import WORDS

TRAINING = {"steps": 60, "batch_size": 16, "max_length": 16, "learning_rate": 2e-3, "precision": "fp32", "seed": 0}


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared rows of a search, of which 30 select."""
    folder = tmp_path_factory.mktemp("searches")
    knobs = RowsSlice(task=TaskSpec(**SEARCH), selection_rows=30, validation_share=0.2, purge=False)
    prepare_rows(write_searches(folder), knobs, folder / "rows")
    return folder / "rows"


def job(knobs: Any, folder: Path, **inputs: Path) -> Job:
    """Return a job that writes a folder of its own."""
    values, places = knobs.model_dump(mode="json"), {name: str(one) for name, one in inputs.items()}
    return Job({"job": "test", "knobs": values, "output": str(folder), "inputs": places}, silent=True)


def train_rows(folder: Path) -> Rows:
    return read_rows(folder, "train", HEADS["retrieval"])


def test_both_texts_of_a_pair_are_in_one_batch_and_further_texts_stand_alone(
    searches: Path, tiny_bert: Path, tmp_path: Path
) -> None:
    own = train_rows(searches)
    (tmp_path / "more.txt").write_text("".join(f"a further text of {word}\n" for word in WORDS[:7]))
    knobs = TransferSlice(task_type="retrieval", source=str(tmp_path))
    prepare_transfer(tmp_path / "more.txt", knobs, tmp_path / "transfer", searches)
    free = read_rows(tmp_path / "transfer", "train", HEADS["retrieval"])
    rows = join(own, free)
    together = rows.together()
    assert together is not None and together[-1] == len(rows)
    assert np.array_equal(together[:-1], [*range(0, len(own), 2), *range(len(own), len(rows))])
    training: Any = TeacherSlice(task_type="retrieval", **TRAINING)
    encoded = rows.tokens(load_tokenizer(tiny_bert), 16)
    batches = planned(0, encoded, training, together=together).batches
    assert sorted(np.concatenate(batches)) == list(range(len(rows)))
    for batch in batches:
        paired = {*batch[batch < len(own)].tolist()}
        assert paired == {row ^ 1 for row in paired}, "a query without its passage"
        assert len(paired) // 2 + (batch >= len(own)).sum() <= training.batch_size


def test_several_processes_share_pairs_and_no_pair_is_divided(
    searches: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second row would be the queries for one of two processes, and the passages for the other."""
    rows = train_rows(searches)
    training: Any = TeacherSlice(task_type="retrieval", **TRAINING)
    epoch = planned(0, rows.tokens(load_tokenizer(tiny_bert), 16), training, together=rows.together())
    shares = []
    for rank in ("0", "1"):
        for name, value in (("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_RANK", rank)):
            monkeypatch.setenv(name, value)
        shares.append(ProcessGroup().share(Indices(epoch, epoch.batches[0])).rows_B)
    assert sorted(np.concatenate(shares)) == sorted(epoch.batches[0]) and len(shares[0]) == len(shares[1])
    for share in shares:
        assert {*share.tolist()} == {row ^ 1 for row in share.tolist()}


def test_rows_come_one_by_one_where_labels_have_no_weight(searches: Path) -> None:
    rows = train_rows(searches)
    assert rows.together(0.0) is None and rows.together(0.1) is not None
    assert read_rows(searches, "train", HEADS["embedding"]).together() is None


@pytest.mark.parametrize("of", [neuron_pruning, width_pruning])
def test_importance_is_measured_on_whole_pairs(of: Any, searches: Path, tiny_bert: Path, tmp_path: Path) -> None:
    """Of rows that are drawn one by one, hardly a query stands beside its passage, and nothing is important."""
    seen = list[Any]()

    def batches(*given: Any) -> Any:
        seen.append(drawn_batches(*given))
        return seen[-1]

    knobs: Any = NeuronSlice(task_type="retrieval", keep=0.5, importance="taylor", rows=8, max_length=16)
    measure = {neuron_pruning: "importance_of", width_pruning: "importance_of_stream"}[of]
    task, tokenizer = task_and_tokenizer(job(knobs, tmp_path, base=tiny_bert, rows=searches), "retrieval", "base")
    model = load_classifier(tiny_bert, task, device())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of, "drawn_batches", batches)
        getattr(of, measure)(job(knobs, tmp_path, rows=searches), knobs, task, model, tokenizer)
    rows = {row for batch in seen[0] for row in batch.tolist()}
    assert len(rows) == 16 and rows == {row ^ 1 for row in rows}


@pytest.fixture(scope="module")
def taken(searches: Path, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """An embedder as it is, and its score on the selection rows."""
    folder = tmp_path_factory.mktemp("taken")
    return folder, taught(folder, searches, tiny_bert, already_finetuned=True)


def taught(folder: Path, searches: Path, base: Path, **changes: Any) -> float:
    knobs = TeacherSlice(task_type="retrieval", **{**TRAINING, **changes})
    facts = finetune(job(knobs, folder, base=base, rows=searches))
    return float(facts["selection_score"])  # type: ignore[arg-type]


def test_a_teacher_learns_to_find_passages(
    searches: Path, tiny_bert: Path, taken: tuple[Path, float], tmp_path: Path
) -> None:
    assert taught(tmp_path, searches, tiny_bert) > taken[1] + 0.1


@pytest.mark.parametrize("changes", [{"signal": "labels"}, {"hard_weight": 0.5}])
def test_a_student_learns_to_find_passages(
    changes: dict[str, Any], searches: Path, taken: tuple[Path, float], tmp_path: Path
) -> None:
    knobs = PredictionSlice(
        task_type="retrieval",
        start="teacher",
        shape={"layers": 1},
        **{**TRAINING, "evaluations": 1, **changes},
    )
    facts = distill_prediction(job(knobs, tmp_path, teacher=taken[0], rows=searches))
    assert float(facts["selection_score"]) > taken[1] + 0.1  # type: ignore[arg-type]
