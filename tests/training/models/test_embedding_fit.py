"""Narrow embeddings of a student learn what leaves the teacher's embedding layer, on real models, before any layer."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.nn.functional import cosine_similarity, layer_norm

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import PredictionSlice, RowsSlice
from tasks.recipe.students import Shape
from tasks.training.data.encoded import Encoded, collate
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.distill import distill_prediction
from tasks.training.models.embedding_fit import embedded, learn_embeddings
from tasks.training.models.students import build_student, load_classifier, load_encoder
from tests.architectures.test_albert_of_bert import tiny
from tests.families import write_tiny
from tests.training.shrinking.test_vocabulary import classifier

CPU = torch.device("cpu")
SHARED = Path(__file__).resolve().parents[4] / "shared"


def texts(words: int = 60, rows: int = 64) -> Encoded:
    """Return rows whose words are as frequent as in any text: few of them make up most of it."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(4, 12, rows)
    ids = np.minimum(draw.zipf(1.5, lengths.sum()), words - 1).astype(np.int64)
    return Encoded(ids_S=ids, segments_S=np.zeros_like(ids), offsets=np.cumsum([0, *lengths]))


def error(student: Any, teacher: Any, encoded: Encoded, rows: np.ndarray) -> float:
    """Return the distance of both embedding layers as a share of the spread of the teacher's."""
    batch = collate(encoded, rows, 0, CPU)
    there_BT = batch.mask_BT.bool()
    with torch.no_grad():
        theirs_ND = embedded(teacher.base_model.embeddings, batch)[there_BT]
        widened = student.base_model.encoder.embedding_hidden_mapping_in
        ours_ND = widened(embedded(student.base_model.embeddings, batch))[there_BT]
    return float((ours_ND - theirs_ND).square().mean() / (theirs_ND - theirs_ND.mean(0)).square().mean())


def fitted(teacher: Any, encoded: Encoded, rows: np.ndarray, steps: int | None, **shape: Any) -> Any:
    student = build_student("albert", teacher, Shape(**{"layers": 2, "embedding": 8, **shape}), seed=0).eval()
    learn_embeddings(student, teacher, encoded, rows, 0, steps=steps, seed=0)
    return student


def test_the_output_of_the_embedding_layer_is_met_better_on_texts_that_it_has_not_learned() -> None:
    teacher, encoded = tiny("", hidden_size=32, intermediate_size=32).eval(), texts()
    learned, held = np.arange(48), np.arange(48, 64)
    before, after = (fitted(teacher, encoded, learned, steps) for steps in (0, None))
    assert error(after, teacher, encoded, held) < 0.7 * error(before, teacher, encoded, held)
    again = fitted(teacher, encoded, learned, None)
    for (name, one), other, old in zip(after.named_parameters(), again.parameters(), before.parameters(), strict=True):
        assert torch.equal(one, other), "equal seeds learn equal weights"
        learns = "_embeddings.weight" in name or "embedding_hidden_mapping_in" in name
        assert learns or torch.equal(one, old), f"{name} is no part of the embeddings"
        assert one.grad is None


def test_the_teacher_is_not_changed_and_wide_embeddings_have_nothing_to_learn() -> None:
    teacher, encoded, rows = tiny("", hidden_size=32, intermediate_size=32), texts(), np.arange(64)
    kept = copy.deepcopy(teacher.state_dict())
    wide = [fitted(teacher, encoded, rows, steps, embedding=32, share="none").state_dict() for steps in (0, 200)]
    assert all(torch.equal(value, wide[1][name]) for name, value in wide[0].items())
    fitted(teacher, encoded, rows, 5)
    assert all(torch.equal(value, kept[name]) for name, value in teacher.state_dict().items())


def test_a_stage_fits_the_embeddings_of_a_student_that_it_builds_unless_told_not_to(
    prepared: Path, tmp_path: Path
) -> None:
    """With a rate that moves nothing, what differs are the embeddings that were fitted before."""
    teacher = classifier(write_tiny("bert", tmp_path / "bert"), prepared, tmp_path / "teacher")
    for steps in (0, 20):
        knobs = PredictionSlice(
            task_type="classification", steps=1, batch_size=8, max_length=32, learning_rate=1e-30, precision="fp32",
            evaluations=1, signal="labels", start="albert", shape=Shape(layers=2, embedding=8, fit_steps=steps),
        )  # fmt: skip
        (output := tmp_path / str(steps)).mkdir()
        order = {"job": "prediction", "knobs": knobs.model_dump(mode="json"), "output": str(output)}
        inputs = {"rows": str(prepared), "teacher": str(teacher)}
        distill_prediction(Job({**order, "inputs": inputs, "checkpoints": f"{output}-kept"}, silent=True))
    task = read_task(prepared, "classification")
    own = load_tokenizer(teacher)
    encoded = read_rows(prepared, "train", task.head).tokens(own, 32)
    source = load_classifier(teacher, task, CPU).eval()
    without, with_fit = (load_classifier(tmp_path / name, task, CPU).eval() for name in ("0", "20"))
    rows = np.arange(16)
    assert error(with_fit, source, encoded, rows) < error(without, source, encoded, rows)


@pytest.fixture(scope="module")
def prepared(tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), folder)
    return folder


@pytest.mark.real_data
def test_of_minilm_a_fit_is_better_than_its_axes_and_these_than_a_factorised_table() -> None:
    """Nothing is trained behind the embeddings: all layers are the teacher's, so its last states tell what is left."""
    model, source = SHARED / "models" / "minilm", SHARED / "data" / "glue" / "sst2"
    if not model.is_dir() or not source.is_dir():
        pytest.skip(f"real data not found: {model} and {source}")
    teacher, tokenizer = load_encoder(model, CPU).eval(), load_tokenizer(model)

    def read(split: str, count: int) -> Encoded:
        column = pq.read_table(source / f"{split}.parquet")["sentence"]
        found = tokenizer(column.to_pylist()[:count], truncation=True, max_length=64)["input_ids"]
        ids = np.concatenate([np.array(one) for one in found])
        return Encoded(ids_S=ids, segments_S=np.zeros_like(ids), offsets=np.cumsum([0, *map(len, found)]))

    train, dev, shape = read("train", 3200), read("validation", 32), {"layers": 6, "embedding": 128, "share": "none"}
    plain, axes, fit = (fitted(teacher, train, np.arange(3200), steps, **shape) for steps in (0, 0, 100))
    table_VD = teacher.embeddings.word_embeddings.weight.detach()
    _, directions = torch.linalg.eigh(table_VD.T @ table_VD)
    axes_DE = directions.flip(1)[:, :128]
    with torch.no_grad():  # the best table of its rank, through a norm of its own
        codes_VE = table_VD @ axes_DE
        plain.embeddings.word_embeddings.weight.copy_(codes_VE)
        for name in ("position_embeddings", "token_type_embeddings"):
            getattr(plain.embeddings, name).weight.copy_(getattr(teacher.embeddings, name).weight @ axes_DE)
        spread = layer_norm(codes_VE, (128,)).norm(dim=1).mean() / codes_VE.norm(dim=1).mean()
        plain.encoder.embedding_hidden_mapping_in.weight.copy_(axes_DE / spread)
        plain.encoder.embedding_hidden_mapping_in.bias.zero_()
    rows = np.arange(32)
    batch = collate(dev, rows, 0, CPU)
    there_BT, alike = batch.mask_BT.bool(), []
    with torch.no_grad():
        wanted_ND = teacher(**batch.inputs(teacher)).last_hidden_state[there_BT]
        for one in (axes, fit):
            found_ND = one(**batch.inputs(one)).last_hidden_state[there_BT]
            alike.append(float(cosine_similarity(found_ND, wanted_ND, dim=-1).mean()))
    errors = [error(one, teacher, dev, rows) for one in (plain, axes, fit)]
    assert errors[0] > errors[1] > 1.2 * errors[2], errors
    assert alike[1] > alike[0] + 0.3, alike
